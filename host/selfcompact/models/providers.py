"""Real models, through the provider library. The only file, with `provider_messages`, that knows it.

Imported when a real model is used; importing the package without one does not load it.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import anyio
from pydantic_ai import exceptions
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    CompactionPart,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from selfcompact.errors import (
    ContextOverflow,
    ModelError,
    ModelTimeout,
    ProviderUnavailable,
    Refused,
)
from selfcompact.messages import AssistantMessage, TextContent, now_ms, text_of
from selfcompact.models.failures import error_for, silently_overflowed
from selfcompact.models.protocol import Completed, ModelRequest, StreamEvent, TextDelta, ThinkingDelta
from selfcompact.models.provider_messages import from_provider, to_provider, usage_of
from selfcompact.text.secrets import Redactor, secret_values

T = TypeVar("T")

IDLE_S = 180.0
"""Seconds without a piece of the answer after which a request is given up. Reasoning models think long before they
say a word; a limit on the whole would end healthy streams."""

MARK_ERRORS = frozenset({"anthropic", "bedrock", "google", "google-cloud", "google-gla", "google-vertex"})
"""The library's names of the systems whose tool results can be marked as failed."""

USAGE_FIRST = frozenset({"anthropic", "bedrock"})
"""Systems whose streams begin with usage and always end with a finish reason. Elsewhere usage comes last, and some
gateways leave the finish reason out: with usage such a stream is whole."""

WINDOW_FULL = "model_context_window_exceeded"
"""The finish reason with which Anthropic and z.ai end an answer that ran into the end of the window."""

MAX_RETRY_AFTER_S = 120.0
"""The longest wait a server may ask for; it would otherwise decide when a run ends."""


class ProviderModel:
    """A model behind a provider's API. `context_window` overrides what the library knows of the model.

    Inside `async with` one HTTP client serves all requests, and is closed at the end; outside of it each request
    opens and closes its own. A session enters the model it is opened with. `secrets`, and the values of the
    environment's key variables, are taken out of what errors quote.
    """

    def __init__(
        self,
        library_model: LibraryModel,
        *,
        provider: str,
        context_window: int | None = None,
        max_output_tokens: int | None = None,
        idle_s: float = IDLE_S,
        secrets: Sequence[str] = (),
    ) -> None:
        self._library_model = library_model
        self.provider, self.model_id = provider, library_model.model_name
        self.context_window = context_window or library_model.context_window
        self.max_output_tokens = max_output_tokens
        self._idle_s = idle_s
        self._redact = Redactor((*secret_values(os.environ), *secrets))

    async def __aenter__(self) -> Self:
        await self._library_model.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._library_model.__aexit__(kind, error, trace)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Answer one request. Cancelling the consumer closes the connection.

        Raises:
            ModelError: what the provider answered, by its meaning; `status` and `provider_message` are its own.
        """
        with self._errors_as_ours():
            async with self, aclosing(self._stream(request)) as events:
                async for event in events:
                    yield event

    @property
    def native_compaction(self) -> Literal["text", "opaque"] | None:
        """What the provider's own compaction gives for this model; None: there is none."""
        if self._library_model.profile.get("anthropic_supports_on_demand_compaction", False):
            return "text"
        offers = type(self._library_model).compact_messages is not LibraryModel.compact_messages
        return "opaque" if offers and self._library_model.system != "anthropic" else None

    async def compact_natively(self, request: ModelRequest, focus: str) -> AssistantMessage:
        """The provider's own summary of the request's messages, as the text of a message.

        Raises:
            ModelError: the provider failed, or gave no text.
        """
        context = ModelRequestContext(
            model=self._library_model,
            messages=to_provider(request.system, request.messages),
            model_settings=self._settings(request),
            model_request_parameters=_parameters(request),
        )
        with self._errors_as_ours():
            async with self:
                response = await self._in_time(self._library_model.compact_messages(context, instructions=focus))
        texts = [part.content for part in response.parts if isinstance(part, CompactionPart) and part.content]
        if not texts:
            raise ModelError("the provider's compaction gave nothing that can be read; set compaction.channel to model")
        return AssistantMessage(
            content=tuple(TextContent(text=text) for text in texts),
            provider=self.provider,
            model=self.model_id,
            usage=usage_of(response.usage),
            timestamp=now_ms(),
        )

    @contextmanager
    def _errors_as_ours(self) -> Iterator[None]:
        try:
            yield
        except exceptions.AgentRunError as error:
            # Some servers quote the key they refused; the library's error would carry it into tracebacks.
            quotes_a_key = self._redact(_everything(error)) != _everything(error)
            raise error_of(error, self._redact) from (None if quotes_a_key else error)
        except exceptions.UserError as error:
            raise ModelError(str(error)) from error

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        opened = model_request_stream(
            self._library_model,
            to_provider(request.system, request.messages, marks_errors=self._library_model.system in MARK_ERRORS),
            model_settings=self._settings(request),
            model_request_parameters=_parameters(request),
        )
        async with AsyncExitStack() as stack:
            # Entering waits for the first piece already.
            response = await self._in_time(stack.enter_async_context(opened))
            events = aiter(response)
            while True:
                event = await self._in_time(anext(events, None))
                if event is None:
                    break
                delta = _delta(event)
                if delta is not None:
                    yield delta
            whole = response.get()
        message = from_provider(whole, provider=self.provider, model_id=self.model_id)
        self._check_overflow(message, whole)
        if request.purpose == "turn":
            _check_said_something(message)
        self._check_ended(message, whole)
        yield Completed(message)

    async def _in_time(self, waiting: Awaitable[T]) -> T:
        with anyio.move_on_after(self._idle_s) as scope:
            return await waiting
        assert scope.cancelled_caught
        raise ModelTimeout(self._idle_s)

    def _settings(self, request: ModelRequest) -> ModelSettings:
        # The session retries, and tells about it; the vendor's client would do it in silence.
        settings = ModelSettings(cache=True, parallel_tool_calls=False, max_retries=0)
        limit = request.max_output_tokens or self.max_output_tokens
        if limit is not None:
            settings["max_tokens"] = limit
        if request.purpose == "summary":
            settings["thinking"] = False
            settings.pop("parallel_tool_calls", None)
        return settings

    def _check_ended(self, message: AssistantMessage, whole: ModelResponse) -> None:
        """Refuse what was cut where the wire does not notice, in a turn and in a summary alike."""
        if (whole.provider_details or {}).get("finish_reason") is not None:
            return
        if self._library_model.system in USAGE_FIRST or message.usage is None:
            raise ProviderUnavailable("the model's stream broke off: it ended without a finish reason")

    def _check_overflow(self, message: AssistantMessage, whole: ModelResponse) -> None:
        said = bool(text_of(message).strip() or message.tool_calls)
        if not said and (whole.provider_details or {}).get("finish_reason") == WINDOW_FULL:
            raise ContextOverflow(f"the context window is full ({WINDOW_FULL})")
        usage = message.usage
        if usage is None:
            return
        if silently_overflowed(
            prompt_tokens=usage.prompt,
            window=self.context_window,
            stop_reason=message.stop_reason,
            text=text_of(message),
            calls=len(message.tool_calls),
        ):
            raise ContextOverflow(
                f"the prompt had {usage.prompt:,} tokens, the context window {self.context_window or 0:,}; "
                "the server cut it without saying so"
            )


