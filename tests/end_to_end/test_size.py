"""What a session costs as it grows: a compaction adds its summary to the log and nothing else."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import pytest

import selfcompact as sc
from selfcompact.compaction.planning.plan import Plan
from selfcompact.compaction.session_file import FilePlan, append_compaction, compact_planned, plan_file
from selfcompact.compaction.summary.summarisers import OfflineSummariser
from selfcompact.log import SessionLog
from selfcompact.settings.compaction import CompactionSettings
from tests.log.test_reading import say, write
from tests.session.memory_kernel import FILL, SUMMARY, memory_session

pytestmark = pytest.mark.slow  # each of these starts programs of its own, or waits


async def test_a_hundred_compactions_add_a_hundred_summaries_to_the_log(tmp_path: Path) -> None:
    """The replaced history is never written again, and the live context stays as small as it was."""
    path = tmp_path / "s.jsonl"
    steps = itertools.chain.from_iterable(
        [sc.cell("fill"), sc.cell("fill"), sc.cell("ask keep x"), sc.say("ok")] for _ in range(100)
    )
    model = sc.ScriptedModel(steps, context_window=8_000)
    compaction = CompactionSettings(reserve_tokens=2_000, keep_recent_tokens=500, background=False)
    sizes: list[int] = []
    async with memory_session(path, model, summaries=itertools.repeat(SUMMARY), compaction=compaction) as session:
        for number in range(100):
            result = await session.prompt(f"round {number}")
            assert [outcome.status for outcome in result.compactions] == ["completed"]
            sizes.append(path.stat().st_size)
    growth = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(growth) < 2 * len(FILL) + 12_000
    assert max(growth[-10:]) < 1.2 * max(growth[:10])
    with SessionLog.open(path, cwd=tmp_path) as log:
        assert log.live.bytes_read < 3 * max(growth)


async def test_compacting_a_large_file_needs_no_more_memory_than_its_live_part(tmp_path: Path) -> None:
    """Peak memory is bounded by what is summarised."""
    path = tmp_path / "s.jsonl"
    write(path, [say(n, f"e{n - 1}" if n else None, f"message {n}: " + "some words " * 100) for n in range(1_500)])
    size = path.stat().st_size
    settings = CompactionSettings(keep_recent_tokens=5_000)
    tracemalloc.start()
    try:
        planned: FilePlan = plan_file(path, settings, window=200_000)
        assert isinstance(planned.planned, Plan)
        done = await compact_planned(planned, planned.planned, OfflineSummariser(), secrets=())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    append_compaction(path, done)
    assert size > 1_500_000
    assert peak < 8 * size
    assert done.tokens_after < planned.ledger.estimated_tokens + 1
    assert path.stat().st_size - size < 200_000
