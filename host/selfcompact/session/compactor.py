"""One compaction, from the plan to the appended record.

Until the record is appended the old history holds; afterwards the new one does. The append is the last step and
does not await, so a cancellation leaves one of the two and never a third. What the state of the kernel is gets
asked just before, of the kernel itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from selfcompact.compaction.commit import compaction_entry
from selfcompact.compaction.plan import Plan, Skip, plan
from selfcompact.compaction.settings import CompactionSettings
from selfcompact.compaction.summarise import Summariser, Summary, summarise
from selfcompact.errors import CompactionError, ModelError, SessionFileError
from selfcompact.events import CompactionEnd, CompactionReason, CompactionResult, CompactionStart, CompactionStatus
from selfcompact.session.conversation import Conversation
from selfcompact.session.stream import EventHub

ATTEMPT = "selfcompact.attempt"
"""The custom entry that records an attempt which did not complete. A completed one is its own record."""

Failure = CompactionError | ModelError | SessionFileError


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


class Compactor:
    """Runs compactions for one session, one at a time; the caller holds the session's history lock."""

    def __init__(
        self,
        conversation: Conversation,
        settings: CompactionSettings,
        summariser: Summariser,
        *,
        window: int | None,
        hub: EventHub,
        manifest: Callable[[], Awaitable[str | None]],
        secrets: Sequence[str] = (),
    ) -> None:
        self._conversation, self._settings, self._summariser = conversation, settings, summariser
        self._window, self._hub, self._manifest, self._secrets = window, hub, manifest, secrets

    def plan(self, instructions: str | None = None) -> Plan | Skip:
        """What a compaction would do now. Asking costs the same however old the session is."""
        return plan(self._conversation.ledger, self._settings, self._window, instructions=instructions)

    async def run(
        self, reason: CompactionReason, instructions: str | None = None, *, will_retry: bool = False
    ) -> CompactionOutcome:
        """Compact, and tell how it went. Never raises for a failure; a cancellation passes through after its event.

        `will_retry` says that the caller sends a failed request again when the compaction completes.
        """
        began = time.monotonic()
        self._hub.emit(CompactionStart(reason=reason, custom_instructions=instructions))
        try:
            outcome = await self._attempt(reason, instructions)
        except anyio.get_cancelled_exc_class():
            outcome = CompactionOutcome(reason, "interrupted", message="the compaction was cancelled")
            self._finish(outcome, instructions, began, will_retry=False)
            raise
        self._finish(outcome, instructions, began, will_retry=will_retry and outcome.completed)
        return outcome

    async def _attempt(self, reason: CompactionReason, instructions: str | None) -> CompactionOutcome:
        planned = self.plan(instructions)
        if isinstance(planned, Skip):
            return CompactionOutcome(reason, "skipped", message=planned.reason)
        try:
            summary = await summarise(
                planned, self._summariser, self._settings, window=self._window, secrets=self._secrets
            )
            return self._commit(reason, planned, summary, await self._manifest())
        except (CompactionError, ModelError, SessionFileError) as error:
            return CompactionOutcome(reason, "failed", message=str(error), error=error)

    def _commit(
        self, reason: CompactionReason, planned: Plan, summary: Summary, manifest: str | None
    ) -> CompactionOutcome:
        entry = compaction_entry(
            planned,
            summary,
            entry_id=self._conversation.new_id(),
            parent_id=self._conversation.leaf_id,
            manifest_text=manifest,
            reason=reason,
        )
        self._conversation.append(entry)
        self._conversation.sync()
        result = CompactionResult(
            summary=entry.summary,
            first_kept_entry_id=entry.first_kept_entry_id,
            tokens_before=entry.tokens_before,
            tokens_after=self._conversation.ledger.estimated_tokens,
            offline=summary.offline,
            details=entry.details,
        )
        return CompactionOutcome(reason, "completed", result=result)

    def _finish(self, outcome: CompactionOutcome, instructions: str | None, began: float, *, will_retry: bool) -> None:
        duration_ms = round((time.monotonic() - began) * 1000)
        if not outcome.completed:
            self._conversation.note(
                ATTEMPT,
                {
                    "reason": outcome.reason,
                    "status": outcome.status,
                    "message": outcome.message,
                    "customInstructions": instructions,
                    "tokensBefore": self._conversation.ledger.estimated_tokens,
                    "durationMs": duration_ms,
                },
            )
        self._hub.emit(
            CompactionEnd(
                reason=outcome.reason,
                status=outcome.status,
                result=outcome.result,
                aborted=outcome.status == "interrupted",
                will_retry=will_retry,
                error_message=None if outcome.completed else outcome.message,
                custom_instructions=instructions,
                duration_ms=duration_ms,
            )
        )
