"""One run: everything that one `prompt()` sets off.

The loop is boundary, input, turn, and again. It is carried by the task that awaits `prompt()`; cancelling that task
aborts the run and leaves a valid history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from selfcompact.errors import (
    CompactionLimit,
    ContextOverflow,
    InvalidHistory,
    ModelError,
    SelfcompactError,
    SessionFileError,
    described,
)
from selfcompact.events import AgentEnd, AgentStart, RunStatus, TurnEnd, TurnStart
from selfcompact.messages import Message, ToolResultMessage, UserMessage, text_of
from selfcompact.session.boundary import Compact, Decision, Stop
from selfcompact.session.compactor import CompactionOutcome
from selfcompact.session.conversation import Conversation
from selfcompact.session.inbox import Inbox
from selfcompact.session.kernel_state import NOTE
from selfcompact.session.skill_end import SkillEnd
from selfcompact.session.state import SessionState
from selfcompact.session.status import ContextStatus
from selfcompact.session.stream import EventHub
from selfcompact.session.turn import TurnRunner, emit_message


@dataclass(frozen=True)
class RunResult:
    """What one `prompt()` came to.

    `status` is `done`, `failed` or `aborted`; `text` is the last response's text; `error` is there when it failed, and
    `reason` then says the whole of why, what was tried against it included. `messages` are the ones the run added,
    `compactions` every attempt in it.
    """

    status: RunStatus
    text: str = ""
    error: SelfcompactError | None = None
    turns: int = 0
    messages: tuple[Message, ...] = ()
    compactions: tuple[CompactionOutcome, ...] = ()
    reason: str | None = None

    def raise_for_status(self) -> None:
        """Raise the error of a run that failed; do nothing otherwise."""
        if self.error is not None:
            raise self.error


class RunHost(Protocol):
    """What a run asks of its session at a boundary."""

    skill: SkillEnd

    def decide(self, overflow: ContextOverflow | None, *, wants_more: bool) -> Decision:
        """What to do now."""

    async def compact_at_boundary(self, decision: Compact, *, first: bool) -> CompactionOutcome:
        """Carry out a decision; `first` tells a boundary before the first request of a run."""

    async def prepare_request(self) -> None:
        """Last things before a request: changes of model and settings that were asked for."""

    def status(self) -> ContextStatus:
        """How full the context is."""


@dataclass
class Run:
    """The run that is going on. Owned by the task in `prompt()`; nothing else writes to it."""

    host: RunHost
    conversation: Conversation
    turns: TurnRunner
    hub: EventHub
    state: SessionState
    inbox: Inbox
    turn: int = 0
    has_begun: bool = False
    text: str = ""
    messages: list[Message] = field(default_factory=list)
    compactions: list[CompactionOutcome] = field(default_factory=list)

    async def drive(self, message: UserMessage, *, note: str | None = None) -> RunResult:
        """Work until the run ends; a cancellation passes through. `note` is what the host tells the model first."""
        self.hub.emit(AgentStart())
        overflow: ContextOverflow | None = None
        wants_more = True
        try:
            if note is not None:
                self.conversation.add_context(NOTE, note)
            self.has_begun = True
            self._deliver(message)
            while True:
                stop = await self._at_boundary(overflow, wants_more)
                if stop is not None:
                    return self._ended(stop, overflow)
                for waiting in self.inbox.take(run_would_end=not wants_more):
                    self._deliver(waiting)
                try:
                    overflow, wants_more = None, await self._turn()
                except ContextOverflow as error:
                    overflow = error
        except (ModelError, SessionFileError, InvalidHistory) as error:
            return self._ended(Stop(str(error)), error)

    def broken_by(self, error: Exception) -> RunResult:
        """The result of a run that an exception of somebody else's ended, which its caller gets."""
        return self._result("failed", None, described(error))

    def finish(self, result: RunResult | None) -> RunResult:
        """Tell that the run is over; None is a run that was aborted."""
        if result is None:
            result = self._result("aborted", None)
        if result.status != "done":
            self.host.skill.drop(f"the run {'was aborted' if result.status == 'aborted' else 'failed'}")
        try:
            self.conversation.sync()
        except SessionFileError as error:
            if result.status == "done":
                result = self._result("failed", error, str(error))
        self.hub.emit(AgentEnd(status=result.status, messages=result.messages, reason=result.reason))
        return result

    async def _turn(self) -> bool:
        """One turn; whether the model wants another one."""
        self.turn += 1
        self.hub.emit(TurnStart(turn=self.turn))
        self.host.skill.turn = self.turn
        results: tuple[ToolResultMessage, ...] = ()
        try:
            response = await self.turns.respond()
            self.messages.append(response)
            self.text = text_of(response)
            results = await self.turns.run_calls(response)
            self.messages.extend(results)
        finally:
            self.host.skill.turn = None
            self._report_turn_end(results)
        return bool(results)

    def _report_turn_end(self, results: Sequence[ToolResultMessage]) -> None:
        message = self.conversation.newest_response
        if message is None:
            return
        status = self.host.status()
        self.hub.emit(
            TurnEnd(
                turn=self.turn,
                message=message,
                tool_results=tuple(results),
                context_tokens=status.estimated_tokens,
                context_window=status.context_window,
                context_estimated=status.tokens is None,
            )
        )

    async def _at_boundary(self, overflow: ContextOverflow | None, wants_more: bool) -> Stop | None:
        """Do what the boundary decides; None means: send the next request."""
        with self.state.within("at_boundary"):
            self.conversation.sync()
            decision = self.host.decide(overflow, wants_more=wants_more or self.inbox.waiting)
            if isinstance(decision, Compact):
                outcome = await self.host.compact_at_boundary(decision, first=self.turn == 0)
                self.compactions.append(outcome)
                if decision.retry and not outcome.completed:
                    return Stop(f"{overflow}; and no compaction could help: {outcome.message}")
                if not (wants_more or decision.retry or self.inbox.waiting):
                    return Stop()
            elif isinstance(decision, Stop):
                return decision
            await self.host.prepare_request()
        return None

    def _deliver(self, message: UserMessage) -> None:
        emit_message(self.conversation, self.hub, message)
        self.messages.append(message)

    def _ended(self, stop: Stop, cause: SelfcompactError | None) -> RunResult:
        if stop.limit:
            said = cause.provider_message if isinstance(cause, ModelError) else ""
            limit = CompactionLimit(self.conversation.attempts.in_a_row, said)
            return self._result("failed", limit, str(limit))
        return self._result("failed", cause, stop.error) if stop.error else self._result("done", None)

    def _result(self, status: RunStatus, error: SelfcompactError | None, reason: str | None = None) -> RunResult:
        return RunResult(status, self.text, error, self.turn, tuple(self.messages), tuple(self.compactions), reason)
