"""What a session's own work costs as its log grows: `session.status()`, a turn's boundary, the history; and how far the
token estimate is off.

Everything but the estimate is measured in sessions opened on a prepared log, with a kernel in its sandbox, through the
calls that a program makes.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

import selfcompact as sc
from benchmarks.corpus import corpus
from benchmarks.measure import median, options, spread, table
from benchmarks.sessions import WINDOW, boundary_times, compacted, entries, write
from benchmarks.tokeniser import o200k
from selfcompact.messages import Usage
from selfcompact.settings import LoadedSettings, load_settings
from selfcompact.text.tokens import ScriptAwareEstimator
from tests.chars_estimator import CharsEstimator

SIZES = (1_000, 10_000, 100_000, 300_000)
"""Entries in the log."""

EVERY = 1_000
"""Entries after which a session compacts that does so as it should."""

ENDLESS = 10**9
"""A window that no session here fills, for those that never compact."""

CALLS = 30
CELLS = 3
CAP = 100_000
"""A `maxCompactions` that nothing here reaches, so that only its check is measured."""


def _settings(workspace: Path, max_compactions: int | None) -> LoadedSettings:
    """The project's settings and nothing of whoever measures; a session reads them again when the file changes."""
    file = workspace / ".selfcompact" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"compaction": {"maxCompactions": max_compactions} if max_compactions else {}}))
    return load_settings(workspace, env={}, user_file=workspace / "none.json", home=workspace)


async def _measured(log: Path, workspace: Path, window: int, runs: int) -> Mapping[str, list[float]]:
    """Seconds of each call in a session that goes on with this log; a run is a pass through all of them."""
    usage = Usage(input=1_000, output=10)  # or the scripted model would count the whole history at each request
    turns = [*[sc.cell("1", usage=usage)] * CELLS, sc.say("done", usage=usage), sc.say("done", usage=usage)]
    model = sc.ScriptedModel(turns * runs, context_window=window)
    found: dict[str, list[float]] = defaultdict(list)
    settings = _settings(workspace, None)
    async with sc.open_session(model, workspace=workspace, session_file=log, settings=settings) as session:
        for _ in range(runs):
            _settings(workspace, None)
            with boundary_times() as boundaries:
                assert (await session.prompt("Go on.")).status == "done"
            found["boundary"].append(statistics.median(boundary.whole_s for boundary in boundaries))
            found["disk"].append(statistics.median(boundary.disk_s for boundary in boundaries))
            found["status"].append(median(session.status, CALLS))
            found["history"].append(median(lambda: session.history, 1))
            _settings(workspace, CAP)
            assert (await session.prompt("Go on.")).status == "done"
            assert session.settings.compaction.max_compactions == CAP
            found["capped status"].append(median(session.status, CALLS))
    return found


def _sessions(runs: int, sizes: Sequence[int], *, compacts: bool) -> None:
    rows = []
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        workspace = Path(folder) / "w"
        workspace.mkdir()
        for size in sizes:
            log = Path(folder) / "session.jsonl"
            write(log, compacted(size, EVERY) if compacts else entries(size))
            found = anyio.run(_measured, log, workspace, WINDOW if compacts else ENDLESS, runs)
            log.unlink()
            rows.append(
                (
                    f"{size:,}",
                    spread(found["status"], 3, 1e3),
                    spread(found["capped status"], 3, 1e3),
                    spread(found["boundary"], 1, 1e3),
                    spread(found["disk"], 1, 1e3),
                    spread(found["history"], 1, 1e3),
                )
            )
    heads = ("status()", "status() with maxCompactions", "boundary", "of it, the disk", "history")
    table(("entries", *(f"{head}, ms" for head in heads)), rows)


def _estimates() -> None:
    count, ours, chars = o200k(), ScriptAwareEstimator(), CharsEstimator()
    rows = []
    for name, text in corpus().items():
        real = count(text)
        errors = [estimate / real - 1 for estimate in (ours.text(text), chars.text(text))]
        rows.append((name, f"{real:,}", *(f"{error:+.1%}" for error in errors)))
    print("The estimate against the o200k tokeniser; the same at every run:\n")
    table(("text", "tokens", "ours", "characters / 4"), rows)


def main() -> None:
    """Print the tables; `--most N` leaves longer logs out."""
    chosen = options("engine", most=SIZES[-1])
    sizes = [size for size in SIZES if size <= chosen.most]
    print(
        f"Sessions opened on a log of this many entries; medians of {chosen.runs} passes, lowest and highest in "
        "brackets."
    )
    print(f"\nA session that compacted whenever {EVERY:,} entries had come together:\n")
    _sessions(chosen.runs, sizes, compacts=True)
    print("A session that never compacted:\n")
    _sessions(chosen.runs, sizes, compacts=False)
    _estimates()
