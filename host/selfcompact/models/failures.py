"""What a provider's error means: too long, wait, not allowed, down. One table, matched in order.

Providers tell "the prompt is too long" in as many wordings as there are providers, and some of their rate limits talk
of tokens too. A wrong guess in one direction compacts for nothing, in the other it ends a run that a compaction would
have saved. The fixtures in tests/models hold what each provider really answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from selfcompact.errors import (
    AuthenticationFailed,
    ContextOverflow,
    ImageRefused,
    ModelError,
    PermissionDenied,
    ProviderUnavailable,
    RateLimited,
    Refused,
)

Meaning = Literal[
    "overflow",
    "rate_limit",
    "quota",
    "authentication",
    "permission",
    "refused",
    "unavailable",
    "not_found",
    "image",
    "unknown",
]


@dataclass(frozen=True)
class _Rule:
    """`pattern` is looked for in the lower-cased body; `statuses` empty: any status."""

    meaning: Meaning
    pattern: str
    statuses: frozenset[int | None] = frozenset()


def _rule(meaning: Meaning, pattern: str, *statuses: int | None) -> _Rule:
    return _Rule(meaning, pattern, frozenset(statuses))


_MISTAKEN = (400, 404, 415, 422, 500)
"""Statuses of a request that cannot be carried out; llama.cpp says 500 when it cannot load an image."""

RULES: tuple[_Rule, ...] = (
    # Limits on tokens per time come first: they mention tokens, context and maximums as overflows do.
    _rule("rate_limit", r"tokens? per (min|minute|hour|day)|per-minute|\btpm\b|\btpd\b|\brpm\b|requests per"),
    _rule("rate_limit", r"rate.?limit|too many requests|throttl|slow down|please wait before trying again"),
    _rule("rate_limit", r"resource.?exhausted", 429),
    _rule("quota", r"insufficient_quota|exceeded your current quota|billing|credit balance|credits|payment"),
    # Limits on the output, on names and on single images are mistakes of the request; a shorter history mends none.
    _rule("unknown", r"max_tokens.{0,80}(must be|too large|supports at most|maximum allowed number|not supported)"),
    _rule("unknown", r"maximum tokens you requested|string too long"),
    # One image that cannot be taken spoils every later request that carries it.
    _rule(
        "image", r"image (exceeds|does not match)|image.?(parse|format|decod\w*).?error|image dimensions", *_MISTAKEN
    ),
    _rule(
        "image",
        r"(could not|cannot|can.t|unable to|failed to) (process|load|decode|identify|read|parse).{0,30}image",
        *_MISTAKEN,
    ),
    _rule("image", r"image.{0,40}(could not|cannot|can.t) be (processed|loaded|decoded|read)", *_MISTAKEN),
    _rule(
        "image",
        r"(invalid|unsupported|corrupt\w*|malformed).{0,20}image|image_url.{0,30}(invalid|not valid)",
        *_MISTAKEN,
    ),
    _rule(
        "image",
        r"(not|n.t) support.{0,30}(image|vision)|support image input|image input.{0,12}not supported",
        *_MISTAKEN,
    ),
    _rule("image", r"at most \d+ image|missing data required for image", *_MISTAKEN),
    # The wordings of overflow.
    _rule("overflow", r"context_length_exceeded|context.?window.?(exceed|overflow)|model_context_window_exceeded"),
    _rule("overflow", r"max(imum)? (context|sequence|model|prompt) ?(window|len)|context size has been exceeded"),
    _rule(
        "overflow", r"prompt is too long|prompt too long|input is too long|input length .*exceed|too long (for|to fit)"
    ),
    _rule("overflow", r"longer than the model.s context|context length of only|more than max tokens allowed"),
    _rule("overflow", r"input token count.*exceeds|exceeds the maximum (number of )?(input )?tokens?"),
    _rule("overflow", r"exceeds? (the )?max(imum)? (allowed )?(input )?length|max_new_tokens. must be"),
    _rule("overflow", r"exceed(s|ed|ing)?.{0,60}(context (window|length|size|limit)|maximum.{0,20}(token|length))"),
    _rule(
        "overflow", r"(context|prompt|input|request)( \(.{0,40}\))?.{0,40}(exceed|larger than|greater than|too large)"
    ),
    _rule("overflow", r"exceed_context_size|n_ctx|available context size|context size of"),
    _rule("overflow", r"too many (input )?tokens|number of (input )?tokens.{0,40}exceed|token limit exceeded"),
    _rule("overflow", r"reduce the (length|size) of the (messages|prompt|input)|shorten your (prompt|input|messages)"),
    _rule("overflow", r"range of input length|request_too_large|payload too large|request entity too large"),
    _rule("overflow", r"exceeded max(imum)? (context|token)|max_prompt_tokens|\btokens? > \d+ maximum"),
    _rule("overflow", "", 413),
    # The rest goes by status, then by words.
    _rule("authentication", "", 401),
    _rule("refused", r"content.?filter|content management policy|safety|responsibleai|blocked by|refus|moderation"),
    _rule("refused", r"inappropriate content|data_inspection|unsafe or sensitive"),
    _rule(
        "authentication",
        r"invalid (x-)?api.?key|incorrect api key|no auth credentials|api key not valid|authentication_error",
    ),
    _rule("permission", "", 403),
    _rule("quota", "", 402),
    _rule("not_found", "", 404),
    _rule("rate_limit", "", 429),
    _rule("unavailable", "", 408, 409, 425, 500, 502, 503, 504, 520, 522, 524, 529),
    _rule(
        "unavailable", r"overloaded|internal server error|service unavailable|bad gateway|timed? ?out|try again later"
    ),
)

NEVER_OVERFLOW = frozenset({401, 402, 403, 404, 429, 500, 502, 503, 529})
"""Statuses with which no provider reports an overflow; a body that quotes the prompt must not look like one."""

UNMISTAKABLE = ("context_length_exceeded", "exceed_context_size", "context size has been exceeded")
"""Words that mean overflow with any status: gateways pass the provider's answer on inside of a 502 or 429 of their own,
and llama.cpp answers 500 when the window fills while it writes."""


@cache
def _compiled() -> tuple[tuple[_Rule, re.Pattern[str]], ...]:
    """Compiled at the first error: together they take 4 ms, and most sessions meet none."""
    return tuple((rule, re.compile(rule.pattern, re.DOTALL)) for rule in RULES)


def meaning_of(status: int | None, body: str) -> Meaning:
    """What an error means. `status` is the HTTP status, None where there was none; `body` the provider's text."""
    text = body.lower()
    for rule, pattern in _compiled():
        if rule.statuses and status not in rule.statuses:
            continue
        if rule.meaning == "overflow" and status in NEVER_OVERFLOW and not _says_so_by_code(text):
            continue
        if pattern.search(text):
            return rule.meaning
    return "unknown"


