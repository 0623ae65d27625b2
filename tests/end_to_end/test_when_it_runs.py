"""When a compaction runs, and what comes after it. Real kernel, real sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

import selfcompact as sc
from selfcompact.messages import Usage
from selfcompact.models.scripted import StepSource

from .conftest import OpenSession
from .helpers import FILL, fill, history_text, of_type, outputs


async def test_a_requested_compaction_runs_at_the_boundary_and_the_run_goes_on(opened: OpenSession) -> None:
    """After the cell's result is in the history, before the next model request."""
    steps = [
        *fill(),
        sc.cell("treasure = [3, 1, 4]\nawait compact.run('keep `treasure`')\nprint('still the same cell')"),
        sc.cell("print(treasure)"),
        sc.say("done"),
    ]
    async with opened(steps) as session:
        stream = session.events()
        result = await session.prompt("go")
        kinds = [event.type for event in stream.pending()]
    assert result.status == "done"
    assert outputs(result)[-2:] == ["still the same cell", "[3, 1, 4]"]
    start = kinds.index("compaction_start")
    assert kinds[start - 1] == "turn_end"
    assert kinds[start : start + 3] == ["compaction_start", "compaction_end", "turn_start"]
    assert kinds.count("agent_end") == 1
    (outcome,) = result.compactions
    assert (outcome.reason, outcome.status) == ("requested", "completed")
    assert outcome.result is not None
    assert outcome.result.tokens_after < outcome.result.tokens_before


async def test_with_compaction_disabled_a_request_still_runs_and_the_threshold_does_not(opened: OpenSession) -> None:
    full = Usage(input=29_000, output=500)
    steps = [*fill(), sc.cell(FILL, usage=full), sc.cell("await compact.run()"), sc.say("ok")]
    async with opened(steps, enabled=False) as session:
        result = await session.prompt("go")
    assert [outcome.reason for outcome in result.compactions] == ["requested"]


async def test_the_threshold_fires_above_window_minus_reserve_and_not_from_older_usage(opened: OpenSession) -> None:
    """The usage reported before the compaction is never used again."""
    steps = [*fill(), sc.cell(FILL, usage=Usage(input=28_500, output=100)), sc.cell("1"), sc.cell("2"), sc.say("ok")]
    async with opened(steps) as session:
        result = await session.prompt("go")
    assert result.status == "done"
    assert [outcome.reason for outcome in result.compactions] == ["threshold"]


async def test_an_aborted_turn_drops_the_request_and_writes_no_compaction(opened: OpenSession) -> None:
    code = "import asyncio\nawait compact.run('x')\nprint('asked', flush=True)\nawait asyncio.sleep(60)"
    async with opened([*fill(), sc.cell(code), sc.say("again")]) as session:
        stream = session.events()

        async def abort_when_asked() -> None:
            async for event in stream:
                if event.type == "compaction_scheduled":
                    await session.abort()
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort_when_asked)
            result = await session.prompt("go")
        assert result.status == "aborted"
        (dropped,) = of_type(stream.pending(), "request_dropped")
        assert "aborted" in dropped.cause
        assert session.status().scheduled is False
        assert '"type":"compaction"' not in session.session_file.read_text()
        again = await session.prompt("and on")
    assert (again.status, again.text) == ("done", "again")


def overflow_once_asked(workspace: Path, streams: Sequence[sc.EventStream]) -> list[StepSource]:
    """A cell whose task asks during the next model request, and that request, which overflows once the first stream
    has told of the asking."""
    code = """
import asyncio, pathlib
async def ask_later():
    while not pathlib.Path('ask').exists():
        await asyncio.sleep(0.01)
    await compact.run('keep `treasure`')
task = asyncio.create_task(ask_later())
"""

    async def overflow(_messages: Sequence[sc.Message]) -> sc.Step:
        (workspace / "ask").touch()
        async for event in streams[0]:
            if event.type == "compaction_scheduled":
                break
        return sc.overflow("too long")

    return [sc.cell(code), overflow]


async def test_an_overflow_uses_the_request_and_retries_once(opened: OpenSession, workspace: Path) -> None:
    streams: list[sc.EventStream] = []
    steps = [*fill(), *overflow_once_asked(workspace, streams), sc.say("fits now")]
    async with opened(steps) as session:
        streams.append(session.events())
        stream = session.events()
        result = await session.prompt("go")
        events = stream.pending()
    assert (result.status, result.text) == ("done", "fits now")
    (outcome,) = result.compactions
    assert (outcome.reason, outcome.status) == ("overflow", "completed")
    (start,) = of_type(events, "compaction_start")
    (end,) = of_type(events, "compaction_end")
    assert start.custom_instructions == "keep `treasure`"
    assert end.will_retry is True
    assert session.status().scheduled is False


async def test_a_request_that_a_vetoed_overflow_used_is_not_told_as_dropped(
    opened: OpenSession, workspace: Path
) -> None:
    streams: list[sc.EventStream] = []

    async def veto(_: sc.CompactionPreparation) -> sc.Veto:
        return sc.Veto("not now")

    steps = [*fill(), *overflow_once_asked(workspace, streams), sc.say("never")]
    async with opened(steps, hooks=sc.Hooks(before_compact=[veto])) as session:
        streams.append(session.events())
        stream = session.events()
        result = await session.prompt("go")
        kinds = [event.type for event in stream.pending()]
    assert result.status == "failed"
    assert [(outcome.reason, outcome.status) for outcome in result.compactions] == [("overflow", "vetoed")]
    assert "compaction_scheduled" in kinds
    assert "request_dropped" not in kinds


