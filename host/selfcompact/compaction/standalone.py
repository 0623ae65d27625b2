"""A compaction of any log of entries, without a session: what the command line and other programs use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from selfcompact.compaction.commit import compaction_entry
from selfcompact.compaction.ledger import Ledger
from selfcompact.compaction.plan import Plan, Skip, plan
from selfcompact.compaction.settings import CompactionSettings
from selfcompact.compaction.summarise import Progress, Summary, summarise
from selfcompact.compaction.summarisers import Summariser
from selfcompact.entries import CompactionEntry, Entry


@dataclass(frozen=True)
class Compacted:
    """What was planned and written, and the entry to append. Nothing was appended."""

    plan: Plan
    summary: Summary
    entry: CompactionEntry


def live_entries(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The part of a path that the context is made of: from the newest compaction's first kept entry on."""
    newest = next((i for i in range(len(entries) - 1, -1, -1) if isinstance(entries[i], CompactionEntry)), None)
    if newest is None:
        return entries
    compaction = entries[newest]
    assert isinstance(compaction, CompactionEntry)
    kept = compaction.first_kept_entry_id
    return entries[next((i for i in range(newest, -1, -1) if entries[i].id == kept), newest) :]


def plan_log(
    entries: Sequence[Entry], settings: CompactionSettings, window: int | None, *, instructions: str | None = None
) -> Plan | Skip:
    """What compacting this path would do: the dry run."""
    return plan(Ledger(live_entries(entries)), settings, window, instructions=instructions)


async def compact_log(
    entries: Sequence[Entry],
    settings: CompactionSettings,
    summariser: Summariser,
    *,
    window: int | None,
    instructions: str | None = None,
    secrets: Sequence[str] = (),
    on_progress: Callable[[Progress], None] | None = None,
) -> Compacted | Skip:
    """Plan, summarise, and make the entry for a path of entries, oldest first. Changes nothing.

    Raises:
        NotBeneficial: the new context would not be smaller.
        SummaryRejected: the replies broke the contract, and there is no fallback.
        ModelError: the provider failed, and there is no fallback.
    """
    planned = plan_log(entries, settings, window, instructions=instructions)
    if isinstance(planned, Skip):
        return planned
    summary = await summarise(planned, summariser, settings, window=window, secrets=secrets, on_progress=on_progress)
    entry = compaction_entry(planned, summary, parent_id=entries[-1].id, reason="manual", secrets=secrets)
    return Compacted(planned, summary, entry)