def error_for(
    status: int | None, said: str, *, body: str | None = None, retry_after_s: float | None = None
) -> ModelError:
    """The typed error for an answer. `said` is what to quote of it.

    The meaning is read from `body` when there is more than what is quoted; an empty one leaves it to the status.
    """
    match meaning_of(status, said if body is None else body):
        case "overflow":
            return ContextOverflow(said, status=status)
        case "rate_limit":
            return RateLimited(said, status=status, retry_after_s=retry_after_s)
        case "authentication":
            return AuthenticationFailed(said, status=status)
        case "permission" | "quota":
            return PermissionDenied(said, status=status)
        case "refused":
            return Refused(said, status=status)
        case "image":
            return ImageRefused(said, status=status)
        case "unavailable":
            return ProviderUnavailable(said, status=status)
        case _:
            is_down = status is not None and status >= 500
            return ProviderUnavailable(said, status=status) if is_down else ModelError(said, status=status)


def _says_so_by_code(text: str) -> bool:
    return any(code in text for code in UNMISTAKABLE)


def silently_overflowed(*, prompt_tokens: int, window: int | None, stop_reason: str, text: str, calls: int) -> bool:
    """Whether a response that ended well hides an overflow.

    Some servers cut the prompt and report more tokens than the window has; others stop at once by length, without a
    word.
    """
    if window is None:
        return False
    nothing_said = stop_reason == "length" and not text.strip() and not calls
    return prompt_tokens > window or (nothing_said and prompt_tokens > 0.9 * window)
