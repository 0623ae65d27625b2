"""A summary written ahead, so that the turn boundary need not wait for it.

When a compaction is asked for in the middle of a turn, the oldest part of the history is already certain to be
summarised: whatever comes later only moves the cut towards the end. So its summary is begun at once. At the boundary
there are three cases: the cut made then still serves (the tail grew a little), and the finished text is taken; the
tail grew much, and the text is extended by what lies between the two cuts; or instructions or the history itself
changed, and it is begun anew. Only the boundary commits; until then nothing is written anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup

from selfcompact.compaction.planning import budget
from selfcompact.compaction.planning.cut import Cut
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, Skip, plan_at
from selfcompact.compaction.planning.planner import Planner
from selfcompact.compaction.planning.rebuild import USER_MESSAGES
from selfcompact.compaction.summary.fold import Progress, Tally
from selfcompact.compaction.summary.retry import Sleep
from selfcompact.compaction.summary.summarise import Summary, summarise
from selfcompact.compaction.summary.summarisers import OfflineSummariser, Summariser
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.text.secrets import Redactor

TAIL_SLACK = 1.5
"""How far the tail may have grown over its setting for an earlier cut to serve still."""


@dataclass(frozen=True)
class Prepared:
    """What a boundary commits. `ahead`: the text was begun before; `waited_s`: how long the boundary stood still."""

    plan: Plan
    summary: Summary
    ahead: bool
    waited_s: float


@dataclass(eq=False)
class _Draft:
    """One summary under way. Its own task writes `summary` or `failure`, then sets `done`."""

    plan: Plan
    tally: Tally = field(default_factory=Tally)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    summary: Summary | None = None
    failure: Exception | None = None


class Background:
    """The summary of one session that is being written ahead; at most one at a time.

    Owned by the session's task, which gives its task group to `start`. Closing the task group cancels what runs.
    """

    def __init__(
        self,
        summariser: Summariser,
        settings: CompactionSettings,
        *,
        window: int | None,
        secrets: Sequence[str] = (),
        sleep: Sleep | None = None,
        planner: Planner | None = None,
    ) -> None:
        self._summariser, self._settings = summariser, settings
        self._window, self._secrets, self._sleep = window, secrets, sleep
        self._redact = Redactor(secrets)
        self._planner = planner or Planner(self._redact)
        self._draft: _Draft | None = None
        self._wasted = Tally()

    def start(self, group: TaskGroup, ledger: Ledger, *, instructions: str | None = None) -> bool:
        """Begin writing what is certain to be summarised; says whether one is under way now. Never waits.

        One that is under way with the same instructions goes on; with others it is cancelled and begun anew. Nothing
        happens when the setting is off, when there is nothing to summarise, or when no model is asked.
        """
        if not self._settings.background or isinstance(self._summariser, OfflineSummariser):
            return False
        planned = self._planner.plan(ledger, self._settings, self._window, instructions=instructions)
        if isinstance(planned, Skip):
            self.cancel()
            return False
        if self._draft is not None and _fit(self._draft.plan, planned, ledger) is not None:
            return True
        self.cancel()
        self._draft = _Draft(planned)
        group.start_soon(self._write, self._draft)
        return True

    def cancel(self) -> None:
        """Give up what is under way or finished. What it cost is reported with the next summary."""
        draft, self._draft = self._draft, None
        if draft is not None:
            draft.scope.cancel()
            self._wasted.take(draft.tally)

    async def finish(
        self,
        ledger: Ledger,
        *,
        instructions: str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Prepared | Skip:
        """The plan and the summary for a commit now. Takes what was written ahead as far as it fits.

        Cancelling it cancels what is under way. What was written ahead is used up either way.

        Raises:
            SummaryRejected: the replies broke the contract, and there is no fallback.
            ModelError: the provider failed, and there is no fallback.
        """
        began = time.monotonic()
        planned = self._planner.plan(ledger, self._settings, self._window, instructions=instructions)
        if isinstance(planned, Skip):
            self.cancel()
            return planned
        try:
            final, summary, ahead = await self._prepared(planned, ledger, on_progress)
        finally:
            self.cancel()
        summary = self._with_wasted(summary)
        return Prepared(final, summary, ahead, time.monotonic() - began)

    async def _prepared(
        self, planned: Plan, ledger: Ledger, on_progress: Callable[[Progress], None] | None
    ) -> tuple[Plan, Summary, bool]:
        draft = self._draft
        start = None if draft is None else _fit(draft.plan, planned, ledger)
        if draft is None or start is None:
            return planned, await self._summarise(planned, on_progress, Tally()), False
        await draft.done.wait()
        if draft.failure is not None:
            raise draft.failure
        written = draft.summary
        if written is None or written.offline:
            # The model failed when it was asked ahead; now it is asked for the whole, as if nothing had been begun.
            return planned, await self._summarise(planned, on_progress, Tally()), False
        keep = budget.effective_keep_recent_tokens(self._settings, self._window)
        if planned.rebuild != USER_MESSAGES and ledger.scaled(ledger.path.context_tokens(start)) <= keep * TAIL_SLACK:
            self._draft = None
            cut = Cut(start, ledger.path.turn_start_before(start) if draft.plan.is_split_turn else None)
            settled = plan_at(
                ledger, cut, self._settings, self._window, instructions=planned.instructions, redact=self._redact
            )
            return settled, written, True
        rest = _rest(planned, written.text, ledger, start)
        if rest is None:
            self._draft = None
            return planned, written, True
        extended = await self._summarise(rest, on_progress, draft.tally)
        self._draft = None
        return planned, extended, True

    async def _summarise(self, planned: Plan, on_progress: Callable[[Progress], None] | None, tally: Tally) -> Summary:
        return await summarise(
            planned,
            self._summariser,
            self._settings,
            window=self._window,
            on_progress=on_progress,
            secrets=self._secrets,
            sleep=self._sleep,
            tally=tally,
        )

    async def _write(self, draft: _Draft) -> None:
        with draft.scope:
            try:
                draft.summary = await self._summarise(draft.plan, None, draft.tally)
            except Exception as error:  # noqa: BLE001 - raised again where the summary is waited for
                draft.failure = error
        draft.done.set()

    def _with_wasted(self, summary: Summary) -> Summary:
        """The summary with the cost of what was begun and given up before it."""
        if self._wasted.requests:
            wasted, self._wasted = self._wasted, Tally()
            wasted.add(summary.usage)
            requests = wasted.requests - 1 + summary.requests
            summary = replace(summary, usage=wasted.usage, requests=requests)
        return summary


def _fit(draft: Plan, planned: Plan, ledger: Ledger) -> int | None:
    """Where the part that the draft summarises ends on the live path; None when the draft is of no use any more.

    It is of use when the instructions, the style and the summary before it are the same and its end is not after
    the new plan's end: what it summarises leaves the context in any case.
    """
    if (draft.instructions, draft.style, draft.compaction_id) != (
        planned.instructions,
        planned.style,
        planned.compaction_id,
    ):
        return None
    path = ledger.path
    end = len(draft.removed.entries) if not draft.first_kept_entry_id else path.position_of(draft.first_kept_entry_id)
    limit = path.position_of(planned.first_kept_entry_id) if planned.first_kept_entry_id else len(path)
    return end if end is not None and limit is not None and end <= limit else None


def _rest(planned: Plan, written: str, ledger: Ledger, start: int) -> Plan | None:
    """The plan for what lies between the draft's end and the new cut, with the draft as its previous summary."""
    path = ledger.path
    stop = path.position_of(planned.first_kept_entry_id) if planned.first_kept_entry_id else len(path)
    if stop is None or path.message_count(start, stop) == 0:
        return None
    return replace(
        planned,
        to_summarise=path.span(start, stop),
        turn_prefix=path.span(stop, stop),
        is_split_turn=False,
        previous_summary=written,
    )
