"""What a fake provider answers: replies and faults, independent of any wire format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A tool call in a reply. `arguments` given as text are sent as they are, valid JSON or not."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None

    @property
    def arguments_text(self) -> str:
        """The arguments as they go over the wire."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Reply:
    """A response that is streamed piece by piece.

    `finish` overrides the finish reason (None: what follows from the content; empty text: left out). `usage` are
    (prompt, output) tokens, `cached` how many of the prompt came from a cache; None: no usage is reported.
    `delay_s` passes before each piece; `cut_after` pieces the connection is cut.
    """

    text: str = ""
    thinking: str = ""
    signature: str = ""
    calls: Sequence[Call] = ()
    finish: str | None = None
    usage: tuple[int, int] | None = (100, 10)
    cached: int = 0
    delay_s: float = 0.0
    cut_after: int | None = None
    chunk_chars: int = 20

    @property
    def pieces(self) -> list[str]:
        """The visible text as it is streamed."""
        return [self.text[i : i + self.chunk_chars] for i in range(0, len(self.text), self.chunk_chars)]


@dataclass(frozen=True)
class Fault:
    """An error answer: a status, a body (an object is sent as JSON, text as it is), and headers."""

    status: int
    body: Mapping[str, Any] | str = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


Answer = Reply | Fault


def cell_reply(code: str, *, say: str = "", usage: tuple[int, int] | None = (100, 10)) -> Reply:
    """A reply that runs a cell."""
    return Reply(text=say, calls=(Call("ipython", {"code": code}),), usage=usage)


def overflow_fault(family: str = "openai") -> Fault:
    """The error a provider family answers when the prompt is longer than the window."""
    if family == "anthropic":
        message = "prompt is too long: 213462 tokens > 200000 maximum"
        return Fault(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})
    message = (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 213462 tokens. "
        "Please reduce the length of the messages."
    )
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    return Fault(400, {"error": error})
