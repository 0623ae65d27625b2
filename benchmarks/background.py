"""How long a turn boundary takes that compacts, inside a session: with the summary written at the boundary, and begun
when a cell asked for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio

import selfcompact as sc
from benchmarks.measure import options, spread, table
from benchmarks.sessions import WINDOW, boundary_times, entries, write
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.compaction.summary.summarisers import SummaryReply
from selfcompact.details import KEY
from selfcompact.settings.compaction import CompactionSettings

SUMMARISER_S, CELL_S = 2.0, 3.0
"""A summariser of this speed, and a cell that runs this long after it asked."""

ENTRIES = 1_000

SUMMARY = (
    "## Goal\nLook at every module.\n\n## Progress\n### Done\n- [x] Looked at the first ones, and found no problems in "
    "any of them.\n\n## Next Steps\n1. Look at the next module, then at those after it; write the report at the end."
)
PREFIX = "## Original Request\nLook on.\n\n## Early Progress\n- Looked at some.\n\n## Context for Suffix\n- None."

CELL = f"""
import asyncio
print(await compact.run("keep the names of the modules"))
await asyncio.sleep({CELL_S})
"""


class _Slow:
    """A summariser that takes its time."""

    name, context_window, max_output_tokens, drops_thinking = "slow", None, None, False

    async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
        await anyio.sleep(SUMMARISER_S)
        text = PREFIX if "beginning of a turn" in request.prompt else SUMMARY
        if on_text is not None:
            on_text(len(text))
        return SummaryReply(text)


async def _boundary(ahead: bool) -> tuple[float, float]:
    """Seconds that the compacting boundary took, and those of them that it waited for the summary."""
    model = sc.ScriptedModel([sc.cell(CELL), sc.say("done")], context_window=WINDOW)
    settings = sc.Settings(compaction=CompactionSettings(background=ahead))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        workspace, log = Path(folder) / "w", Path(folder) / "session.jsonl"
        workspace.mkdir()
        write(log, entries(ENTRIES))
        async with sc.open_session(
            model, workspace=workspace, session_file=log, settings=settings, summariser=_Slow()
        ) as session:
            with boundary_times() as boundaries:
                result = await session.prompt("Go on.")
    (outcome,) = result.compactions
    assert outcome.reason == "requested"
    assert outcome.result is not None, outcome.message
    noted = (outcome.result.details or {})[KEY]
    assert isinstance(noted, Mapping)
    waited_ms = noted["waitedMs"]
    assert isinstance(waited_ms, int)
    return max(boundary.whole_s for boundary in boundaries), waited_ms / 1e3


def main() -> None:
    """Print both waits."""
    runs = options("background").runs
    print(
        f"A session of {ENTRIES:,} entries, a summariser that takes {SUMMARISER_S:g} s, a cell that runs {CELL_S:g} s "
        f"after it asked; medians of {runs} runs in turns, lowest and highest in brackets.\n"
    )
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(runs):
        for ahead, times in found.items():
            times.append(anyio.run(_boundary, ahead))
    rows = []
    for ahead, times in found.items():
        whole, waited = zip(*times, strict=True)
        rows.append(("on" if ahead else "off", spread(whole, 0, 1e3), spread(waited, 0, 1e3)))
    table(("background", "the boundary, ms", "of it, waiting for the summary, ms"), rows)
