"""A summary that is begun when the cell asks is there when the turn ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import selfcompact as sc
from selfcompact import SummaryReply, SummaryRequest
from tests.session.memory_kernel import SUMMARY

from .helpers import fill

pytestmark = pytest.mark.slow  # each of these starts programs of its own, or waits

SUMMARISER_S, CELL_S = 0.6, 1.2


@dataclasses.dataclass
class SlowSummariser:
    """A real summariser in shape: it takes its time and answers in the form that is asked for."""

    name: str = "slow"
    context_window: int | None = 32_000
    max_output_tokens: int | None = None
    drops_thinking: bool = False
    asked: int = 0
    cancelled: int = 0

    async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
        self.asked += 1
        try:
            await anyio.sleep(SUMMARISER_S)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return SummaryReply(SUMMARY)


async def run(workspace: Path, log: Path, cell: str, *, background: bool) -> tuple[sc.RunResult, SlowSummariser]:
    summariser = SlowSummariser()
    model = sc.ScriptedModel([*fill(3), sc.cell(cell), sc.say("ok")], context_window=32_000)
    compaction = {"keepRecentTokens": 300, "reserveTokens": 4000, "background": background}
    settings = sc.Settings.model_validate({"compaction": compaction})
    async with sc.open_session(
        model, workspace=workspace, session_file=log, settings=settings, summariser=summariser
    ) as session:
        return await session.prompt("go"), summariser


def noted(result: sc.RunResult) -> dict[str, int]:
    (outcome,) = result.compactions
    assert outcome.result is not None
    assert outcome.result.details is not None
    ours = outcome.result.details["selfcompact"]
    assert isinstance(ours, dict)
    return ours


async def test_the_boundary_does_not_wait_for_a_summary_that_was_begun_in_time(tmp_path: Path) -> None:
    cell = f"import asyncio\nawait compact.run('keep x')\nawait asyncio.sleep({CELL_S})"
    ahead, _ = await run(tmp_path, Path(f"{tmp_path}-a.jsonl"), cell, background=True)
    after, _ = await run(tmp_path, Path(f"{tmp_path}-b.jsonl"), cell, background=False)
    assert noted(ahead)["writtenAhead"] is True
    assert noted(ahead)["waitedMs"] < 100
    assert noted(after)["writtenAhead"] is False
    assert noted(after)["waitedMs"] >= SUMMARISER_S * 900


async def test_newer_instructions_begin_the_summary_anew(tmp_path: Path) -> None:
    cell = "await compact.run('keep x')\nimport asyncio\nawait asyncio.sleep(0.1)\nawait compact.run('keep y')"
    result, summariser = await run(tmp_path, Path(f"{tmp_path}-s.jsonl"), cell, background=True)
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert (summariser.asked, summariser.cancelled) == (2, 1)


async def test_closing_cancels_what_was_begun(tmp_path: Path) -> None:
    summariser = SlowSummariser()
    model = sc.ScriptedModel([*fill(3), sc.cell("await compact.run()\nawait __import__('asyncio').sleep(60)")])
    settings = sc.Settings.model_validate({"compaction": {"keepRecentTokens": 300}})
    async with sc.open_session(
        model,
        workspace=tmp_path,
        session_file=f"{tmp_path}.jsonl",
        settings=settings,
        summariser=summariser,
    ) as session:
        stream = session.events()

        async def close_when_asked() -> None:
            async for event in stream:
                if event.type == "compaction_scheduled":
                    await anyio.sleep(0.05)
                    await session.close()
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close_when_asked)
            result = await session.prompt("go")
    assert result.status == "aborted"
    assert (summariser.asked, summariser.cancelled) == (1, 1)
    assert '"type":"compaction"' not in await anyio.Path(f"{tmp_path}.jsonl").read_text()
