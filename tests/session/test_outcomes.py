"""After each kind of compaction, and each way it can end, the run goes on or ends with a reported reason."""

from __future__ import annotations

import itertools
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import selfcompact as sc
from selfcompact.errors import ModelError
from selfcompact.messages import Message, Usage, text_of
from selfcompact.models.scripted import StepSource
from selfcompact.settings.compaction import CompactionSettings
from tests.session.memory_kernel import SUMMARY, memory_session

WINDOW = 6_000
COMPACTION = CompactionSettings(reserve_tokens=1_500, keep_recent_tokens=600, offline_fallback=False, background=False)
FILL = [sc.cell("fill"), sc.cell("fill"), sc.cell("fill")]
OVER = Usage(input=5_000, output=10)
DENIED = sc.PermissionDenied("not yours", status=403)

STEPS: dict[str, list[StepSource]] = {
    "requested": [*FILL, sc.cell("ask keep x"), sc.say("went on")],
    "threshold": [*FILL, sc.cell("status", usage=OVER), sc.say("went on")],
    "overflow": [*FILL, sc.overflow("too long"), sc.say("went on")],
    "manual": [*FILL, sc.cell("wait 50"), sc.say("went on")],
}


async def run(tmp_path: Path, reason: str, status: str) -> tuple[sc.RunResult, list[sc.events.Event], list[Message]]:
    """One run in which a compaction of this kind ends in this way."""
    summaries: itertools.repeat[str | ModelError] = itertools.repeat(DENIED if status == "failed" else SUMMARY)
    sessions: list[sc.Session] = []

    async def before(_: sc.CompactionPreparation) -> sc.Veto | None:
        if status == "vetoed":
            return sc.Veto("vetoed by the test")
        if status == "interrupted":
            tasks.start_soon(sessions[0].abort)
            await anyio.sleep_forever()
        return None

    steps = STEPS[reason]
    if status == "skipped":
        steps = [step for step in steps if step not in FILL]
    model = sc.ScriptedModel(steps, context_window=WINDOW)
    async with (
        anyio.create_task_group() as tasks,
        memory_session(
            tmp_path / "s.jsonl",
            model,
            summaries=iter(summaries),
            hooks=sc.Hooks(before_compact=[before]),
            compaction=COMPACTION,
        ) as session,
    ):
        sessions.append(session)
        stream = session.events()
        if reason == "manual":
            tasks.start_soon(compact_in_the_last_cell, session, session.events())
        result = await session.prompt("go")
        events, history = stream.pending(), list(session.history)
    return result, events, history


async def compact_in_the_last_cell(session: sc.Session, stream: sc.EventStream) -> None:
    async for event in stream:
        if isinstance(event, sc.events.ToolExecutionStart) and event.args["code"] == "wait 50":
            await session.compact("by hand")
            return


@pytest.mark.parametrize("reason", ["requested", "threshold", "manual"])
@pytest.mark.parametrize("status", ["completed", "failed", "vetoed"])
async def test_the_run_goes_on_after_any_outcome_that_is_not_an_overflow(
    tmp_path: Path, reason: str, status: str
) -> None:
    result, events, history = await run(tmp_path, reason, status)
    assert [(outcome.reason, outcome.status) for outcome in result.compactions] == [(reason, status)]
    assert (result.status, result.text) == ("done", "went on")
    (end,) = [event for event in events if isinstance(event, sc.events.CompactionEnd)]
    assert end.status == status
    assert (end.error_message is None) == (status == "completed")
    old_is_there = any("words that fill" in text_of(message) for message in history[:4])
    assert old_is_there == (status != "completed")


async def test_a_request_or_a_manual_compaction_of_a_short_session_is_skipped_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    """No model is asked."""
    result, _, _ = await run(tmp_path, "manual", "skipped")
    assert [(outcome.reason, outcome.status) for outcome in result.compactions] == [("manual", "skipped")]
    assert (result.status, result.text) == ("done", "went on")


@pytest.mark.parametrize(
    ("status", "ends", "text"),
    [("completed", "done", "went on"), ("failed", "failed", ""), ("vetoed", "failed", ""), ("skipped", "failed", "")],
)
async def test_an_overflow_goes_on_when_it_was_compacted_and_stops_once_with_the_reason_when_not(
    tmp_path: Path, status: str, ends: str, text: str
) -> None:
    result, events, _ = await run(tmp_path, "overflow", status)
    assert [(outcome.reason, outcome.status) for outcome in result.compactions] == [("overflow", status)]
    assert result.status == ends
    if ends == "failed":
        assert isinstance(result.error, sc.ContextOverflow)
        assert result.error.provider_message == "too long"
        (agent_end,) = [event for event in events if isinstance(event, sc.events.AgentEnd)]
        assert agent_end.reason is not None
        assert "too long" in agent_end.reason
    else:
        assert result.text == text


@pytest.mark.parametrize("reason", ["requested", "threshold", "overflow", "manual"])
async def test_a_cancelled_compaction_ends_the_run_as_aborted_with_the_old_history(tmp_path: Path, reason: str) -> None:
    result, events, history = await run(tmp_path, reason, "interrupted")
    assert result.status == "aborted"
    (end,) = [event for event in events if isinstance(event, sc.events.CompactionEnd)]
    assert (end.status, end.aborted, end.will_retry) == ("interrupted", True, False)
    assert any("words that fill" in text_of(message) for message in history[:4])


async def test_every_single_await_of_a_compaction_may_be_cancelled(tmp_path: Path) -> None:
    """The history is the old one or the new one, never a third; and the session works on."""

    async def attempt(cancel_after: int, path: Path) -> str:
        model = sc.ScriptedModel([*FILL, sc.say("filled"), sc.say("works")], context_window=WINDOW)
        async with memory_session(path, model, summaries=itertools.repeat(SUMMARY), compaction=COMPACTION) as session:
            await session.prompt("go")
            old = session.history
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.compact)
                while session.state == "idle":
                    await anyio.lowlevel.checkpoint()
                for _ in range(cancel_after):
                    await anyio.lowlevel.checkpoint()
                await session.abort()
            new = session.history
            assert new == old or "summary begins" in text_of(new[0])
            assert (await session.prompt("and now?")).text == "works"
            return "old" if new == old else "new"

    seen = [await attempt(steps, tmp_path / f"{steps}.jsonl") for steps in range(40)]
    assert set(seen) == {"old", "new"}
    assert seen == sorted(seen, key=["old", "new"].index)
