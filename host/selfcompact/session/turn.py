"""One turn: one response of the model, and the cells it asked for.

Whatever is cancelled, the history stays valid: a response that was cut off is logged as such and not sent again, and
a call that was made has a result.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections.abc import Callable
from typing import Protocol

import anyio

from selfcompact.codec import Json
from selfcompact.errors import ImageRefused, InvalidHistory, KernelError, ModelError
from selfcompact.events import (
    CallStatus,
    DeltaKind,
    KernelRestarted,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    WarningRaised,
)
from selfcompact.kernel import CellResult
from selfcompact.messages import (
    AssistantMessage,
    Content,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    blocks,
    now_ms,
)
from selfcompact.models.protocol import (
    RAW_ARGUMENTS,
    Completed,
    Model,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from selfcompact.models.retry import retry_delay_s
from selfcompact.session.conversation import Conversation
from selfcompact.session.history import validate_history
from selfcompact.session.stream import EventHub
from selfcompact.settings.retry import RetrySettings

IPYTHON = ToolSpec(
    name="ipython",
    description=(
        "Run a cell in a persistent IPython kernel and get its output. Variables, imports and functions stay alive "
        "from cell to cell. Top-level `await`, `%magics` and `!shell` work. Long output is cut in the middle."
    ),
    parameters={
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "The cell's source."},
            "timeout_s": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Seconds until the cell is interrupted; leave it out for the session's own limit.",
            },
        },
        "required": ["code"],
        "additionalProperties": False,
    },
)
"""The one tool: everything an agent does, it does in a cell."""

NO_OUTPUT = "(no output)"
ABORTED = "The cell was aborted by the operator; what it had done until then stays done."
NOT_RUN = "The cell was not run: the operator aborted the turn before it."


class CellRunner(Protocol):
    """What a turn needs of a kernel."""

    @property
    def generation(self) -> int:
        """The number of the kernel that runs now, from 1."""

    async def execute(
        self, code: str, *, timeout_s: float | None = None, on_output: Callable[[str], None] | None = None
    ) -> CellResult:
        """Run one cell; a cancelled call interrupts it and settles before the cancellation goes on."""


class TurnRunner:
    """Runs the turns of one session; the session's run calls it, nothing else does."""

    def __init__(
        self,
        conversation: Conversation,
        model: Model,
        kernel: CellRunner,
        *,
        system: str,
        hub: EventHub,
        cache_key: str,
        retry: RetrySettings,
    ) -> None:
        self._conversation, self._kernel, self._hub = conversation, kernel, hub
        self._system, self._cache_key, self._retry = system, cache_key, retry
        self.model = model

    async def respond(self) -> AssistantMessage:
        """Ask the model with the history as it is, and append what it answers.

        A request that failed for a passing reason is sent again, as often as the settings say. A failed or cancelled
        response is appended too, marked as such; it is never part of a request again.

        Raises:
            ModelError: the provider failed.
            InvalidHistory: a provider would refuse the history; nothing was sent.
        """
        request = self._request()
        for attempt in itertools.count():
            try:
                return await self._ask(request)
            except ImageRefused as error:
                self._withhold_images(error)
                request = self._request()
                continue
            except ModelError as error:
                delay_s = retry_delay_s(self._retry, attempt, error, random.random())  # noqa: S311 - jitter, no secret
                if delay_s is None:
                    raise
                said = str(error)
            self._hub.emit(RetryScheduled(attempt=attempt + 1, delay_ms=round(delay_s * 1000), error_message=said))
            await anyio.sleep(delay_s)
        raise AssertionError("the loop has no end of its own")

    def _withhold_images(self, error: ImageRefused) -> None:
        """Put a sentence in the place of an image that the provider cannot take, for good; raise when there is none."""
        count = self._conversation.withhold_images(str(error))
        if not count:
            raise error
        sentence = f"the provider refused an image ({error}); the images of {count} message(s) are not sent any more"
        self._hub.emit(WarningRaised(message=sentence))

    def _request(self) -> ModelRequest:
        messages = self._conversation.history()
        problems = validate_history(messages)
        if problems:
            raise InvalidHistory(problems)
        return ModelRequest(self._system, messages, (IPYTHON,), cache_key=self._cache_key)

    async def _ask(self, request: ModelRequest) -> AssistantMessage:
        self._hub.emit(MessageStart(message=self._partial([], "stop")))
        parts: list[TextDelta | ThinkingDelta] = []
        try:
            return self._finish(await self._receive(request, parts))
        except ModelError as error:
            self._finish(self._partial(parts, "error", str(error)))
            raise
        except anyio.get_cancelled_exc_class():
            self._finish(self._partial(parts, "aborted", "aborted by the operator"))
            raise

    async def _receive(self, request: ModelRequest, parts: list[TextDelta | ThinkingDelta]) -> AssistantMessage:
        message: AssistantMessage | None = None
        async for event in self.model.stream(request):
            match event:
                case Completed():
                    message = event.message
                case TextDelta() | ThinkingDelta():
                    parts.append(event)
                    kind: DeltaKind = "text" if isinstance(event, TextDelta) else "thinking"
                    self._hub.emit(MessageUpdate(kind=kind, delta=event.text))
        if message is None:
            raise ModelError("the model's stream ended without a response; try again")
        return self._with_unique_ids(message)

    def _finish(self, message: AssistantMessage) -> AssistantMessage:
        self._conversation.say(message)
        self._hub.emit(MessageEnd(message=message))
        return message

    def _partial(
        self, parts: list[TextDelta | ThinkingDelta], stop_reason: str, error: str | None = None
    ) -> AssistantMessage:
        thinking = "".join(part.text for part in parts if isinstance(part, ThinkingDelta))
        text = "".join(part.text for part in parts if isinstance(part, TextDelta))
        content: list[Content] = [ThinkingContent(thinking=thinking)] if thinking else []
        if text:
            content.append(TextContent(text=text))
        return AssistantMessage(
            content=tuple(content),
            provider=self.model.provider,
            model=self.model.model_id,
            stop_reason=stop_reason,
            error_message=error,
            timestamp=now_ms(),
        )

    def _with_unique_ids(self, message: AssistantMessage) -> AssistantMessage:
        """Some servers count call ids from zero in every response; in one history they must differ."""
        content: list[Content] = []
        for block in blocks(message):
            if isinstance(block, ToolCall):
                fresh = self._conversation.claim_call_id(block.id)
                content.append(block if fresh == block.id else dataclasses.replace(block, id=fresh))
            else:
                content.append(block)
        return dataclasses.replace(message, content=tuple(content))

    async def run_calls(self, message: AssistantMessage) -> tuple[ToolResultMessage, ...]:
        """Run the cells a response asked for, one after the other, and append their results.

        When it is cancelled, the cell that runs is interrupted and it and the rest get results that say so.
        """
        results: list[ToolResultMessage] = []
        calls = message.tool_calls
        try:
            for call in calls:
                result = await self._run_call(call)
                results.append(result)
        except anyio.get_cancelled_exc_class():
            for position, call in enumerate(calls[len(results) :]):
                text = ABORTED if position == 0 else NOT_RUN
                self._answer(call, _error_result(call, text, "aborted"), "aborted", 0, began=position == 0)
            raise
        return tuple(results)

    async def _run_call(self, call: ToolCall) -> ToolResultMessage:
        began = time.monotonic()
        self._hub.emit(ToolExecutionStart(tool_call_id=call.id, tool_name=call.name, args=call.arguments))
        refusal = call_problem(call)
        if refusal is not None:
            return self._answer(call, _error_result(call, refusal, "refused"), "refused", 0)
        generation = self._kernel.generation
        try:
            cell = await self._kernel.execute(
                call.arguments["code"],
                timeout_s=call.arguments.get("timeout_s"),
                on_output=lambda text: self._hub.emit(
                    ToolExecutionUpdate(tool_call_id=call.id, tool_name=call.name, delta=text)
                ),
            )
        except KernelError as error:
            result = _error_result(call, str(error), "died")
            return self._answer(call, result, "died", round((time.monotonic() - began) * 1000))
        if self._kernel.generation != generation:
            self._hub.emit(KernelRestarted(generation=self._kernel.generation, cause=cell.note or cell.status))
        return self._answer(call, cell_message(call, cell), cell.status, round(cell.duration_s * 1000))

    def _answer(
        self, call: ToolCall, result: ToolResultMessage, status: CallStatus, duration_ms: int, *, began: bool = True
    ) -> ToolResultMessage:
        if not began:
            self._hub.emit(ToolExecutionStart(tool_call_id=call.id, tool_name=call.name, args=call.arguments))
        self._hub.emit(
            ToolExecutionEnd(
                tool_call_id=call.id,
                tool_name=call.name,
                result=result,
                is_error=result.is_error,
                status=status,
                duration_ms=duration_ms,
            )
        )
        emit_message(self._conversation, self._hub, result)
        return result


