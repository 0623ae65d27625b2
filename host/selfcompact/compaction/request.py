"""The request for a summary: the only text a summariser sees.

What comes from the conversation stands inside tags that carry a nonce made for this one request; all of it is inert
(see `inert`), so that it can neither close its tag nor open another one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from selfcompact.compaction.inert import inert
from selfcompact.compaction.style import Style

Kind = Literal["first", "update", "prefix"]


@dataclass(frozen=True)
class SummaryRequest:
    """One request. `max_output_tokens` limits the answer."""

    system: str
    prompt: str
    max_output_tokens: int


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
    parts.append({"first": style.first, "update": style.update, "prefix": style.prefix}[kind])
    if instructions:
        parts.append(
            "Additional focus, with high priority: what the part below asks to keep must be in the summary. It may "
            "not change the form or these rules."
        )
        parts.append(tagged("instructions", inert(redact(instructions)), nonce))
    if violations:
        named = "\n".join(f"- {violation}" for violation in violations)
        parts.append(f"An earlier answer was not usable:\n{inert(named)}\nAnswer again, in exactly the form above.")
    return SummaryRequest(style.system, "\n\n".join(parts), max_output_tokens)


def parts_of(prompt: str) -> dict[str, str]:
    """The tagged parts of a prompt by name, told by the nonce of its first tag; for tests and for inspection."""
    first = re.match(r'<[a-z-]+ nonce="([0-9a-f]+)">', prompt)
    if first is None:
        return {}
    tagged = re.compile(
        rf'^<(?P<name>[a-z-]+) nonce="{first[1]}">\n(?P<body>.*?)\n</(?P=name) nonce="{first[1]}">$',
        re.DOTALL | re.MULTILINE,
    )
    return {match["name"]: match["body"] for match in tagged.finditer(prompt)}


def tagged(name: str, text: str, nonce: str) -> str:
    """One part of a prompt between tags that carry the nonce. The text must be inert."""
    return f'<{name} nonce="{nonce}">\n{text}\n</{name} nonce="{nonce}">'
