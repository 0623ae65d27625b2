"""A summary that is begun before its boundary: what begins it, what gives it up, what the boundary takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import selfcompact as sc
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.compaction.summary.summarisers import SummaryReply
from selfcompact.messages import Usage
from tests.session.memory_kernel import SUMMARY, memory_session
from tests.session.test_compactions import COMPACTION, FILL, WINDOW, noted, records

AHEAD = COMPACTION.model_copy(update={"background": True})


@dataclass
class Counting:
    """A summariser that answers when it may, and counts what it was asked for and what was given up."""

    name: str = "counting"
    context_window: int | None = 32_000
    max_output_tokens: int | None = None
    drops_thinking: bool = False
    may_answer: anyio.Event = field(default_factory=anyio.Event)
    asked: int = 0
    cancelled: int = 0

    async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
        self.asked += 1
        try:
            await self.may_answer.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return SummaryReply(SUMMARY)


async def test_a_summary_that_a_request_began_is_the_one_that_the_boundary_takes(tmp_path: Path) -> None:
    counting = Counting()
    model = sc.ScriptedModel([*FILL, sc.cell("ask keep x;wait 20"), sc.say("ok")], context_window=WINDOW)
    async with memory_session(tmp_path / "s.jsonl", model, summariser=counting, compaction=AHEAD) as session:

        async def answer_when_the_cell_goes_on() -> None:
            async for event in stream:
                if event.type == "compaction_scheduled":
                    await anyio.wait_all_tasks_blocked()
                    assert counting.asked == 1
                    counting.may_answer.set()
                    return

        stream = session.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_when_the_cell_goes_on)
            result = await session.prompt("go")
        (record,) = records(session, "compaction")
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert noted(record)["writtenAhead"] is True
    assert noted(record)["requests"] == counting.asked
    assert counting.cancelled == 0


@pytest.mark.parametrize("how", ["the skill is switched off", "the run is aborted", "the session is closed"])
async def test_a_summary_that_was_begun_is_given_up_when_its_request_is_dropped(tmp_path: Path, how: str) -> None:
    counting = Counting()
    model = sc.ScriptedModel([*FILL, sc.cell("ask keep x;wait 200"), sc.say("ok")], context_window=WINDOW)
    async with memory_session(tmp_path / "s.jsonl", model, summariser=counting, compaction=AHEAD) as session:

        async def drop() -> None:
            async for event in stream:
                if event.type == "compaction_scheduled":
                    while not counting.asked:
                        await anyio.lowlevel.checkpoint()
                    if how == "the skill is switched off":
                        session.set_agent_callable(False)
                    elif how == "the run is aborted":
                        await session.abort()
                    else:
                        await session.close()
                    return

        stream = session.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drop)
            result = await session.prompt("go")
        assert (counting.asked, counting.cancelled) == (1, 1)
        (dropped,) = [event for event in stream.pending() if isinstance(event, sc.events.RequestDropped)]
    assert result.status == ("done" if how == "the skill is switched off" else "aborted")
    assert ("switched" if result.status == "done" else "the run was aborted") in dropped.cause


@pytest.mark.parametrize(("tokens", "begun"), [(4_000, 0), (4_200, 1)])
async def test_a_summary_is_begun_when_the_threshold_is_near_and_not_before(
    tmp_path: Path, tokens: int, begun: int
) -> None:
    """The threshold is at 4,500; near is nine tenths of it."""
    counting = Counting()
    usage = Usage(input=tokens - 60, output=10)
    steps = [*FILL, sc.cell("wait 1", usage=usage), sc.cell("wait 20", usage=usage), sc.say("ok", usage=usage)]
    model = sc.ScriptedModel(steps, context_window=WINDOW)
    asked: list[int] = []
    async with memory_session(tmp_path / "s.jsonl", model, summariser=counting, compaction=AHEAD) as session:

        async def look() -> None:
            async for event in stream:
                if isinstance(event, sc.events.ToolExecutionStart) and event.args["code"] == "wait 20":
                    assert tokens - 60 < session.status().estimated_tokens <= tokens + 40
                    await anyio.wait_all_tasks_blocked()
                    asked.append(counting.asked)
                    return

        stream = session.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            result = await session.prompt("go")
        await anyio.wait_all_tasks_blocked()
        assert (counting.asked, counting.cancelled) == (begun, 0)
    assert (result.status, result.compactions) == ("done", ())
    assert asked == [begun]
    # It was not needed, but may be by the next run: it ends with the session.
    assert (counting.asked, counting.cancelled) == (begun, begun)


@pytest.mark.parametrize("limit", [{"enabled": False}, {"threshold_percent": 100}])
async def test_nothing_is_begun_near_a_threshold_that_would_not_fire(tmp_path: Path, limit: dict[str, Any]) -> None:
    counting = Counting()
    steps = [*FILL, sc.cell("wait 1", usage=Usage(input=4_200, output=10)), sc.cell("wait 20"), sc.say("ok")]
    model = sc.ScriptedModel(steps, context_window=WINDOW)
    async with memory_session(
        tmp_path / "s.jsonl", model, summariser=counting, compaction=AHEAD.model_copy(update=limit)
    ) as session:
        await session.prompt("go")
    assert counting.asked == 0


async def test_a_run_that_fails_gives_up_what_was_begun_and_the_request(tmp_path: Path) -> None:
    counting = Counting()
    near = Usage(input=4_200, output=10)
    steps = [*FILL, sc.cell("wait 1", usage=near), sc.fail("broke", status=400)]
    model = sc.ScriptedModel(steps, context_window=WINDOW)
    async with memory_session(tmp_path / "s.jsonl", model, summariser=counting, compaction=AHEAD) as session:
        result = await session.prompt("go")
        await anyio.wait_all_tasks_blocked()
        assert result.status == "failed"
        assert counting.asked == counting.cancelled


@pytest.mark.parametrize("decision", [sc.Veto("no"), sc.SuppliedSummary("## Goal\nWritten by a hook.")])
async def test_what_was_begun_is_given_up_when_a_hook_decides_otherwise(
    tmp_path: Path, decision: sc.Veto | sc.SuppliedSummary
) -> None:
    counting = Counting()

    async def decide(_: sc.CompactionPreparation) -> sc.Veto | sc.SuppliedSummary:
        await anyio.wait_all_tasks_blocked()
        assert (counting.asked, counting.cancelled) == (1, 0)
        return decision

    model = sc.ScriptedModel(
        [*FILL, sc.cell("ask keep `x = 1`"), sc.cell("wait 20"), sc.say("ok")], context_window=WINDOW
    )
    hooks = sc.Hooks(before_compact=[decide])
    async with memory_session(
        tmp_path / "s.jsonl", model, summariser=counting, compaction=AHEAD, hooks=hooks
    ) as session:
        result = await session.prompt("go")
        assert (counting.asked, counting.cancelled) == (1, 1)
        written = records(session, "compaction")
    (outcome,) = result.compactions
    if isinstance(decision, sc.Veto):
        assert (outcome.status, outcome.message, written) == ("vetoed", "no", [])
    else:
        (record,) = written
        assert outcome.status == "completed"
        assert "Written by a hook." in record["summary"]
        assert noted(record)["keptVerbatim"] == ["x = 1"]
        ours = noted(record)
        assert (ours["summariser"], ours["writtenAhead"], ours["waitedMs"], ours["requests"]) == ("hook", False, 0, 0)


async def test_a_summary_that_a_request_began_is_of_no_use_for_other_instructions(tmp_path: Path) -> None:
    counting = Counting()
    counting.may_answer.set()
    model = sc.ScriptedModel(
        [*FILL, sc.cell("ask keep x;wait 5;ask keep y;wait 5"), sc.say("ok")], context_window=WINDOW
    )
    async with memory_session(tmp_path / "s.jsonl", model, summariser=counting, compaction=AHEAD) as session:
        stream = session.events()
        result = await session.prompt("go")
        scheduled = [event for event in stream.pending() if isinstance(event, sc.events.CompactionScheduled)]
        (record,) = records(session, "compaction")
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert [event.custom_instructions for event in scheduled] == ["keep x", "keep y"]
    assert record["customInstructions"] == "keep y"