def emit_message(conversation: Conversation, hub: EventHub, message: Message) -> None:
    """Append a message and tell about it."""
    conversation.say(message)
    hub.emit(MessageStart(message=message))
    hub.emit(MessageEnd(message=message))


def call_problem(call: ToolCall) -> str | None:
    """What is wrong with a call, in a sentence the model can act on; None when it can be run."""
    if RAW_ARGUMENTS in call.arguments:
        return f"The arguments of this call are not a JSON object: {str(call.arguments[RAW_ARGUMENTS])[:200]}"
    if call.name != IPYTHON.name:
        return f"There is no tool named {call.name!r}; the only tool is `ipython` with the argument `code`."
    if not isinstance(call.arguments.get("code"), str):
        return "The tool `ipython` needs the argument `code`, a string with the cell's source."
    unknown = sorted(set(call.arguments) - {"code", "timeout_s"})
    if unknown:
        return f"The tool `ipython` has no argument {unknown[0]!r}; it takes `code` and, if needed, `timeout_s`."
    timeout_s = call.arguments.get("timeout_s")
    if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float)):
        return "The argument `timeout_s` of `ipython` is a number of seconds."
    if timeout_s is not None and not timeout_s > 0:
        return "The argument `timeout_s` of `ipython` is a number of seconds greater than 0."
    return None


def cell_message(call: ToolCall, cell: CellResult) -> ToolResultMessage:
    """A cell's result as the model sees it; figures about the execution go into `details`."""
    notes = [cell.note] if cell.note else []
    text = "\n".join([*notes, cell.text or ("" if cell.images else NO_OUTPUT)]).strip("\n")
    content: list[Content] = [TextContent(text=text)] if text else []
    content.extend(cell.images)
    details: dict[str, Json] = {
        "status": cell.status,
        "executionCount": cell.execution_count,
        "durationMs": round(cell.duration_s * 1000),
        "generation": cell.generation,
    }
    if cell.omitted_bytes:
        details["omittedBytes"] = cell.omitted_bytes
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=tuple(content),
        details=details,
        is_error=cell.status != "ok",
        timestamp=now_ms(),
    )


def _error_result(call: ToolCall, text: str, status: str) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=(TextContent(text=text),),
        details={"status": status},
        is_error=True,
        timestamp=now_ms(),
    )
