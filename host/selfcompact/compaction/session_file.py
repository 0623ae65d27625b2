"""Compacting a session file that no session has open: for the command line, and for programs that keep archives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from selfcompact.compaction.commit import compaction_entry
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, Skip
from selfcompact.compaction.planning.planner import Planner
from selfcompact.compaction.style.loading import style_of
from selfcompact.compaction.summary.summarise import Summary, summarise
from selfcompact.compaction.summary.summarisers import Summariser
from selfcompact.details import CompactionDetails
from selfcompact.entries import CompactionEntry
from selfcompact.log import SessionLog, read_live
from selfcompact.settings.compaction import CompactionSettings, settings_for_window
from selfcompact.text.secrets import Redactor, secret_values


@dataclass(frozen=True)
class FilePlan:
    """What a compaction of a file would do, or why there is nothing to do."""

    path: Path
    settings: CompactionSettings
    window: int | None
    ledger: Ledger
    planned: Plan | Skip


@dataclass(frozen=True)
class FileCompaction:
    """A compaction of a file, made and not yet written. `tokens_after` is the size of the new context."""

    plan: Plan
    summary: Summary
    entry: CompactionEntry
    tokens_after: int


def plan_file(
    path: Path, settings: CompactionSettings, *, window: int | None = None, instructions: str | None = None
) -> FilePlan:
    """What a compaction of this session file would do. Nothing is written.

    Raises:
        SessionFileError: the file cannot be read or is not a session file of our version.
        SettingsError: a setting does not fit the window, or names a style that is not there.
    """
    style_of(settings)  # a style that is not there is an error also when there is nothing to do
    fitting = settings_for_window(settings, window)
    ledger = Ledger(read_live(path).entries)
    redact = Redactor(secret_values(os.environ))
    planned = Planner(redact).plan(ledger, fitting, window, instructions=instructions)
    return FilePlan(path, fitting, window, ledger, planned)


async def compact_planned(
    file_plan: FilePlan, planned: Plan, summariser: Summariser, *, secrets: Sequence[str] | None = None
) -> FileCompaction:
    """Write the summary of a plan. The file is not changed; `append_compaction` does that.

    Raises:
        SummaryRejected, ModelError: the summariser failed, and there is no fallback.
        NotBeneficial: the new context would not be smaller.
    """
    secrets = secret_values(os.environ) if secrets is None else secrets
    summary = await summarise(planned, summariser, file_plan.settings, window=file_plan.window, secrets=secrets)
    leaf = file_plan.ledger.entries[-1].id
    entry = compaction_entry(
        planned, summary, parent_id=leaf, reason="manual", secrets=secrets, noted=CompactionDetails(phase="standalone")
    )
    file_plan.ledger.append(entry)
    return FileCompaction(planned, summary, entry, file_plan.ledger.estimated_tokens)


def append_compaction(path: Path, done: FileCompaction) -> None:
    """Append a compaction to a session file whose newest entry is still the one it was planned for.

    Raises:
        SessionFileError: the file cannot be written, or is open in a session.
    """
    with SessionLog.open(path, cwd=path.parent) as log:
        log.append(done.entry)
