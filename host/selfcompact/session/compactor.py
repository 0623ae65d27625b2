"""One compaction, from the plan to the appended record.

Until the record is appended the old history holds; afterwards the new one does. The append is the last step and
does not await, so a cancellation leaves one of the two and never a third. What the state of the kernel is gets
asked just before, of the kernel itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from anyio.abc import TaskGroup

from selfcompact.codec import Json
from selfcompact.compaction.ahead import Background, Prepared
from selfcompact.compaction.commit import compaction_entry
from selfcompact.compaction.planning.plan import Plan, Skip
from selfcompact.compaction.summary.fold import Progress
from selfcompact.compaction.summary.summarise import supplied_summary
from selfcompact.compaction.summary.summarisers import Summariser
from selfcompact.details import CompactionDetails
from selfcompact.entries import Entry
from selfcompact.errors import CompactionError, CompactionFailed, ModelError, SessionFileError
from selfcompact.events import (
    CompactionEnd,
    CompactionProgress,
    CompactionReason,
    CompactionResult,
    CompactionStart,
    CompactionStatus,
    WarningRaised,
)
from selfcompact.kernel.state import StateManifest
from selfcompact.log import SessionLog
from selfcompact.session.attempts import ATTEMPT
from selfcompact.session.branches import summarise_branch
from selfcompact.session.conversation import Conversation
from selfcompact.session.hooks import CompactionPreparation, Hooks, SuppliedSummary, Veto
from selfcompact.session.policy import SessionPolicy
from selfcompact.session.stream import EventHub
from selfcompact.session.writer import SummaryWriter
from selfcompact.settings.compaction import CompactionSettings

Failure = CompactionError | ModelError | SessionFileError
Phase = Literal["standalone", "pre-turn", "mid-turn"]
"""Where in a session a compaction ran: outside a run, before a run's first request, or between its turns."""

TRIGGERS: dict[CompactionReason, str] = {
    "manual": "user",
    "requested": "agent",
    "threshold": "auto",
    "overflow": "auto",
}

HOOK_CONTEXT = "selfcompact.hook"
"""The custom message that carries what a hook added to the context."""


@dataclass(frozen=True)
class CompactionOutcome:
    """How one attempt ended. `result` is there when it completed, `error` when it failed; `message` says why not."""

    reason: CompactionReason
    status: CompactionStatus
    result: CompactionResult | None = None
    message: str | None = None
    error: Failure | None = None

    @property
    def completed(self) -> bool:
        """Whether the history changed."""
        return self.status == "completed"


class NamedKernel(Protocol):
    """What a compaction needs of a kernel."""

    async def names(self) -> StateManifest:
        """The names that are alive, listed by the kernel itself."""


@dataclass(frozen=True)
class _Order:
    """One attempt as it was asked for."""

    reason: CompactionReason
    instructions: str | None
    phase: Phase
    began: float


