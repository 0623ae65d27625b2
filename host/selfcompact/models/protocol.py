"""The model as the session sees it: one small protocol, and the values that cross it.

A model is asked with a `ModelRequest` and answers with a stream of pieces that ends in one `AssistantMessage`.
Adapters (`providers`, `scripted`, the offline summariser) live beside this file; the rest of the package knows
only this one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from selfcompact.codec import Json
from selfcompact.messages import AssistantMessage, Message

RAW_ARGUMENTS = "__raw_arguments__"
"""The one key of a tool call's arguments that were no JSON object: the call is answered with an error."""


@dataclass(frozen=True)
class ToolSpec:
    """A tool the model may ask for. `parameters` is a JSON Schema of the arguments object."""

    name: str
    description: str
    parameters: Mapping[str, Json]


@dataclass(frozen=True)
class ModelRequest:
    """Everything one request carries. `system` and `tools` are the same bytes from request to request.

    `purpose` tells a turn of the conversation from a request for a summary; summary requests carry no tools.
    `max_output_tokens` is None where the model's own limit holds. `cache_key` groups requests that share a prefix.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    purpose: Literal["turn", "summary"] = "turn"
    cache_key: str | None = None


@dataclass(frozen=True)
class TextDelta:
    """A piece of visible text."""

    text: str


@dataclass(frozen=True)
class ThinkingDelta:
    """A piece of reasoning."""

    text: str


@dataclass(frozen=True)
class Completed:
    """The whole response; always the last item of a stream that ends well."""

    message: AssistantMessage


StreamEvent = TextDelta | ThinkingDelta | Completed


class Model(Protocol):
    """Something that answers requests."""

    @property
    def provider(self) -> str:
        """Who runs the model, as session logs name it (`anthropic`, `scripted`)."""

    @property
    def model_id(self) -> str:
        """The model's name at its provider."""

    @property
    def context_window(self) -> int | None:
        """Tokens of prompt and output together; None when nobody knows."""

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens one response can have; None when nobody knows."""

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Answer one request, piece by piece.

        Cancelling the consumer ends the request. Errors are raised as `selfcompact.errors.ModelError`.
        """
