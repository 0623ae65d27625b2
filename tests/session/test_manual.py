"""A compaction that several callers wait for: it is theirs together, and stops with the last of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import anyio
import pytest

import selfcompact as sc
from selfcompact.session.compactor import CompactionOutcome
from selfcompact.session.manual import ManualCompaction
from selfcompact.settings.compaction import CompactionSettings
from tests.session.memory_kernel import SUMMARY, memory_session

COMPACTION = CompactionSettings(reserve_tokens=1_500, keep_recent_tokens=600, background=False)
DONE = CompactionOutcome("manual", "completed")


async def test_all_callers_get_the_one_outcome() -> None:
    manual = ManualCompaction("keep x")
    outcomes: list[CompactionOutcome | None] = []

    async def wait() -> None:
        outcomes.append(await manual.wait())

    seen = [manual.is_unwanted]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        seen.append(manual.is_unwanted)
        manual.settle(DONE)
    seen.append(manual.is_unwanted)
    assert seen == [True, False, False]
    assert outcomes == [DONE, DONE]
    assert await manual.wait() == DONE


@pytest.mark.parametrize("callers", [1, 2])
async def test_it_is_stopped_when_the_last_caller_went_away_and_not_before(callers: int) -> None:
    manual = ManualCompaction(None, scope=anyio.CancelScope())
    scopes = [anyio.CancelScope() for _ in range(callers)]
    assert manual.scope is not None

    async def wait(scope: anyio.CancelScope) -> None:
        with scope:
            await manual.wait()

    async with anyio.create_task_group() as tasks:
        for scope in scopes:
            tasks.start_soon(wait, scope)
        for left, scope in zip(range(callers - 1, -1, -1), scopes, strict=True):
            await anyio.wait_all_tasks_blocked()
            before = (manual.is_unwanted, manual.scope.cancel_called)
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            after = (manual.is_unwanted, manual.scope.cancel_called)
            assert [before, after] == [(False, False), (left == 0, left == 0)]


async def test_a_caller_that_goes_away_while_it_is_carried_out_takes_nothing_from_the_one_that_stays(
    tmp_path: Path,
) -> None:
    outcomes: list[CompactionOutcome] = []
    impatient = anyio.CancelScope()

    async def stay() -> None:
        outcomes.append(await session.compact("by hand"))

    async def go_away() -> None:
        with impatient:
            await session.compact("by another hand")

    async def before(_: sc.CompactionPreparation) -> None:
        impatient.cancel()
        await anyio.wait_all_tasks_blocked()

    def ask(_: object) -> sc.Step:
        tasks.start_soon(stay)
        tasks.start_soon(go_away)
        return sc.cell("wait 5")

    model = sc.ScriptedModel([*[sc.cell("fill")] * 3, ask, sc.say("ok")], context_window=6_000)
    async with (
        memory_session(
            tmp_path / "s.jsonl",
            model,
            summaries=itertools.repeat(SUMMARY),
            hooks=sc.Hooks(before_compact=[before]),
            compaction=COMPACTION,
        ) as session,
        anyio.create_task_group() as tasks,
    ):
        result = await session.prompt("go")
    assert impatient.cancelled_caught
    assert [(outcome.reason, outcome.status) for outcome in result.compactions] == [("manual", "completed")]
    assert outcomes == list(result.compactions)