class Compactor:
    """Runs compactions for one session, one at a time; the session's state sees to that.

    Settings, window and summariser are the ones in force, asked at each attempt.
    """

    def __init__(
        self,
        conversation: Conversation,
        *,
        policy: SessionPolicy,
        writer: SummaryWriter,
        kernel: NamedKernel,
        log: SessionLog,
        hub: EventHub,
        hooks: Hooks,
        tasks: TaskGroup,
        secrets: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conversation, self._policy, self._writer, self._kernel = conversation, policy, writer, kernel
        self._session_id, self._session_file = log.header.id, str(log.path)
        self._hub, self._hooks, self._tasks = hub, hooks, tasks
        self._secrets, self._clock = secrets, clock
        self._ahead: Background | None = None
        self.newest = CompactionOutcome("manual", "skipped", message="nothing was compacted yet")
        """How the newest attempt ended: what `run` returned, or would have returned when it was cancelled."""
        self._ahead_for: tuple[CompactionSettings, int | None, Summariser] | None = None

    def begin_ahead(self, instructions: str | None) -> None:
        """Begin writing a summary that a boundary will want. Never waits; nothing is committed before the boundary."""
        self._background().start(self._tasks, self._conversation.ledger, instructions=instructions)

    def cancel_ahead(self) -> None:
        """Give up what was begun ahead."""
        if self._ahead is not None:
            self._ahead.cancel()

    async def summarise_branch(self, entries: Sequence[Entry]) -> str | None:
        """What happened on a branch that is being left; None when nothing did.

        Raises:
            SummaryRejected, ModelError: the summariser failed, and there is no fallback.
        """
        return await summarise_branch(
            entries,
            self._writer.current(),
            self._policy.settings.compaction,
            window=self._policy.context_window,
            secrets=self._secrets,
        )

    async def run(
        self, reason: CompactionReason, instructions: str | None, *, phase: Phase, will_retry: bool = False
    ) -> CompactionOutcome:
        """Compact, and tell how it went. Never raises for a failure; a cancellation passes through after its event.

        `will_retry` says that the caller sends a failed request again when the compaction completes.
        """
        order = _Order(reason, instructions, phase, self._clock())
        self._hub.emit(CompactionStart(reason=reason, custom_instructions=instructions))
        self.newest = CompactionOutcome(reason, "interrupted", message="the compaction was cancelled")
        try:
            self.newest = self._cleaned(await self._attempt(order))
            if self.newest.result is not None:
                await self._run_after_hooks(self.newest.result)
        finally:
            # Cancelled before the commit it was interrupted; cancelled in the hooks after it, it is completed.
            self._finish(order, self.newest, will_retry=will_retry and self.newest.completed)
        return self.newest

    def _cleaned(self, outcome: CompactionOutcome) -> CompactionOutcome:
        """What went wrong, told without secrets: hooks, summarisers and providers quote what they were given."""
        return outcome if outcome.message is None else replace(outcome, message=self._policy.redact(outcome.message))

    async def _attempt(self, order: _Order) -> CompactionOutcome:
        reason = order.reason
        try:
            planned = self._policy.plan(order.instructions)
            if isinstance(planned, Skip):
                return CompactionOutcome(reason, "skipped", message=planned.reason)
            decided = await self._hooks.before(self._preparation(order, planned), self._report)
            if decided is not None:
                self.cancel_ahead()
            if isinstance(decided, Veto):
                return CompactionOutcome(reason, "vetoed", message=decided.reason)
            if isinstance(decided, SuppliedSummary):
                supplied = supplied_summary(planned, decided.text, "hook", secrets=self._secrets)
                prepared = Prepared(planned, supplied, ahead=False, waited_s=0)
            else:
                found = await self._background().finish(
                    self._conversation.ledger, instructions=order.instructions, on_progress=self._report_progress
                )
                if isinstance(found, Skip):
                    return CompactionOutcome(reason, "skipped", message=found.reason)
                prepared = found
            return self._commit(order, prepared, (await self._kernel.names()).to_text())
        except (CompactionError, ModelError, SessionFileError) as error:
            return CompactionOutcome(reason, "failed", message=str(error), error=error)
        except Exception as error:  # noqa: BLE001 - summarisers and kernels are foreign code; a run must outlive them
            failure = CompactionFailed(error)
            return CompactionOutcome(reason, "failed", message=str(failure), error=failure)

    def _background(self) -> Background:
        """The draft's keeper for settings, window and summariser in force; another one when any of them changed."""
        wanted = (self._policy.settings.compaction, self._policy.context_window, self._writer.current())
        if self._ahead is None or self._ahead_for != wanted:
            self.cancel_ahead()
            self._ahead_for = wanted
            self._ahead = Background(
                wanted[2], wanted[0], window=wanted[1], secrets=self._secrets, planner=self._policy.planner
            )
        return self._ahead

    def _report_progress(self, progress: Progress) -> None:
        self._hub.emit(
            CompactionProgress(
                part=progress.part,
                window=progress.window,
                windows=progress.windows,
                characters=progress.characters,
            )
        )

    def _commit(self, order: _Order, prepared: Prepared, manifest: str | None) -> CompactionOutcome:
        planned, summary = prepared.plan, prepared.summary
        history = self._conversation.attempts.history()
        noted = CompactionDetails(
            trigger=TRIGGERS[order.reason],
            phase=order.phase,
            model=self._policy.model_name,
            duration_ms=self._elapsed_ms(order),
            window_number=history.completed + 1,
            in_a_row=history.in_a_row + 1,
            ineffective_before=history.ineffective_in_a_row,
            written_ahead=prepared.ahead,
            waited_ms=round(prepared.waited_s * 1000),
        )
        entry = compaction_entry(
            planned,
            summary,
            entry_id=self._conversation.new_id(),
            parent_id=self._conversation.leaf_id,
            manifest_text=manifest,
            reason=order.reason,
            secrets=self._secrets,
            noted=noted,
        )
        self._conversation.append(entry)
        try:
            self._conversation.sync()
        except SessionFileError as error:  # the record is in the log and holds; the next boundary tries again
            self._report(str(error))
        if planned.warning is not None:
            self._report(planned.warning)
        result = CompactionResult(
            summary=entry.summary,
            first_kept_entry_id=entry.first_kept_entry_id,
            tokens_before=entry.tokens_before,
            tokens_after=self._conversation.ledger.estimated_tokens,
            offline=summary.offline,
            details=entry.details,
        )
        return CompactionOutcome(order.reason, "completed", result=result)

    async def _run_after_hooks(self, result: CompactionResult) -> None:
        for text in await self._hooks.after(result, self._report):
            self._conversation.add_context(HOOK_CONTEXT, text)

    def _finish(self, order: _Order, outcome: CompactionOutcome, *, will_retry: bool = False) -> None:
        duration_ms = self._elapsed_ms(order)
        try:
            if not outcome.completed:
                self._conversation.note(ATTEMPT, self._attempt_record(order, outcome, duration_ms))
        finally:
            self._hub.emit(
                CompactionEnd(
                    reason=order.reason,
                    status=outcome.status,
                    result=outcome.result,
                    aborted=outcome.status == "interrupted",
                    will_retry=will_retry,
                    error_message=None if outcome.completed else outcome.message,
                    custom_instructions=order.instructions,
                    duration_ms=duration_ms,
                )
            )

    def _attempt_record(self, order: _Order, outcome: CompactionOutcome, duration_ms: int) -> dict[str, Json]:
        """What the log keeps of an attempt that did not complete."""
        return {
            "trigger": TRIGGERS[order.reason],
            "reason": order.reason,
            "phase": order.phase,
            "status": outcome.status,
            "message": outcome.message,
            "customInstructions": order.instructions,
            "tokensBefore": self._conversation.ledger.estimated_tokens,
            "durationMs": duration_ms,
        }

    def _preparation(self, order: _Order, planned: Plan) -> CompactionPreparation:
        return CompactionPreparation(
            reason=order.reason,
            trigger=TRIGGERS[order.reason],
            session_id=self._session_id,
            session_file=self._session_file,
            model=self._policy.model_name,
            instructions=order.instructions,
            tokens_before=planned.tokens_before,
            expected_tokens_after=planned.expected_tokens_after,
            messages_to_summarise=len(planned.to_summarise) + len(planned.turn_prefix),
            first_kept_entry_id=planned.first_kept_entry_id,
            is_split_turn=planned.is_split_turn,
        )

    def _report(self, sentence: str) -> None:
        self._hub.emit(WarningRaised(message=self._policy.redact(sentence)))

    def _elapsed_ms(self, order: _Order) -> int:
        return round((self._clock() - order.began) * 1000)
