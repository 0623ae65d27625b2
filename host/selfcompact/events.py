"""What a session tells while it works: one event per thing that happened, in an order that can be relied on.

```
run        := agent_start message* (compaction? turn)* compaction? agent_end
turn       := turn_start (response retry_scheduled)* response cell* turn_end
response   := message_start message_update* message_end
cell       := tool_execution_start tool_execution_update* tool_execution_end message
message    := message_start message_end
compaction := compaction_start compaction_progress* compaction_end
```

A manual compaction of an idle session stands outside a run. `compaction_scheduled`, `request_dropped`,
`kernel_restarted`, `agent_callable_changed`, `auto_compaction_disarmed`, `model_changed` and `warning` may stand
anywhere. The JSON form (`to_json`) has the
camelCase field names of the pi session family, so that readers of that family's event streams understand ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from selfcompact.codec import Json, Record, converted
from selfcompact.messages import AssistantMessage, Message, ToolResultMessage, decode_message, encode_message

__all__ = [
    "AgentCallableChanged",
    "AgentEnd",
    "AgentStart",
    "AutoCompactionDisarmed",
    "CompactionEnd",
    "CompactionProgress",
    "CompactionReason",
    "CompactionResult",
    "CompactionScheduled",
    "CompactionStart",
    "CompactionStatus",
    "Event",
    "KernelRestarted",
    "MessageEnd",
    "MessageStart",
    "MessageUpdate",
    "ModelChanged",
    "RequestDropped",
    "RetryScheduled",
    "RunStatus",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "TurnEnd",
    "TurnStart",
    "WarningRaised",
]

CompactionReason = Literal["manual", "threshold", "overflow", "requested"]
"""Who wanted a compaction: the operator, the threshold, the provider's overflow error, the agent."""

CompactionStatus = Literal["completed", "skipped", "failed", "vetoed", "interrupted"]
"""How an attempt ended. Only `completed` changes the history."""

RunStatus = Literal["done", "failed", "aborted"]
"""How a run ended."""

CallStatus = Literal["ok", "error", "timeout", "aborted", "died", "refused"]
"""How a tool call ended. `refused`: it was not run, because its arguments or its tool's name were wrong."""

DeltaKind = Literal["text", "thinking"]
"""What of a response is being streamed."""


def _decode_messages(data: Json) -> tuple[Message, ...]:
    return tuple(decode_message(item) for item in data)


def _encode_messages(value: tuple[Message, ...]) -> Json:
    return [encode_message(item) for item in value]


@dataclass(frozen=True, kw_only=True)
class AgentStart(Record):
    """A run begins."""

    type: str = "agent_start"


@dataclass(frozen=True, kw_only=True)
class AgentEnd(Record):
    """A run is over. `messages` are the ones it added; `reason` says why it stopped when it is not `done`."""

    type: str = "agent_end"
    status: RunStatus = "done"
    messages: tuple[Message, ...] = converted(_decode_messages, _encode_messages, default=())
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class TurnStart(Record):
    """The next model request is about to be sent. Turns of a run count from 1."""

    type: str = "turn_start"
    turn: int


@dataclass(frozen=True, kw_only=True)
class TurnEnd(Record):
    """The response and the results of its calls are in the history. Context figures are tokens."""

    type: str = "turn_end"
    turn: int
    message: AssistantMessage = converted(AssistantMessage.from_json, encode_message)
    tool_results: tuple[Message, ...] = converted(_decode_messages, _encode_messages, default=())
    context_tokens: int = 0
    context_window: int | None = None
    context_estimated: bool = False


@dataclass(frozen=True, kw_only=True)
class MessageStart(Record):
    """A message begins; a response is still empty here."""

    type: str = "message_start"
    message: Message = converted(decode_message, encode_message)


@dataclass(frozen=True, kw_only=True)
class MessageUpdate(Record):
    """A piece of the response that is being streamed. `kind` is `text` or `thinking`."""

    type: str = "message_update"
    kind: DeltaKind
    delta: str


@dataclass(frozen=True, kw_only=True)
class RetryScheduled(Record):
    """A request failed for a reason that passes; it is sent again after `delay_ms`. Attempts count from 1."""

    type: str = "retry_scheduled"
    attempt: int
    delay_ms: int
    error_message: str