async def test_a_second_overflow_right_after_stops_with_the_providers_message(opened: OpenSession) -> None:
    """One attempt per overflow."""
    said = "prompt is too long: 33000 tokens > 32000 maximum"
    steps = [*fill(), sc.overflow(said), sc.overflow(said), sc.say("never")]
    async with opened(steps) as session:
        result = await session.prompt("go")
    assert result.status == "failed"
    assert isinstance(result.error, sc.CompactionLimit)
    assert result.error.provider_message == said
    assert [outcome.status for outcome in result.compactions] == ["completed"]


async def test_a_reload_does_not_restart_the_overflow_loop(opened: OpenSession) -> None:
    """The guard is read from the log."""
    async with opened([*fill(), sc.overflow("too long"), sc.overflow("too long")]) as session:
        await session.prompt("go")
    async with opened([sc.overflow("still too long"), sc.say("never")]) as session:
        result = await session.prompt("again")
    assert isinstance(result.error, sc.CompactionLimit)
    assert result.error.provider_message == "still too long"
    assert result.compactions == ()


async def test_an_overflow_that_cannot_be_compacted_stops_once_with_the_reason(opened: OpenSession) -> None:
    async with opened([sc.overflow("too long"), sc.say("never")]) as session:
        result = await session.prompt("go")
    assert result.status == "failed"
    assert isinstance(result.error, sc.ContextOverflow)
    assert [outcome.status for outcome in result.compactions] == ["skipped"]


async def test_a_request_that_fails_leaves_the_history_and_the_run_goes_on(opened: OpenSession) -> None:
    steps = [*fill(), sc.cell("await compact.run()"), sc.say("went on")]
    summaries: list[str | sc.ModelError] = [sc.PermissionDenied("not yours", status=403)] * 4
    async with opened(steps, summaries=summaries, offline_fallback=False) as session:
        stream = session.events()
        result = await session.prompt("go")
        (end,) = of_type(stream.pending(), "compaction_end")
        assert "some words of output" in history_text(session)
        assert '"type":"compaction"' not in session.session_file.read_text()
    assert (result.status, result.text) == ("done", "went on")
    assert end.status == "failed"
    assert "not yours" in end.error_message


async def test_a_manual_compaction_waits_for_the_boundary_and_clears_the_request(opened: OpenSession) -> None:
    code = "import asyncio\nawait compact.run('by the agent')\nprint('asked', flush=True)\nawait asyncio.sleep(0.2)"
    outcomes: list[sc.CompactionOutcome] = []
    async with opened([*fill(), sc.cell(code), sc.say("ok")]) as session:
        stream = session.events()

        async def compact_by_hand() -> None:
            async for event in stream:
                if event.type == "compaction_scheduled":
                    outcomes.append(await session.compact("by hand"))
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compact_by_hand)
            result = await session.prompt("go")
    assert [outcome.reason for outcome in result.compactions] == ["manual"]
    assert [outcome.status for outcome in outcomes] == ["completed"]
    assert session.status().scheduled is False


async def test_two_manual_compactions_at_once_write_one_record(opened: OpenSession) -> None:
    async with opened([*fill(3), sc.say("ok")]) as session:
        await session.prompt("go")
        outcomes: list[sc.CompactionOutcome] = []

        async def compact() -> None:
            outcomes.append(await session.compact("x"))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(compact)
        log = session.session_file.read_text()
    assert [outcome.status for outcome in outcomes] == ["completed"] * 5
    assert log.count('"type":"compaction"') == 1


async def test_input_given_while_compacting_arrives_once_and_in_order(opened: OpenSession) -> None:
    async with opened([*fill(), sc.cell("await compact.run()"), sc.say("first"), sc.say("second")]) as session:
        stream = session.events()

        async def speak() -> None:
            async for event in stream:
                if event.type == "compaction_start":
                    session.steer("steer one")
                    session.steer("steer two")
                    session.follow_up("follow up")
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(speak)
            result = await session.prompt("go")
        text = history_text(session)
    assert (result.status, result.text) == ("done", "second")
    positions = [text.index(said) for said in ("steer one", "steer two", "first", "follow up", "second")]
    assert positions == sorted(positions)
    assert all(text.count(said) == 1 for said in ("steer one", "steer two", "follow up"))


@pytest.mark.parametrize("moment", ["compaction_start", "tool_execution_start", "turn_start"])
async def test_cancelled_at_any_moment_the_history_is_old_or_new_and_the_session_goes_on(
    opened: OpenSession, moment: str
) -> None:
    async with opened([*fill(), sc.cell("await compact.run()"), sc.say("ok")]) as session:
        stream = session.events()

        async def abort() -> None:
            async for event in stream:
                if event.type == moment:
                    await session.abort()
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort)
            await session.prompt("go")
        assert session.state == "idle"
        history = session.history
    async with opened([sc.say("on")], session_file=session.session_file) as again:
        assert again.history == history
        result = await again.prompt("are you there?")
    assert (result.status, result.text) == ("done", "on")
