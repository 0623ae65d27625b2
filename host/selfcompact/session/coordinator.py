"""The one owner of what decides about compactions: the waiting request, the program's own, the policy, the compactor.

A session's run asks it at each boundary, cells ask it in between, and the program puts its compactions here. Nothing of
it is part of what a program may call; that is `Session`.
"""

from __future__ import annotations

import anyio

from selfcompact.entries import Entry
from selfcompact.errors import ContextOverflow
from selfcompact.events import CompactionReason
from selfcompact.models.protocol import Model
from selfcompact.session.boundary import Compact, Decision
from selfcompact.session.compactor import CompactionOutcome, Compactor, Phase
from selfcompact.session.manual import ManualCompaction
from selfcompact.session.policy import SessionPolicy
from selfcompact.session.requests import PendingRequest, RequestSlot
from selfcompact.session.skill_end import SkillEnd
from selfcompact.session.state import SessionState
from selfcompact.session.status import ContextStatus


class Coordinator:
    """Serves one session. `boundary` methods are called by the task of the run, the others by any task of the loop;
    none of these awaits but those that carry out a compaction."""

    def __init__(
        self,
        *,
        policy: SessionPolicy,
        compactor: Compactor,
        slot: RequestSlot,
        skill: SkillEnd,
        state: SessionState,
    ) -> None:
        self.policy, self.skill = policy, skill
        self._compactor, self._slot, self._state = compactor, slot, state
        self._manual: ManualCompaction | None = None
        skill.serve(self)
        skill.switch(policy.settings.compaction.agent_callable)

    # What the program and the session ask

    @property
    def manual(self) -> ManualCompaction | None:
        """The compaction that the program asked for and that is not over."""
        return self._manual

    def wait_in_line(self, instructions: str | None) -> ManualCompaction:
        """Ask for a compaction at the next boundary, or join the one that waits already."""
        self._manual = self._manual or ManualCompaction(self._cleaned(instructions))
        return self._manual

    def _cleaned(self, instructions: str | None) -> str | None:
        """Instructions without secrets: they are told in events, kept in records, and sent to the summariser."""
        return None if instructions is None else self.policy.redact(instructions)

    def let_answer(self, model: Model) -> None:
        """Have another model answer from the next request on."""
        self.policy.next_model = model

    async def compact_now(self, instructions: str | None, scope: anyio.CancelScope) -> CompactionOutcome:
        """Compact an idle session in `scope`, which an abort cancels.

        Whoever came meanwhile gets the same outcome; when the caller itself is cancelled, they try again themselves.
        """
        instructions = self._cleaned(instructions)
        self._manual = ManualCompaction(instructions)
        went_away = True
        try:
            with scope:
                await self._compact("manual", instructions, "standalone")
            went_away = False
        finally:
            newest = self._compactor.newest
            self.settle_manual(None if went_away and not newest.completed else newest)
        return newest

    def settle_manual(self, outcome: CompactionOutcome | None) -> None:
        """Wake the callers of a manual compaction; without an outcome they try again themselves."""
        manual, self._manual = self._manual, None
        if manual is not None:
            manual.settle(outcome)

    async def summarise_branch(self, entries: list[Entry]) -> str | None:
        """What happened on a branch that is being left; None when nothing did."""
        return await self._compactor.summarise_branch(entries)

    def give_up_ahead(self) -> None:
        """Cancel the summary that is being written ahead of a boundary."""
        self._compactor.cancel_ahead()

    # What a run asks at a boundary (RunHost)

    def status(self) -> ContextStatus:
        """How full the context is."""
        return self.policy.status()

    def decide(self, overflow: ContextOverflow | None, *, wants_more: bool) -> Decision:
        """What to do at this boundary, by the settings as they are now."""
        agent_callable = self.policy.notice_settings()
        if agent_callable is not None:
            self.skill.switch(agent_callable)
        if self._manual is not None and self._manual.is_unwanted:
            self._manual = None
        manual = PendingRequest(self._manual.instructions) if self._manual else None
        return self.policy.decide(overflow, wants_more=wants_more, manual=manual)

    async def compact_at_boundary(self, decision: Compact, *, first: bool) -> CompactionOutcome:
        """Carry out a boundary's decision."""
        phase: Phase = "pre-turn" if first else "mid-turn"
        if decision.reason in ("requested", "overflow"):
            self._slot.clear()
        manual = self._manual if decision.reason == "manual" else None
        try:
            with self._state.within("compacting"), anyio.CancelScope() as scope:
                if manual is not None:
                    manual.scope = scope
                await self._compact(decision.reason, decision.instructions, phase, will_retry=decision.retry)
        finally:
            if manual is not None:
                self.settle_manual(self._compactor.newest)
        return self._compactor.newest

    async def prepare_request(self) -> None:
        """Put a model change that was asked for into effect; begin a summary that will be needed soon."""
        self.policy.take_next_model()
        if self.policy.threshold_is_near():
            self._compactor.begin_ahead(None)

    # What cells ask (SkillHost)

    def refusal(self, instructions: str | None) -> str | None:
        """Why a cell's request would not be accepted now; None when it would."""
        return self.policy.refusal(instructions)

    def pending_changed(self, pending: PendingRequest | None) -> None:
        """Begin the summary of a request that was accepted, or give up that of one that was dropped."""
        if pending is not None:
            self._compactor.begin_ahead(pending.instructions)
        else:
            self._compactor.cancel_ahead()

    async def _compact(
        self, reason: CompactionReason, instructions: str | None, phase: Phase, *, will_retry: bool = False
    ) -> None:
        """Run one compaction; how it ended is the compactor's `newest`, also when this is cancelled."""
        try:
            await self._compactor.run(reason, instructions, phase=phase, will_retry=will_retry)
        finally:
            if self._compactor.newest.completed:
                self._slot.clear()
