"""What an operator may change while a session is open: the model, the settings file, the skill's switch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import anyio

import selfcompact as sc
from selfcompact.models.scripted import Step, StepSource
from tests.session.memory_kernel import SUMMARY

from .conftest import OpenSession
from .helpers import FILL, fill, of_type, outputs


async def test_a_smaller_model_gets_a_context_that_fits_and_the_larger_one_is_summarised_by_who_can_read_it(
    opened: OpenSession,
) -> None:
    """The new window counts before the next request; the old model, which has the room, is asked for the
    summary; the change is recorded."""
    small = sc.ScriptedModel([sc.say("small here")], summaries=[], context_window=9_000, model_id="small")
    steps = [*fill(5), sc.cell("1"), sc.say("large here")]
    async with opened(steps, keep_recent_tokens=1_000, summaries=[SUMMARY] * 4, offline_fallback=False) as session:
        large = session.model
        assert isinstance(large, sc.ScriptedModel)
        await session.prompt("go")
        before = session.status().estimated_tokens
        session.set_model(small)
        stream = session.events()
        result = await session.prompt("and you?")
        events = stream.pending()
    assert result.text == "small here"
    assert before > 9_000 - 4_000
    assert [(o.reason, o.status) for o in result.compactions] == [("threshold", "completed")]
    assert [request.purpose for request in large.requests[-2:]] == ["turn", "summary"]
    kinds = [event.type for event in events]
    assert kinds.index("compaction_end") < kinds.index("model_changed") < kinds.index("turn_start")
    (request,) = small.requests
    assert small.count(request) < 9_000
    records = [json.loads(line) for line in session.session_file.read_text().splitlines()]
    assert [r["modelId"] for r in records if r["type"] == "model_change"] == ["script", "small"]


async def test_the_project_file_switches_the_skill_off_and_on_at_the_next_boundary(workspace: Path) -> None:
    file = workspace / ".selfcompact/settings.json"
    file.parent.mkdir()
    file.write_text('{"compaction": {"agentCallable": true, "keepRecentTokens": 300}}')
    call = "try:\n    print(await compact.status() is not None)\nexcept RuntimeError as error:\n    print(error)"
    off, on = (json.dumps({"compaction": {"agentCallable": value, "keepRecentTokens": 300}}) for value in (False, True))

    def written(text: str) -> StepSource:
        """The operator changes the file, which a cell may not, while a turn goes on."""

        def step(_messages: Sequence[sc.Message]) -> Step:
            file.write_text(text)
            return sc.cell("'a turn'")

        return step

    steps: list[StepSource] = []
    for text in (off, "{broken", on):
        steps += [written(text), sc.cell(call)]
    steps.append(sc.say("ok"))
    model = sc.ScriptedModel(steps)
    async with sc.open_session(model, workspace=workspace, session_file=f"{workspace}.jsonl") as session:
        stream = session.events()
        result = await session.prompt("go")
        events = stream.pending()
    disabled = "the compact skill is disabled in this session"
    assert [text.strip() for text in outputs(result)[1::2]] == [disabled, disabled, "True"]
    assert [event.enabled for event in of_type(events, "agent_callable_changed")] == [False, True]
    (warning,) = of_type(events, "warning")
    assert "is not JSON" in warning.message
    assert len({request.system for request in model.requests}) == 1


async def test_compacting_now_aborts_the_run_first(opened: OpenSession) -> None:
    outcomes: list[sc.CompactionOutcome] = []
    async with opened([*fill(), sc.cell("import time\nprint('on', flush=True)\ntime.sleep(60)")]) as session:
        stream = session.events()

        async def compact_now() -> None:
            async for event in stream:
                if isinstance(event, sc.events.ToolExecutionUpdate) and "on" in event.delta:
                    outcomes.append(await session.compact("keep x", now=True))
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compact_now)
            result = await session.prompt("go")
    assert result.status == "aborted"
    assert [(o.reason, o.status) for o in outcomes] == [("manual", "completed")]


async def test_input_given_while_idle_comes_with_the_next_prompt(opened: OpenSession) -> None:
    async with opened([sc.say("one"), sc.say("two")]) as session:
        session.steer("first, know this")
        result = await session.prompt("the task")
        said = [m for m in result.messages if m.role == "user"]
    assert len(said) == 2


async def test_a_closed_session_refuses_and_a_busy_one_says_so(opened: OpenSession) -> None:
    async with opened([sc.cell(FILL), sc.say("ok")]) as session:
        errors: list[Exception] = []

        async def prompt_again() -> None:
            try:
                await session.prompt("me too")
            except sc.SessionBusy as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt, "go")
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(prompt_again)
        await session.close()
        for call in (session.steer, session.follow_up):
            try:
                call("x")
            except sc.SessionClosed as error:
                errors.append(error)
        try:
            await session.prompt("x")
        except sc.SessionClosed as error:
            errors.append(error)
    assert [type(error) for error in errors] == [sc.SessionBusy, *[sc.SessionClosed] * 3]
