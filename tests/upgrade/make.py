"""Writes the fixtures of a release, once: `python -m tests.upgrade.make v0_2`. What already exists stays as it is.

Logs are written by the code of the day; places and times of the machine are taken out of them. Beside each stands what
a session that opens it sends, in `expected`. Settings files, kernel specs and hook programs are written by hand.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import selfcompact as sc
from selfcompact.entries import BranchSummaryEntry, CompactionEntry
from selfcompact.log import read_live
from selfcompact.messages import text_of
from selfcompact.reports.statistics import session_figures
from selfcompact.session.kernel_state import snapshot_file
from tests.upgrade.build import as_json, copied, records, write_kept, write_long, write_provider
from tests.upgrade.names import names_of_code, names_of_records

DATA = Path(__file__).parents[1] / "data/upgrade"
WORKSPACE = "/workspace"
DAY = "2026-01-02T"
DAY_MS = 1_767_312_000_000


def scrubbed(value: Any, count: int, workspace: str) -> Any:
    """A record's value without this machine's places, times and durations; `count` tells the time."""
    if isinstance(value, dict):
        return {key: _moment(key, inner, count, workspace) for key, inner in value.items()}
    if isinstance(value, list):
        return [scrubbed(inner, count, workspace) for inner in value]
    return value.replace(workspace, WORKSPACE) if isinstance(value, str) else value


def _moment(key: str, value: Any, count: int, workspace: str) -> Any:
    if key == "timestamp":
        at = f"{DAY}{count // 3600:02}:{count // 60 % 60:02}:{count % 60:02}.000Z"
        return at if isinstance(value, str) else DAY_MS + 1000 * count
    if key in ("durationMs", "waitedMs"):
        return 5
    return scrubbed(value, count, workspace)


def write_scrubbed(source: Path, target: Path, workspace: str) -> None:
    """A copy of a log, and of what lies beside it."""
    lines = [
        json.dumps(scrubbed(record, count, workspace), ensure_ascii=False, separators=(",", ":"))
        for count, record in enumerate(records(source))
    ]
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if snapshot_file(source).exists():
        shutil.copy(snapshot_file(source), snapshot_file(target))
    for blob in source.with_name(f"{source.name}.blobs").glob("*"):
        folder = target.with_name(f"{target.name}.blobs")
        folder.mkdir(exist_ok=True)
        (folder / blob.name).write_bytes(blob.read_bytes())


def expected_message(message: sc.Message, summaries: list[str]) -> dict[str, Any]:
    """A message of the history; of one that carries a summary only the summary: the words around it are no promise."""
    told = next((summary for summary in summaries if summary in text_of(message)), None)
    return {"role": message.role, "holds": told} if told else as_json(message)


async def expected(log: Path, workspace: Path) -> dict[str, Any]:
    """What a session finds that opens a log; a torn record at its end is set aside by that."""
    async with sc.open_session(sc.ScriptedModel([]), workspace=workspace, session_file=log) as session:
        tree, history = await session.tree(), session.history
    live, figures = read_live(log).entries, session_figures(log)
    summaries = [entry.summary for entry in live if isinstance(entry, CompactionEntry | BranchSummaryEntry)]
    return {
        "name": tree.name,
        "labels": {node.id: node.label for node in tree.nodes.values() if node.label},
        "prompts": figures.prompts,
        "turns": figures.turns,
        "cells": figures.cells,
        "compactions": [compaction.reason for compaction in figures.compactions],
        "history": [expected_message(message, summaries) for message in history],
    }


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def of_this_machine(path: Path) -> bool:
    """Whether a file names places that are nowhere else."""
    return re.search(rb"/tmp/|/root|/home/(?!agent)|site-packages", path.read_bytes()) is not None


def main(release: str) -> None:
    """Write the logs of a release, what is expected of them, and the names."""
    target = DATA / release
    sessions = target / "sessions"
    if sessions.exists():
        sys.exit(f"{sessions} already exists, and is never written again")
    sessions.mkdir(parents=True)
    os.environ.setdefault("ANTHROPIC_API_KEY", "none")
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder).resolve() / "workspace"
        workspace.mkdir()
        written = []
        for name, write in (("kept", write_kept), ("long", write_long), ("provider", write_provider)):
            source = Path(folder) / f"{name}.jsonl"
            asyncio.run(write(source, workspace))
            written += records(source)
            write_scrubbed(source, sessions / source.name, str(workspace))
        torn = (sessions / "provider.jsonl").read_bytes()
        last = torn.rstrip(b"\n").rindex(b"\n") + 1
        (sessions / "torn.jsonl").write_bytes(torn[: last + (len(torn) - last) // 2])
        for log in sorted(sessions.glob("*.jsonl")):
            copy = copied(log, Path(folder) / "copies")
            write_json(target / f"expected/{log.stem}.json", asyncio.run(expected(copy, workspace)))
    write_json(target / "names.json", {**names_of_code(), **names_of_records(written)})
    if found := [str(path) for path in target.rglob("*") if path.is_file() and of_this_machine(path)]:
        sys.exit(f"these speak of this machine: {', '.join(found)}")


if __name__ == "__main__":
    main(sys.argv[1])
