"""The session: what a program holds, and the one owner of the state.

```
            prompt()                      results are in            Compact
   idle ───────────────► running ───────────────► at_boundary ───────────────► compacting
    ▲  ◄─────────────────   ▲  ◄──────────────────────  │  ▲                       │
    │     Stop, abort       └─────── Continue ──────────┘  └──────── any outcome ──┘
    └── compact() of an idle session: idle → compacting → idle;  close(): any → closed
```

A run is carried by the task that awaits `prompt()`; handlers of the bridge and other tasks only put values into
slots (a request, input, a manual compaction) which the run takes out at the next boundary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio

from host_bridge.host_end import Dispatcher
from selfcompact.compaction.budget import threshold_tokens
from selfcompact.compaction.plan import Skip
from selfcompact.entries import SessionHeader
from selfcompact.errors import (
    CompactionLimit,
    ContextOverflow,
    InvalidHistory,
    ModelError,
    SelfcompactError,
    SessionBusy,
    SessionClosed,
    SessionFileError,
)
from selfcompact.events import (
    AgentCallableChanged,
    AgentEnd,
    AgentStart,
    CompactionReason,
    CompactionScheduled,
    RequestDropped,
    RunStatus,
    TurnEnd,
    TurnStart,
)
from selfcompact.kernel import Kernel
from selfcompact.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, text_of, user
from selfcompact.models.model import Model
from selfcompact.session.boundary import BoundaryFacts, Compact, Decision, Stop, boundary
from selfcompact.session.compactor import CompactionOutcome, Compactor
from selfcompact.session.conversation import Conversation, attempts_since_success
from selfcompact.session.requests import (
    RUN,
    SCHEDULED_NOTE,
    STATUS,
    PendingRequest,
    RequestSlot,
    RunPayload,
    RunReply,
    StatusPayload,
    floor_reason,
)
from selfcompact.session.status import ContextStatus, percent_of
from selfcompact.session.stream import EventHub, EventStream
from selfcompact.session.turn import TurnRunner, emit_message
from selfcompact.settings import Settings

State = Literal["idle", "running", "at_boundary", "compacting", "closed"]

HANDLER_TIMEOUT_S = 10.0
"""For `status` and `run`; both answer from memory, so this only bounds a fault."""


@dataclass(frozen=True)
class RunResult:
    """What one `prompt()` came to.

    `status` is `done`, `failed` or `aborted`; `text` is the last response's text; `error` is there when it failed.
    `messages` are the ones the run added, `compactions` every attempt in it.
    """

    status: RunStatus
    text: str = ""
    error: SelfcompactError | None = None
    turns: int = 0
    messages: tuple[Message, ...] = ()
    compactions: tuple[CompactionOutcome, ...] = ()

    def raise_for_status(self) -> None:
        """Raise the error of a run that failed; do nothing otherwise."""
        if self.error is not None:
            raise self.error


@dataclass
class _Run:
    """What the run that is going on has gathered; owned by the task in `prompt()`."""

    scope: anyio.CancelScope
    turn: int = 0
    text: str = ""
    messages: list[Message] = field(default_factory=list)
    compactions: list[CompactionOutcome] = field(default_factory=list)


@dataclass
class _Manual:
    """A compaction that `compact()` asked for while a run was going on."""

    request: PendingRequest
    settled: anyio.Event = field(default_factory=anyio.Event)
    outcome: CompactionOutcome | None = None


class Session:
    """A conversation with a model that works in a kernel. Made by `selfcompact.open_session`.

    Methods may be called from any task of the event loop the session was opened in. One run at a time; what is
    given while one is going on is delivered at its next boundary, once and in order.
    """

    def __init__(
        self,
        *,
        conversation: Conversation,
        turns: TurnRunner,
        compactor: Compactor,
        dispatcher: Dispatcher,
        hub: EventHub,
        settings: Settings,
        window: int | None,
        header: SessionHeader,
        session_file: Path,
        workspace: Path,
        kernel: Kernel,
    ) -> None:
        self._conversation, self._turns, self._compactor = conversation, turns, compactor
        self._dispatcher, self._hub, self._window = dispatcher, hub, window
        self.settings = settings
        self.header, self.session_file, self.workspace, self.kernel = header, session_file, workspace, kernel
        self._state: State = "idle"
        self._settled = anyio.Event()
        self._settled.set()
        self._slot = RequestSlot()
        self._steering: deque[UserMessage] = deque()
        self._follow_ups: deque[UserMessage] = deque()
        self._run: _Run | None = None
        self._manual: _Manual | None = None
        self._compaction_scope: anyio.CancelScope | None = None
        self._turn_is_active = False
        self._agent_callable = False
        self.set_agent_callable(settings.compaction.agent_callable)

    # What a program sees

    @property
    def state(self) -> State:
        """What the session is doing."""
        return self._state

    @property
    def model(self) -> Model:
        """The model that answers the turns."""
        return self._turns.model

    @property
    def agent_callable(self) -> bool:
        """Whether cells may call `compact.status()` and `compact.run()` now."""
        return self._agent_callable

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages the next request would carry."""
        return self._conversation.history()

    def events(self) -> EventStream:
        """A stream of everything that happens from now on; read it with `async for`, close it with `aclose()`."""
        return self._hub.open()

    def status(self) -> ContextStatus:
        """How full the context is; costs the same however old the session is."""
        ledger, settings = self._conversation.ledger, self.settings.compaction
        planned = self._compactor.plan()
        reason = planned.reason if isinstance(planned, Skip) else None
        reason = reason or floor_reason(ledger.estimated_tokens, self._window, settings.agent_floor_percent)
        return ContextStatus(
            tokens=ledger.reported_tokens,
            context_window=self._window,
            percent=percent_of(ledger.reported_tokens, self._window),
            scheduled=self._slot.pending is not None,
            estimated_tokens=ledger.estimated_tokens,
            threshold_tokens=threshold_tokens(settings, self._window) if self._window else None,
            would_compact=reason is None,
            reason=reason,
        )

    # What a program may do

    async def prompt(self, text: str) -> RunResult:
        """Give the model a task and work until it is done, fails, or is aborted.

        Waits for a manual compaction to end first. Cancelling this call aborts the run: the history stays valid and
        what was logged stays logged.

        Raises:
            SessionBusy: a run is going on; use `steer` or `follow_up` to give it input.
            SessionClosed: the session was closed.
        """
        while self._state == "compacting" and self._run is None:
            await self._settled.wait()
        self._claim("running")
        message = user(text)
        with anyio.CancelScope() as scope:
            run = self._run = _Run(scope)
            result = RunResult("aborted")
            try:
                result = await self._drive(run, message)
            finally:
                if result.status == "aborted":
                    result = RunResult("aborted", run.text, None, run.turn, tuple(run.messages), tuple(run.compactions))
                self._end_run(result)
        return result

    def steer(self, text: str) -> None:
        """Give input to the run that is going on; it is delivered at the next boundary, before the next request.

        Raises:
            SessionClosed: the session was closed.
        """
        self._check_open()
        self._steering.append(user(text))

    def follow_up(self, text: str) -> None:
        """Give input for when the run that is going on would end; it then goes on with it.

        Raises:
            SessionClosed: the session was closed.
        """
        self._check_open()
        self._follow_ups.append(user(text))

    async def abort(self) -> None:
        """Stop whatever is going on and return when it has settled; does nothing when the session is idle."""
        if self._run is not None:
            self._run.scope.cancel()
        if self._compaction_scope is not None:
            self._compaction_scope.cancel()
        await self._settled.wait()

    async def compact(self, instructions: str | None = None, *, now: bool = False) -> CompactionOutcome:
        """Compact at the next boundary, or at once when the session is idle. `now` aborts a run first.

        A second call while one is waiting or running gets the first one's outcome: one record is written.

        Raises:
            SessionClosed: the session was closed.
        """
        self._check_open()
        if now:
            await self.abort()
        while self._run is not None or self._manual is not None:
            manual = self._manual
            if manual is None:
                turn = self._run.turn if self._run else 0
                manual = self._manual = _Manual(PendingRequest(turn, instructions))
            await manual.settled.wait()
            if manual.outcome is not None:
                return manual.outcome
        self._claim("compacting")
        manual = self._manual = _Manual(PendingRequest(0, instructions))
        try:
            with anyio.CancelScope() as scope:
                self._compaction_scope = scope
                manual.outcome = await self._compact("manual", instructions)
        finally:
            self._compaction_scope = None
            self._manual = None
            manual.settled.set()
            self._settle("idle")
        if manual.outcome is None:
            manual.outcome = CompactionOutcome("manual", "interrupted", message="the compaction was cancelled")
        return manual.outcome

    def set_agent_callable(self, enabled: bool) -> None:
        """Switch whether cells may call the compact skill, also while a run is going on.

        Switching it off drops a pending request and says so in an event.
        """
        if enabled == self._agent_callable:
            return
        self._agent_callable = enabled
        if enabled:
            self._dispatcher.register(STATUS, StatusPayload, self._on_status, timeout_s=HANDLER_TIMEOUT_S)
            self._dispatcher.register(RUN, RunPayload, self._on_run, timeout_s=HANDLER_TIMEOUT_S)
        else:
            self._dispatcher.unregister(STATUS)
            self._dispatcher.unregister(RUN)
            self._drop_request("the operator switched the compact skill off")
        self._hub.emit(AgentCallableChanged(enabled=enabled))

    async def close(self) -> None:
        """Abort what is going on, and accept nothing more. Closing twice is fine."""
        if self._state == "closed":
            return
        await self.abort()
        self._state = "closed"
        self._hub.close()

    # What a cell may ask

    async def _on_status(self, _payload: StatusPayload) -> dict[str, object]:
        return self.status().to_json()

    async def _on_run(self, payload: RunPayload) -> RunReply:
        if self._run is None or not self._turn_is_active:
            return {"scheduled": False, "reason": "no active turn: a compaction can be asked for only while one runs"}
        planned = self._compactor.plan(payload.instructions)
        if isinstance(planned, Skip):
            return {"scheduled": False, "reason": planned.reason}
        tokens, settings = self._conversation.ledger.estimated_tokens, self.settings.compaction
        refusal = floor_reason(tokens, self._window, settings.agent_floor_percent)
        if refusal is not None:
            return {"scheduled": False, "reason": refusal}
        self._slot.put(PendingRequest(self._run.turn, payload.instructions))
        self._hub.emit(CompactionScheduled(custom_instructions=payload.instructions))
        return {"scheduled": True, "note": SCHEDULED_NOTE}

    # The run

    async def _drive(self, run: _Run, message: UserMessage) -> RunResult:
        self._hub.emit(AgentStart())
        self._deliver(run, message)
        overflow: ContextOverflow | None = None
        wants_more = True
        try:
            while True:
                stop = await self._at_boundary(run, overflow, wants_more)
                if stop is not None:
                    return self._result(run, stop, overflow)
                self._deliver_waiting(run, wants_more)
                try:
                    overflow, wants_more = None, await self._turn(run)
                except ContextOverflow as error:
                    overflow = error
        except (ModelError, SessionFileError, InvalidHistory) as error:
            return self._result(run, Stop(str(error)), error)

    async def _turn(self, run: _Run) -> bool:
        """One turn; whether the model wants another one."""
        run.turn += 1
        self._hub.emit(TurnStart(turn=run.turn))
        self._turn_is_active = True
        response: AssistantMessage | None = None
        results: tuple[ToolResultMessage, ...] = ()
        try:
            response = await self._turns.respond()
            run.messages.append(response)
            run.text = text_of(response)
            results = await self._turns.run_calls(response)
            run.messages.extend(results)
        finally:
            self._turn_is_active = False
            self._end_turn(run, response, results)
        return bool(results)

    def _end_turn(self, run: _Run, response: AssistantMessage | None, results: Sequence[ToolResultMessage]) -> None:
        status = self.status()
        newest = next((m for e in reversed(self._conversation.entries) if (m := _response(e)) is not None), None)
        message = response or newest
        if message is not None:
            self._hub.emit(
                TurnEnd(
                    turn=run.turn,
                    message=message,
                    tool_results=tuple(results),
                    context_tokens=status.estimated_tokens,
                    context_window=status.context_window,
                    context_estimated=status.tokens is None,
                )
            )

    async def _at_boundary(self, run: _Run, overflow: ContextOverflow | None, wants_more: bool) -> Stop | None:
        """Do what the boundary decides; None means: send the next request."""
        self._state = "at_boundary"
        self._conversation.sync()
        decision = self._decide(overflow, wants_more)
        if isinstance(decision, Compact):
            outcome = await self._compact(decision.reason, decision.instructions, will_retry=decision.retry)
            run.compactions.append(outcome)
            if decision.retry and not outcome.completed:
                return Stop(f"{overflow}; and the compaction that should have helped: {outcome.message}")
            decision = Stop() if not self._wants_more(wants_more or decision.retry) else None
        self._state = "running"
        return decision if isinstance(decision, Stop) else None

    def _decide(self, overflow: ContextOverflow | None, wants_more: bool) -> Decision:
        ledger, settings = self._conversation.ledger, self.settings.compaction
        attempts, overflow_compacted = attempts_since_success(self._conversation.entries)
        threshold = threshold_tokens(settings, self._window) if self._window else None
        if threshold is not None and ledger.estimated_tokens > threshold and isinstance(self._compactor.plan(), Skip):
            threshold = None  # nothing can be summarised: firing would only make noise at every boundary
        return boundary(
            BoundaryFacts(
                pending=self._slot.pending,
                manual=self._manual.request if self._manual else None,
                overflow=str(overflow) if overflow else None,
                estimated_tokens=ledger.estimated_tokens,
                threshold_tokens=threshold,
                enabled=settings.enabled,
                attempts_in_a_row=attempts,
                overflow_compacted=overflow_compacted,
                max_attempts=settings.max_attempts_in_a_row,
                wants_more=self._wants_more(wants_more),
            )
        )

    def _wants_more(self, wants_more: bool) -> bool:
        return wants_more or bool(self._steering) or bool(self._follow_ups)

    async def _compact(
        self, reason: CompactionReason, instructions: str | None, *, will_retry: bool = False
    ) -> CompactionOutcome:
        before, self._state = self._state, "compacting"
        manual = self._manual if reason == "manual" else None
        if reason in {"requested", "overflow"}:
            self._slot.clear()
        outcome: CompactionOutcome | None = None
        try:
            outcome = await self._compactor.run(reason, instructions, will_retry=will_retry)
        finally:
            self._state = before
            if outcome is not None and outcome.completed:
                self._slot.clear()
            if manual is not None and self._run is not None:
                manual.outcome = outcome or CompactionOutcome("manual", "interrupted", message="the run was aborted")
                self._manual = None
                manual.settled.set()
        return outcome

    def _deliver_waiting(self, run: _Run, wants_more: bool) -> None:
        """Steering goes in before the next request; follow-ups only when the run would have ended."""
        steered = bool(self._steering)
        while self._steering:
            self._deliver(run, self._steering.popleft())
        if not wants_more and not steered and self._follow_ups:
            self._deliver(run, self._follow_ups.popleft())

    def _deliver(self, run: _Run, message: UserMessage) -> None:
        emit_message(self._conversation, self._hub, message)
        run.messages.append(message)

    def _result(self, run: _Run, stop: Stop, cause: SelfcompactError | None) -> RunResult:
        error = cause if stop.error else None
        if stop.limit:
            said = cause.provider_message if isinstance(cause, ModelError) else ""
            error = CompactionLimit(attempts_since_success(self._conversation.entries)[0], said)
        return RunResult(
            "failed" if error is not None else "done",
            run.text,
            error,
            run.turn,
            tuple(run.messages),
            tuple(run.compactions),
        )

    def _end_run(self, result: RunResult) -> None:
        if result.status != "done":
            cause = "the run was aborted" if result.status == "aborted" else "the run failed"
            self._drop_request(cause)
        reason = str(result.error) if result.error else None
        self._hub.emit(AgentEnd(status=result.status, messages=result.messages, reason=reason))
        self._conversation.sync()
        self._run = None
        if self._manual is not None:
            manual, self._manual = self._manual, None
            manual.settled.set()
        self._settle("idle")

    # The state

    def _claim(self, state: State) -> None:
        self._check_open()
        if self._state != "idle":
            raise SessionBusy(self._state)
        self._state = state
        self._settled = anyio.Event()

    def _settle(self, state: State) -> None:
        self._state = state
        self._settled.set()

    def _check_open(self) -> None:
        if self._state == "closed":
            raise SessionClosed

    def _drop_request(self, cause: str) -> None:
        dropped = self._slot.clear()
        if dropped is not None:
            self._hub.emit(RequestDropped(cause=cause, custom_instructions=dropped.instructions))


def _response(entry: object) -> AssistantMessage | None:
    message = getattr(entry, "message", None)
    return message if isinstance(message, AssistantMessage) else None


@asynccontextmanager
async def closing(session: Session) -> AsyncIterator[Session]:
    """Close the session at the end, also when the block is left by an error or a cancellation."""
    try:
        yield session
    finally:
        with anyio.CancelScope(shield=True):
            await session.close()
