"""Going back: another entry becomes the leaf, and the branch that was left is summarised when that is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from selfcompact.compaction.planning import budget
from selfcompact.compaction.planning.cut import Cut
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import plan_at
from selfcompact.compaction.summary.branch import branch_summary
from selfcompact.compaction.summary.summarisers import OfflineSummariser, Summariser
from selfcompact.entries import Entry, message_entry, message_of
from selfcompact.errors import CompactionError, ModelError
from selfcompact.log import read_live
from selfcompact.log.tree import path_to
from selfcompact.messages import user
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.text.secrets import Redactor

REWIND = "selfcompact.rewind"
"""The custom entry that makes an earlier entry the leaf without a summary."""


def left_behind(path: Path, leaf_id: str, entry_id: str) -> list[Entry]:
    """The live entries of the branch that ends at `leaf_id` which are not on the way to `entry_id`."""
    kept = set(path_to(path, entry_id))
    return [entry for entry in read_live(path, leaf_id=leaf_id).entries if entry.id not in kept]


async def summarise_branch(
    entries: Sequence[Entry],
    summariser: Summariser,
    settings: CompactionSettings,
    *,
    window: int | None,
    secrets: Sequence[str],
) -> str | None:
    """What happened in these entries, None when nothing was said in them.

    Raises:
        SummaryRejected, ModelError: the summariser failed, and there is no fallback.
    """
    messages = [message for entry in entries if (message := message_of(entry)) is not None]
    if not messages:
        return None
    if not isinstance(summariser, OfflineSummariser):
        try:
            return await branch_summary(messages, summariser, settings, secrets=secrets)
        except (CompactionError, ModelError):
            if not settings.offline_fallback:
                raise
    return offline_branch_summary(entries, settings, window=window, secrets=secrets)


def offline_branch_summary(
    entries: Sequence[Entry], settings: CompactionSettings, *, window: int | None, secrets: Sequence[str]
) -> str:
    """The same without a model: what a compaction of the whole branch would write."""
    ledger = Ledger(entries)
    ledger.append(message_entry(user("(the branch ends here)", synthetic=True), None))
    planned = plan_at(ledger, Cut(len(ledger.entries) - 1), settings, window)
    limit = budget.summary_tokens(settings.reserve_tokens, window)
    return OfflineSummariser().write(planned, limit, Redactor(secrets))
