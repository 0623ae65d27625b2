"""A program's own compactions: cancelling the call cancels the compaction, and nothing else. Real kernel, real log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

import selfcompact as sc

from .conftest import OpenSession
from .helpers import fill, of_type

ASK_AND_WAIT = """
import asyncio, pathlib
await compact.run('by the agent')
while not pathlib.Path('go-on').exists():
    await asyncio.sleep(0.01)
"""
"""A cell that asks, and ends when the program says so."""


async def when_scheduled(session: sc.Session, stream: sc.EventStream, act: Callable[[], Awaitable[None]]) -> None:
    """Act once while the cell waits, then let it end."""
    async for event in stream:
        if event.type == "compaction_scheduled":
            await act()
            (session.workspace / "go-on").touch()
            return


async def test_a_cancelled_manual_compaction_does_not_run_and_the_agents_request_does(opened: OpenSession) -> None:
    """The caller went away before the boundary came."""
    async with opened([*fill(), sc.cell(ASK_AND_WAIT), sc.say("ok")]) as session:
        stream = session.events()

        async def ask_and_go_away() -> None:
            with anyio.move_on_after(0.05):
                await session.compact("by hand")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(when_scheduled, session, session.events(), ask_and_go_away)
            result = await session.prompt("go")
        starts = of_type(stream.pending(), "compaction_start")
    assert [(start.reason, start.custom_instructions) for start in starts] == [("requested", "by the agent")]
    assert [outcome.status for outcome in result.compactions] == ["completed"]


@pytest.mark.timeout(20)  # a run that nobody wakes must not cost a minute
async def test_a_manual_compaction_is_carried_out_while_one_of_its_callers_still_waits(opened: OpenSession) -> None:
    outcomes: list[sc.CompactionOutcome] = []
    async with opened([*fill(), sc.cell(ASK_AND_WAIT), sc.say("ok")]) as session:

        async def stay() -> None:
            outcomes.append(await session.compact("by hand"))

        async with anyio.create_task_group() as tasks:

            async def one_stays_one_goes() -> None:
                tasks.start_soon(stay)
                with anyio.move_on_after(0.05):
                    await session.compact("by another hand")

            tasks.start_soon(when_scheduled, session, session.events(), one_stays_one_goes)
            result = await session.prompt("go")
    assert [(outcome.reason, outcome.status) for outcome in result.compactions] == [("manual", "completed")]
    assert [outcome.status for outcome in outcomes] == ["completed"]


async def test_a_manual_compaction_that_is_cancelled_while_it_runs_leaves_the_history_and_the_request(
    opened: OpenSession,
) -> None:
    """The run is not aborted: its own compaction comes next."""
    began = anyio.Event()

    async def hold(preparation: sc.CompactionPreparation) -> None:
        if preparation.reason == "manual":
            began.set()
            await anyio.sleep_forever()

    hooks = sc.Hooks(before_compact=[hold])
    async with opened([*fill(), sc.cell(ASK_AND_WAIT), sc.cell("1"), sc.say("ok")], hooks=hooks) as session:
        stream = session.events()
        async with anyio.create_task_group() as tasks:

            async def ask_until_it_runs() -> None:
                with anyio.CancelScope() as scope:

                    async def cancel_when_it_runs() -> None:
                        await began.wait()
                        scope.cancel()

                    tasks.start_soon(cancel_when_it_runs)
                    await session.compact("by hand")

            async def begin() -> None:
                tasks.start_soon(ask_until_it_runs)
                await anyio.wait_all_tasks_blocked()

            tasks.start_soon(when_scheduled, session, session.events(), begin)
            result = await session.prompt("go")
        ends = of_type(stream.pending(), "compaction_end")
    assert result.status == "done"
    assert [(end.reason, end.status, end.custom_instructions) for end in ends] == [
        ("manual", "interrupted", "by hand"),
        ("requested", "completed", "by the agent"),
    ]
    assert [outcome.status for outcome in result.compactions] == ["interrupted", "completed"]


async def test_when_the_caller_of_an_idle_sessions_compaction_goes_away_the_next_caller_gets_one(
    opened: OpenSession,
) -> None:
    """Whoever still waits did not cancel anything."""
    held = anyio.Event()
    first = True

    async def hold_the_first(_: sc.CompactionPreparation) -> None:
        nonlocal first
        if first:
            first = False
            held.set()
            await anyio.sleep_forever()

    outcomes: list[sc.CompactionOutcome] = []
    async with opened([*fill(3), sc.say("ok")], hooks=sc.Hooks(before_compact=[hold_the_first])) as session:
        await session.prompt("go")
        stream = session.events()

        async def second() -> None:
            await held.wait()
            tasks.start_soon(cancel_first)
            outcomes.append(await session.compact("second"))

        async def cancel_first() -> None:
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second)
            with anyio.CancelScope() as scope:
                await session.compact("first")
        ends = of_type(stream.pending(), "compaction_end")
        assert session.state == "idle"
    assert [(end.status, end.custom_instructions) for end in ends] == [
        ("interrupted", "first"),
        ("completed", "second"),
    ]
    assert [outcome.status for outcome in outcomes] == ["completed"]


async def test_a_hook_after_the_commit_that_is_cancelled_leaves_a_compaction_that_is_told_as_completed(
    opened: OpenSession,
) -> None:
    """Every compaction_start has its end, and the end tells what is in the log."""
    committed = anyio.Event()

    async def hang(_: sc.events.CompactionResult) -> None:
        committed.set()
        await anyio.sleep_forever()

    hooks = sc.Hooks(after_compact=[hang])
    async with opened([*fill(), sc.cell("await compact.run()"), sc.say("never")], hooks=hooks) as session:
        stream = session.events()

        async def abort() -> None:
            await committed.wait()
            await session.abort()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort)
            result = await session.prompt("go")
        (end,) = of_type(stream.pending(), "compaction_end")
        log = session.session_file.read_text()
    assert result.status == "aborted"
    assert (end.status, end.aborted) == ("completed", False)
    assert log.count('"type":"compaction"') == 1
    assert "selfcompact.attempt" not in log
