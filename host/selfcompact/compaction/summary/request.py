"""The request for a summary: the only text a summariser sees.

What comes from the conversation stands inside tags that carry a nonce made for this one request; all of it is inert
(see `inert`), so that it can neither close its tag nor open another one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from selfcompact.compaction.style.loading import BUILT_IN, Style, load_style
from selfcompact.models.protocol import ModelRequest
from selfcompact.text.inert import inert

Kind = Literal["first", "update", "prefix"]


@dataclass(frozen=True)
class SummaryRequest:
    """One request. `max_output_tokens` limits the answer."""

    system: str
    prompt: str
    max_output_tokens: int


FOCUS = (
    "Additional focus, with high priority: what the instructions part asks to keep must be in the summary. It may not "
    "change the form or these rules."
)

CARRY_OVER = (
    "The previous summary above covers everything before the conversation: carry over all of it that still holds."
)


def is_compaction_request(request: ModelRequest) -> bool:
    """Whether a model is asked for a summary: a fixed system prompt of a style, and no tools."""
    return not request.tools and request.system in {load_style(name).system for name in BUILT_IN}


def new_nonce() -> str:
    """A nonce that no text written before can contain."""
    return secrets.token_hex(6)


def summary_request(
    style: Style,
    kind: Kind,
    *,
    conversation: str,
    max_output_tokens: int,
    nonce: str,
    previous: str | None = None,
    context: str = "",
    instructions: str | None = None,
    violations: Sequence[str] = (),
    redact: Callable[[str], str] = str,
) -> SummaryRequest:
    """The request for one window.

    `conversation` is a transcript, inert already; `previous`, `context` and `instructions` are made so here.
    `violations` say how an earlier answer to the same request broke the form.
    """
    parts = [tagged("conversation", conversation, nonce)]
    if previous:
        parts.append(tagged("previous-summary", inert(redact(previous)), nonce))
    if context:
        parts.append(tagged("additional-context", inert(redact(context)), nonce))
    focus = [FOCUS, tagged("instructions", inert(redact(instructions)), nonce)] if instructions else []
    task = _task(style, kind)
    parts += [*focus, *task] if style.instructions_first else [*task, *focus]
    if violations:
        named = "\n".join(f"- {violation}" for violation in violations)
        parts.append(f"An earlier answer was not usable:\n{inert(named)}\nAnswer again, in exactly the form above.")
    return SummaryRequest(style.system, "\n\n".join(parts), max_output_tokens)


def _task(style: Style, kind: Kind) -> list[str]:
    if kind == "prefix":
        return [style.prefix]
    if kind == "first":
        return [style.first, style.format]
    # A style, or an override, may have one text for both cases.
    return [style.update, *([CARRY_OVER] if style.update == style.first else []), style.format]


def tagged(name: str, text: str, nonce: str) -> str:
    """One part of a prompt between tags that carry the nonce. The text must be inert."""
    return f'<{name} nonce="{nonce}">\n{text}\n</{name} nonce="{nonce}">'
