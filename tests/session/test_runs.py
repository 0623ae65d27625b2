"""What a run tells of itself: its events, its result, the states it passes, and what may be done meanwhile."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import selfcompact as sc
from selfcompact.messages import AssistantMessage, Message, ToolResultMessage, Usage, text_of
from selfcompact.models.scripted import StepSource
from selfcompact.settings.compaction import CompactionSettings
from tests.session.memory_kernel import SUMMARY, memory_session

WINDOW = 6_000
COMPACTION = CompactionSettings(reserve_tokens=1_500, keep_recent_tokens=600, background=False)
FILL = [sc.cell("fill"), sc.cell("fill"), sc.cell("fill")]


@asynccontextmanager
async def played(
    path: Path, *steps: StepSource, hooks: sc.Hooks | None = None, window: int | None = WINDOW, name: str = "s.jsonl"
) -> AsyncIterator[tuple[sc.Session, sc.ScriptedModel]]:
    model = sc.ScriptedModel(steps, context_window=window)
    async with memory_session(
        path / name, model, summaries=itertools.repeat(SUMMARY), hooks=hooks, compaction=COMPACTION
    ) as session:
        yield session, model


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [text_of(message) for message in messages]


async def test_the_result_of_a_run_is_all_that_it_added(tmp_path: Path) -> None:
    async with played(tmp_path, sc.cell("wait 1", say="Look."), sc.say("Done."), sc.say("Again.")) as (session, _):
        stream = session.events()
        result = await session.prompt("go")
        first, *_, last = stream.pending()
        again = await session.prompt("more")
    assert (result.status, result.text, result.turns, result.error, result.reason) == ("done", "Done.", 2, None, None)
    assert [message.role for message in result.messages] == ["user", "assistant", "toolResult", "assistant"]
    assert result.compactions == ()
    assert first == sc.events.AgentStart()
    assert last == sc.events.AgentEnd(status="done", messages=result.messages, reason=None)
    assert (again.text, again.turns, texts(again.messages)) == ("Again.", 1, ["more", "Again."])
    result.raise_for_status()


async def test_every_turn_tells_what_it_was_and_how_full_the_context_is(tmp_path: Path) -> None:
    async with played(tmp_path, *FILL, sc.cell("ask keep x"), sc.say("ok", usage=Usage())) as (session, _):
        seen: list[tuple[sc.events.Event, int, bool]] = []

        async def watch() -> None:
            async for event in stream:
                if isinstance(event, sc.events.TurnStart | sc.events.TurnEnd):
                    status = session.status()
                    seen.append((event, status.estimated_tokens, status.tokens is None))

        stream, plain = session.events(), session.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await session.prompt("go")
            await session.close()
        told = [event for event in plain.pending() if isinstance(event, sc.events.TurnStart | sc.events.TurnEnd)]
    starts = [event.turn for event in told if isinstance(event, sc.events.TurnStart)]
    turn_ends = [event for event in told if isinstance(event, sc.events.TurnEnd)]
    assert starts == [end.turn for end in turn_ends] == [1, 2, 3, 4, 5]
    assert [len(end.tool_results) for end in turn_ends] == [1, 1, 1, 1, 0]
    assert [len(end.message.tool_calls) for end in turn_ends] == [1, 1, 1, 1, 0]
    assert {end.context_window for end in turn_ends} == {WINDOW}
    tokens = [end.context_tokens for end in turn_ends]
    assert tokens[:4] == sorted(tokens[:4])
    assert tokens[4] < tokens[3]
    # After the compaction nobody has reported anything: the figure is an estimate.
    assert [end.context_estimated for end in turn_ends] == [False, False, False, False, True]
    assert tokens[-1] == seen[-1][1]


async def test_a_run_that_fails_says_why_in_its_result_and_its_event(tmp_path: Path) -> None:
    async with played(tmp_path, sc.say("fine"), sc.cell("wait 1", say="half"), sc.fail("no money", status=402)) as (
        session,
        _,
    ):
        await session.prompt("go")
        stream = session.events()
        result = await session.prompt("more")
        *_, end = stream.pending()
        history = session.history
    assert (result.status, result.text, result.turns) == ("failed", "half", 2)
    assert isinstance(result.error, sc.ModelError)
    assert result.reason == str(result.error)
    assert "no money" in result.reason
    assert end == sc.events.AgentEnd(status="failed", messages=result.messages, reason=result.reason)
    with pytest.raises(sc.ModelError, match="no money"):
        result.raise_for_status()
    assert texts(history)[:3] == ["go", "fine", "more"]


async def test_a_request_that_still_waits_when_the_run_fails_is_dropped_and_told(tmp_path: Path) -> None:
    """A manual compaction had its turn at the boundary, and was vetoed; the request would have come next."""

    async def veto(_: sc.CompactionPreparation) -> sc.Veto:
        return sc.Veto("no")

    def compact_by_hand(_: object) -> sc.Step:
        tasks.start_soon(session.compact)
        return sc.cell("wait 5;ask keep x")

    hooks = sc.Hooks(before_compact=[veto])
    steps: list[StepSource] = [*FILL, compact_by_hand, sc.fail("broke", status=400)]
    async with played(tmp_path, *steps, hooks=hooks) as (session, _), anyio.create_task_group() as tasks:
        stream = session.events()
        result = await session.prompt("go")
        assert session.status().scheduled is False
        dropped = [event for event in stream.pending() if isinstance(event, sc.events.RequestDropped)]
    assert result.status == "failed"
    assert [(outcome.reason, outcome.status) for outcome in result.compactions] == [("manual", "vetoed")]
    assert dropped == [sc.events.RequestDropped(cause="the run failed", custom_instructions="keep x")]


async def test_a_request_whose_attempt_failed_is_gone_and_not_tried_at_every_boundary(tmp_path: Path) -> None:
    denied = sc.PermissionDenied("not yours", status=403)
    model = sc.ScriptedModel([*FILL, sc.cell("ask keep x"), *FILL[:1], sc.say("ok")], context_window=WINDOW)
    settings = COMPACTION.model_copy(update={"offline_fallback": False})
    async with memory_session(
        tmp_path / "s.jsonl", model, summaries=itertools.repeat(denied), compaction=settings
    ) as session:
        result = await session.prompt("go")
        assert session.status().scheduled is False
    assert [(outcome.reason, outcome.status) for outcome in result.compactions] == [("requested", "failed")]


async def test_the_states_of_a_session_are_those_of_the_docs(tmp_path: Path) -> None:
    states: dict[str, str] = {}

    async def before(_: sc.CompactionPreparation) -> None:
        states["before a compaction"] = session.state

    def step(_: object) -> sc.Step:
        states["in a turn"] = session.state
        return sc.cell("ask keep x")

    hooks = sc.Hooks(before_compact=[before])
    async with played(tmp_path, *FILL, step, sc.say("ok"), hooks=hooks) as (session, _):
        states["at first"] = session.state
        await session.prompt("go")
        states["afterwards"] = session.state
        before_idle = dict(states)
        await session.compact()
        states["after compacting"] = session.state
    states["at the end"] = session.state
    assert before_idle == {
        "at first": "idle",
        "in a turn": "running",
        "before a compaction": "compacting",
        "afterwards": "idle",
    }
    assert (states["after compacting"], states["at the end"]) == ("idle", "closed")


CLOSED: list[Callable[[sc.Session], object]] = [
    lambda session: session.steer("x"),
    lambda session: session.follow_up("x"),
    lambda session: session.label("e", "x"),
    lambda session: session.set_name("x"),
    lambda session: session.set_model(sc.ScriptedModel([])),
]


async def test_a_closed_session_accepts_nothing_and_its_streams_are_at_their_end(tmp_path: Path) -> None:
    async with played(tmp_path, sc.say("one")) as (session, _):
        await session.prompt("go")
        stream = session.events()
        await session.close()
        await session.close()
        size = session.session_file.stat().st_size
        for call in CLOSED:
            with pytest.raises(sc.SessionClosed):
                call(session)
        for coroutine in (session.prompt("x"), session.compact(), session.rewind("e")):
            with pytest.raises(sc.SessionClosed):
                await coroutine
        assert session.session_file.stat().st_size == size
        with anyio.fail_after(1):
            assert [event async for event in session.events()] == []
            assert [event async for event in stream] == []


async def test_a_busy_session_refuses_to_be_rewound_and_an_abort_of_an_idle_one_does_nothing(tmp_path: Path) -> None:
    async with played(tmp_path, sc.cell("wait 500"), sc.say("ok")) as (session, _):
        with anyio.fail_after(1):
            await session.abort()

        async def rewind() -> None:
            with pytest.raises(sc.SessionBusy, match="running"):
                await session.rewind("e")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt, "go")
            await anyio.lowlevel.checkpoint()
            await rewind()
        assert session.state == "idle"
        assert texts(session.history)[-1] == "ok"


async def test_an_abort_returns_when_what_was_going_on_has_settled(tmp_path: Path) -> None:
    async with played(tmp_path, sc.cell("wait 100000"), sc.say("on")) as (session, _):
        stream = session.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt, "go")
            async for event in stream:
                if isinstance(event, sc.events.ToolExecutionStart):
                    break
            await session.abort()
            assert session.state == "idle"
            (*_, end) = stream.pending()
            assert isinstance(end, sc.events.AgentEnd)
            assert end.status == "aborted"
        assert isinstance(session.history[-1], ToolResultMessage)
        assert (await session.prompt("more")).text == "on"


async def test_a_prompt_that_is_cancelled_by_its_own_caller_aborts_the_run(tmp_path: Path) -> None:
    async with played(tmp_path, sc.cell("wait 100000"), sc.say("on")) as (session, _):
        stream = session.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt, "go")
            async for event in stream:
                if isinstance(event, sc.events.ToolExecutionStart):
                    break
            tasks.cancel_scope.cancel()
        assert session.state == "idle"
        (*_, end) = stream.pending()
        assert isinstance(end, sc.events.AgentEnd)
        assert (end.status, [message.role for message in end.messages]) == ("aborted", ["user", "assistant"])
        assert session.history[-1].role == "toolResult"
        assert (await session.prompt("more")).text == "on"


async def test_steering_comes_before_the_next_request_and_a_follow_up_when_the_run_would_end(tmp_path: Path) -> None:
    def speak(_: object) -> sc.Step:
        session.follow_up("later")
        session.follow_up("last")
        session.steer("now")
        session.steer("and this")
        return sc.cell("wait 1")

    async with played(tmp_path, speak, *(sc.say(text) for text in ("one", "two", "three"))) as (session, model):
        result = await session.prompt("go")
    said = [text_of(m) for m in result.messages if m.role != "toolResult"]
    assert said == ["go", "", "now", "and this", "one", "later", "two", "last", "three"]
    assert [texts(request.messages)[-1] for request in model.requests] == ["go", "and this", "later", "last"]
    assert (result.turns, result.text) == (4, "three")


async def test_input_that_waits_keeps_a_run_going_also_after_a_compaction_at_its_end(tmp_path: Path) -> None:
    def speak(_: object) -> sc.Step:
        session.follow_up("later")
        return sc.say("one", usage=Usage(input=5_000, output=10))

    async with played(tmp_path, *FILL, speak, sc.say("two")) as (session, _):
        result = await session.prompt("go")
    assert [outcome.reason for outcome in result.compactions] == ["threshold"]
    assert (result.status, result.text) == ("done", "two")


async def test_names_labels_and_rewinds_are_records_of_their_own(tmp_path: Path) -> None:
    async with played(tmp_path, sc.say("one"), sc.say("two")) as (session, _):
        await session.prompt("go")
        first = (await session.tree()).leaf_id
        assert first is not None
        session.label(first, "here")
        session.label(first, None)
        session.set_name("A talk")
        session.set_name(None)
        await session.prompt("more")
        left = (await session.tree()).leaf_id
        before = session.history
        await session.rewind(first)
        assert texts(session.history) == ["go", "one"]
        assert before != session.history
        lines = [json.loads(line) for line in session.session_file.read_text().splitlines()]
    assert [(r["targetId"], r.get("label")) for r in lines if r["type"] == "label"] == [(first, "here"), (first, None)]
    assert [r.get("name") for r in lines if r["type"] == "session_info"] == ["A talk", None]
    assert (lines[-1]["customType"], lines[-1]["parentId"], lines[-1]["data"]) == (
        "selfcompact.rewind",
        first,
        {"from": left},
    )


async def test_a_fork_without_a_name_is_of_the_newest_entry(tmp_path: Path) -> None:
    async with played(tmp_path, sc.say("one"), sc.say("two")) as (session, _):
        await session.prompt("go")
        history = session.history
        assert await session.fork(tmp_path / "fork.jsonl") == tmp_path / "fork.jsonl"
    async with played(tmp_path, sc.say("on"), name="fork.jsonl") as (session, _):
        assert session.history == history


async def test_what_a_provider_sends_from_its_cache_is_in_the_status(tmp_path: Path) -> None:
    async with played(tmp_path, sc.say("ok", usage=Usage(input=500, output=10, cache_read=300))) as (session, _):
        assert session.status().cached_tokens is None
        await session.prompt("go")
        status = session.status()
    assert (status.cached_tokens, status.context_window, status.threshold_tokens) == (300, WINDOW, 4_500)
    assert status.tokens is not None
    assert status.percent == round(100 * status.tokens / WINDOW, 1)
    assert (status.scheduled, status.would_compact) == (False, False)
    assert status.reason is not None


async def test_without_a_known_window_there_is_no_percentage_and_no_threshold(tmp_path: Path) -> None:
    async with played(tmp_path, *FILL, sc.say("ok"), window=None) as (session, _):
        assert (await session.prompt("go")).compactions == ()
        status = session.status()
    assert (session.context_window, status.context_window, status.percent, status.threshold_tokens) == (None,) * 4
    assert status.would_compact is True


async def test_the_newest_response_is_the_one_that_the_result_tells(tmp_path: Path) -> None:
    async with played(tmp_path, sc.say("one"), sc.say("two")) as (session, _):
        await session.prompt("go")
        stream = session.events()
        await session.prompt("more")
        (turn_end,) = [event for event in stream.pending() if isinstance(event, sc.events.TurnEnd)]
    assert isinstance(turn_end.message, AssistantMessage)
    assert text_of(turn_end.message) == "two"


async def test_a_search_gives_ten_hits_unless_it_is_told_how_many(tmp_path: Path) -> None:
    async with played(tmp_path, *(sc.say(f"needle {number}") for number in range(12))) as (session, _):
        for _ in range(12):
            await session.prompt("look")
        assert len(await session.search("needle")) == 10
        assert len(await session.search("needle", 11)) == 11
        assert await session.search("haystack") == []


async def test_a_prompt_waits_for_a_compaction_of_the_idle_session_to_end(tmp_path: Path) -> None:
    async def before(_: sc.CompactionPreparation) -> None:
        tasks.start_soon(prompt)
        await anyio.wait_all_tasks_blocked()
        assert session.state == "compacting"

    async def prompt() -> None:
        answers.append(await session.prompt("more"))

    answers: list[sc.RunResult] = []
    hooks = sc.Hooks(before_compact=[before])
    async with played(tmp_path, *FILL, sc.say("one"), sc.say("two"), hooks=hooks) as (session, model):
        await session.prompt("go")
        async with anyio.create_task_group() as tasks:
            assert (await session.compact()).status == "completed"
    assert [answer.text for answer in answers] == ["two"]
    assert "words that fill" not in "".join(texts(model.requests[-1].messages[:1]))


async def test_what_is_asked_for_while_a_compaction_of_the_idle_session_runs_gets_that_one(tmp_path: Path) -> None:
    outcomes: list[sc.CompactionOutcome] = []

    async def before(_: sc.CompactionPreparation) -> None:
        tasks.start_soon(compact, False)
        tasks.start_soon(compact, True)
        await anyio.wait_all_tasks_blocked()

    async def compact(now: bool) -> None:
        outcomes.append(await session.compact("another", now=now))

    hooks = sc.Hooks(before_compact=[before])
    async with played(tmp_path, *FILL, sc.say("one"), hooks=hooks) as (session, _):
        await session.prompt("go")
        async with anyio.create_task_group() as tasks:
            first = await session.compact("first")
    assert outcomes == [first, first]