@dataclass(frozen=True, kw_only=True)
class MessageEnd(Record):
    """A message is complete and in the history."""

    type: str = "message_end"
    message: Message = converted(decode_message, encode_message)


@dataclass(frozen=True, kw_only=True)
class ToolExecutionStart(Record):
    """A cell begins."""

    type: str = "tool_execution_start"
    tool_call_id: str
    tool_name: str
    args: Mapping[str, Json]


@dataclass(frozen=True, kw_only=True)
class ToolExecutionUpdate(Record):
    """Output of a cell that still runs; `delta` is what came since the last update."""

    type: str = "tool_execution_update"
    tool_call_id: str
    tool_name: str
    delta: str


@dataclass(frozen=True, kw_only=True)
class ToolExecutionEnd(Record):
    """A cell is over. `status` is the cell's (`ok`, `error`, `timeout`, `aborted`, `died`, `refused`)."""

    type: str = "tool_execution_end"
    tool_call_id: str
    tool_name: str
    result: ToolResultMessage = converted(ToolResultMessage.from_json, encode_message)
    is_error: bool = False
    status: CallStatus = "ok"
    duration_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class CompactionStart(Record):
    """A compaction begins. The history is unchanged until `compaction_end` says otherwise."""

    type: str = "compaction_start"
    reason: CompactionReason
    custom_instructions: str | None = None


@dataclass(frozen=True, kw_only=True)
class CompactionProgress(Record):
    """How far the summary is: window `window` of `windows` of one part, and the characters of its answer so far."""

    type: str = "compaction_progress"
    part: str
    window: int
    windows: int
    characters: int


@dataclass(frozen=True, kw_only=True)
class CompactionResult(Record):
    """What a completed compaction did. Tokens are the ledger's estimates of the context."""

    summary: str
    first_kept_entry_id: str
    tokens_before: int
    tokens_after: int
    offline: bool = False
    details: Mapping[str, Json] | None = None


def _encode_result(value: CompactionResult) -> Json:
    return value.to_json()


@dataclass(frozen=True, kw_only=True)
class CompactionEnd(Record):
    """A compaction is over. `result` is there only when `status` is `completed`; `error_message` says why
    it is not. `will_retry`: the request that overflowed is sent again."""

    type: str = "compaction_end"
    reason: CompactionReason
    status: CompactionStatus
    result: CompactionResult | None = converted(CompactionResult.from_json, _encode_result, default=None)
    aborted: bool = False
    will_retry: bool = False
    error_message: str | None = None
    custom_instructions: str | None = None
    duration_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class CompactionScheduled(Record):
    """A cell asked for a compaction and it was accepted; it runs at the next boundary."""

    type: str = "compaction_scheduled"
    custom_instructions: str | None = None


@dataclass(frozen=True, kw_only=True)
class RequestDropped(Record):
    """A compaction that the agent asked for will not run; `cause` says why."""

    type: str = "request_dropped"
    cause: str
    custom_instructions: str | None = None


@dataclass(frozen=True, kw_only=True)
class KernelRestarted(Record):
    """A new kernel took the place of one that died; its generation counts from 1."""

    type: str = "kernel_restarted"
    generation: int
    cause: str


@dataclass(frozen=True, kw_only=True)
class AgentCallableChanged(Record):
    """The operator switched whether the agent may compact itself."""

    type: str = "agent_callable_changed"
    enabled: bool


@dataclass(frozen=True, kw_only=True)
class AutoCompactionDisarmed(Record):
    """Compaction at the threshold stops until the context has `until_tokens` tokens: it failed, or hardly helped,
    too often in a row. Requested, manual and overflow compactions go on."""

    type: str = "auto_compaction_disarmed"
    cause: str
    until_tokens: int


@dataclass(frozen=True, kw_only=True)
class ModelChanged(Record):
    """From the next request on another model answers."""

    type: str = "model_changed"
    provider: str
    model_id: str


@dataclass(frozen=True, kw_only=True)
class WarningRaised(Record):
    """Something an operator should know; the session goes on."""

    type: str = "warning"
    message: str


Event = (
    AgentStart
    | AgentEnd
    | TurnStart
    | TurnEnd
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | RetryScheduled
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | CompactionStart
    | CompactionProgress
    | CompactionEnd
    | CompactionScheduled
    | RequestDropped
    | KernelRestarted
    | AgentCallableChanged
    | AutoCompactionDisarmed
    | ModelChanged
    | WarningRaised
)
