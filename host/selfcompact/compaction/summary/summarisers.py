"""Who writes a summary: a model asked through our protocol, or nobody at all (offline)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

import anyio

from selfcompact.compaction.offline.writing import offline_summary
from selfcompact.compaction.planning.plan import Plan
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.errors import ModelTimeout, ProviderUnavailable
from selfcompact.messages import AssistantMessage, Usage, text_of, user
from selfcompact.models.protocol import Completed, Model, ModelRequest, StreamEvent, TextDelta

IDLE_S = 120.0
"""Seconds without a piece of the answer after which a request is given up. Not a limit on the whole: a slow stream
that goes on is healthy."""


@dataclass(frozen=True)
class SummaryReply:
    """An answer. `text` is the visible text without reasoning; `tool_calls` counts tools it asked for."""

    text: str
    usage: Usage | None = None
    stop_reason: str = "stop"
    tool_calls: int = 0


class TextSummariser(Protocol):
    """Asks for one text."""

    @property
    def name(self) -> str:
        """What is written into the record, as `provider:model`."""

    @property
    def context_window(self) -> int | None:
        """Tokens of request and answer together; None: the session's own window is assumed."""

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens one answer can have; None when nobody knows."""

    @property
    def drops_thinking(self) -> bool:
        """Whether reasoning of the conversation must not be shown to it."""

    async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
        """The answer to one request. `on_text` is called with the number of characters that arrived so far.

        Cancelling ends the request. Raises `selfcompact.errors.ModelError`.
        """


@dataclass(frozen=True)
class ModelSummariser:
    """Asks a model, without tools; the request's output limit is its own and not that of the agent's turns."""

    model: Model
    idle_s: float = IDLE_S
    cache_key: str | None = None

    @property
    def name(self) -> str:
        return f"{self.model.provider}:{self.model.model_id}"

    @property
    def context_window(self) -> int | None:
        return self.model.context_window

    @property
    def max_output_tokens(self) -> int | None:
        return self.model.max_output_tokens

    @property
    def drops_thinking(self) -> bool:
        return "anthropic" in self.model.provider.lower()

    async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
        """The model's answer.

        Raises:
            ModelTimeout: nothing arrived for `idle_s` seconds.
            ModelError: the provider failed, or its stream ended without a response.
        """
        asked = ModelRequest(
            system=request.system,
            messages=(user(request.prompt, synthetic=True),),
            max_output_tokens=request.max_output_tokens,
            purpose="summary",
            cache_key=self.cache_key,
        )
        stream = self.model.stream(asked)
        try:
            return await self._reply(aiter(stream), on_text)
        finally:
            # Left to the garbage collector, a generator that was given up would keep its connection open.
            if isinstance(stream, AsyncGenerator):
                with anyio.CancelScope(shield=True):
                    await stream.aclose()

    async def _reply(self, stream: AsyncIterator[StreamEvent], on_text: Callable[[int], None] | None) -> SummaryReply:
        characters = 0
        while True:
            with anyio.move_on_after(self.idle_s) as scope:
                event = await anext(stream, None)
            if scope.cancelled_caught:
                raise ModelTimeout(self.idle_s)
            if event is None:
                raise ProviderUnavailable(f"{self.name} ended its stream without a response")
            if isinstance(event, TextDelta):
                characters += len(event.text)
                if on_text is not None:
                    on_text(characters)
            elif isinstance(event, Completed):
                return reply_of(event.message)


@dataclass(frozen=True)
class OfflineSummariser:
    """Writes the summary out of the messages themselves: no model, no network, no waiting."""

    name: str = "offline"

    def write(self, plan: Plan, budget_tokens: int, redact: Callable[[str], str]) -> str:
        """The summary. Never fails for what messages say."""
        return offline_summary(plan, budget_tokens=budget_tokens, redact=redact)


Summariser = TextSummariser | OfflineSummariser
"""Something that writes summaries."""


def reply_of(message: AssistantMessage) -> SummaryReply:
    """A model's response as a reply: reasoning dropped, tool calls counted."""
    return SummaryReply(
        text=text_of(message),
        usage=message.usage,
        stop_reason=message.stop_reason,
        tool_calls=len(message.tool_calls),
    )