def _check_said_something(message: AssistantMessage) -> None:
    """Refuse a turn without an answer; asking again may bring one. (Of an empty summary its contract knows more.)"""
    if not text_of(message).strip() and not message.tool_calls:
        how = {"length": "the output limit was used up before a word was said"}
        why = how.get(message.stop_reason, f"stop reason {message.stop_reason}")
        raise ProviderUnavailable(f"the model's response was empty: {why}")


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters))
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools, allow_text_output=True)


def _delta(event: object) -> StreamEvent | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) if text:
            return TextDelta(text)
        case PartStartEvent(part=ThinkingPart(content=text)) if text:
            return ThinkingDelta(text)
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return TextDelta(text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
            return ThinkingDelta(text)
        case _:
            return None


def _as_it_is(text: str) -> str:
    return text


def error_of(error: exceptions.AgentRunError, redact: Callable[[str], str] = _as_it_is) -> ModelError:
    """Our error for one of the library's. `redact` takes out what must not be quoted.

    What it means is decided by `overflow`'s table, not by the library's class: the table is the one that has fixtures.
    """
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else None
    said = redact(provider_text(error))
    retry_after = getattr(error, "retry_after", None)
    if isinstance(error, exceptions.ContentFilterError):
        return Refused(said, status=status)
    if isinstance(error, exceptions.ModelTimeoutError | exceptions.ModelConnectionError):
        return ProviderUnavailable(said, status=status)
    wait = min(float(retry_after), MAX_RETRY_AFTER_S) if retry_after is not None else None
    found = error_for(status, said, body=_everything(error), retry_after_s=wait)
    if type(found) is ModelError and isinstance(error, exceptions.UnexpectedModelBehavior):
        return ProviderUnavailable(said, status=status)
    return found


def _everything(error: exceptions.AgentRunError) -> str:
    """The whole body: gateways hide what the provider said deep in it."""
    body: Any = getattr(error, "body", None)
    return f"{error} {body if isinstance(body, str) else json.dumps(body, default=str)}" if body else str(error)


def provider_text(error: exceptions.AgentRunError) -> str:
    """The provider's own words."""
    body: Any = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            code = inner.get("code") or inner.get("type")
            return f"{inner['message']} ({code})" if isinstance(code, str) else str(inner["message"])
        if isinstance(inner, str):
            return inner
    return str(body) if isinstance(body, str) and body else str(error)
