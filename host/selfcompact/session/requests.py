"""What a cell may ask of the session, and the one request that can be waiting.

The values here cross the bridge; their keys are the contract's. The session registers the two handlers and owns
the slot; this file knows nothing of sockets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NotRequired, TypedDict

from pydantic import BaseModel, ConfigDict, Field, StrictStr

MAX_INSTRUCTION_CHARS = 16_000
"""About 4,000 tokens: enough for any wish, too little to fill the summariser's window."""

SCHEDULED_NOTE = (
    "The compaction runs when this turn ends. Variables stay alive; finish the cell and go on working. "
    "You will see a summary and the newest messages instead of the old history."
)


class StatusPayload(BaseModel):
    """`compact.status` has no arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunPayload(BaseModel):
    """`compact.run`: what the summary must keep, in the agent's words."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instructions: Annotated[StrictStr, Field(max_length=MAX_INSTRUCTION_CHARS)] | None = None


class RecallPayload(BaseModel):
    """`compact.recall`: what to look for in this session's log."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: Annotated[StrictStr, Field(min_length=1, max_length=1_000)]
    limit: Annotated[int, Field(ge=1, le=50)] = 5


class EntryPayload(BaseModel):
    """`compact.entry`: one entry of this session's log."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entry_id: Annotated[StrictStr, Field(min_length=1, max_length=200)]


class RunReply(TypedDict):
    """The answer to `compact.run()`."""

    scheduled: bool
    note: NotRequired[str]
    reason: NotRequired[str]


@dataclass(frozen=True)
class PendingRequest:
    """A compaction that was asked for and has not run."""

    instructions: str | None = None


class RequestSlot:
    """Holds at most one request; a newer one takes the place of an older one.

    Owned by the session's run: handlers put, the boundary takes. Nothing here awaits.
    """

    def __init__(self) -> None:
        self._pending: PendingRequest | None = None

    @property
    def pending(self) -> PendingRequest | None:
        """The request that waits, or None."""
        return self._pending

    def put(self, request: PendingRequest) -> None:
        """Store a request, replacing the one before."""
        self._pending = request

    def clear(self) -> PendingRequest | None:
        """Take the request out."""
        pending, self._pending = self._pending, None
        return pending


def floor_reason(estimated_tokens: int, window: int | None, floor_percent: float) -> str | None:
    """Why the floor refuses a request, or None when it does not."""
    if not floor_percent or not window:
        return None
    percent = 100 * estimated_tokens / window
    if percent >= floor_percent:
        return None
    return f"the context is {percent:.1f} % full, below the floor of {floor_percent:g} % set by the operator"
