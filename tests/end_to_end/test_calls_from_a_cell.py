"""What a cell can call, and when it is refused. Real kernel, real sandbox, real bridge."""

from __future__ import annotations

import anyio

import selfcompact as sc
from selfcompact.messages import Usage

from .conftest import OpenSession
from .helpers import fill, last_value, of_type, outputs


async def test_status_is_a_dict_with_the_four_keys_and_more(opened: OpenSession) -> None:
    async with opened([sc.cell("await compact.status()"), sc.say("ok")]) as session:
        result = await session.prompt("how full?")
    status = last_value(outputs(result)[0])
    assert status["context_window"] == 32_000
    assert 0 < status["tokens"] < 32_000
    assert status["percent"] == round(100 * status["tokens"] / 32_000, 1)
    assert status["scheduled"] is False
    assert isinstance(status["estimated_tokens"], int)
    assert status["threshold_tokens"] == 28_000
    assert status["would_compact"] is False
    assert "too short" in status["reason"]


async def test_tokens_are_none_after_a_compaction_until_the_model_reports_usage(opened: OpenSession) -> None:
    silent = Usage(input=0, output=0)
    steps = [
        *fill(),
        sc.cell("await compact.run()"),
        sc.cell("await compact.status()", usage=silent),
        sc.cell("await compact.status()"),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        result = await session.prompt("go")
    before, after = (last_value(text) for text in outputs(result)[-2:])
    assert before["tokens"] is None
    assert before["percent"] is None
    assert before["estimated_tokens"] > 0
    assert after["tokens"] > 0


async def test_run_schedules_and_says_so(opened: OpenSession) -> None:
    steps = [*fill(), sc.cell("r = await compact.run()\nprint(r['scheduled'], 'note' in r)"), sc.say("ok")]
    async with opened(steps) as session:
        result = await session.prompt("go")
    assert outputs(result)[-1].strip() == "True True"
    assert [outcome.status for outcome in result.compactions] == ["completed"]


async def test_status_tells_that_a_compaction_is_scheduled(opened: OpenSession) -> None:
    code = "await compact.run('keep x')\n(await compact.status())['scheduled']"
    async with opened([*fill(), sc.cell(code), sc.say("ok")]) as session:
        result = await session.prompt("go")
    assert outputs(result)[-1].strip() == "True"


async def test_instructions_reach_the_summary_and_stay_on_the_record(opened: OpenSession) -> None:
    async with opened([*fill(), sc.cell("await compact.run('keep the failing test names')"), sc.say("ok")]) as session:
        stream = session.events()
        result = await session.prompt("go")
        (start,) = of_type(stream.pending(), "compaction_start")
        assert start.custom_instructions == "keep the failing test names"
        log = session.session_file.read_text()
    assert result.compactions[0].result is not None
    assert '"customInstructions":"keep the failing test names"' in log


async def test_a_wrong_argument_is_a_type_error_in_the_kernel(opened: OpenSession) -> None:
    async with opened([*fill(), sc.cell("await compact.run(3)"), sc.say("ok")]) as session:
        result = await session.prompt("go")
        assert session.kernel.bridge_stats.received == 0
    assert "TypeError" in outputs(result)[-1]
    assert "int" in outputs(result)[-1]
    assert result.compactions == ()


async def test_a_second_request_in_the_same_turn_replaces_the_first(opened: OpenSession) -> None:
    code = "await compact.run('keep alpha'); await compact.run('keep beta')"
    async with opened([*fill(), sc.cell(code), sc.say("ok")]) as session:
        stream = session.events()
        await session.prompt("go")
        starts = of_type(stream.pending(), "compaction_start")
    assert [start.custom_instructions for start in starts] == ["keep beta"]


async def test_a_second_request_without_instructions_keeps_none(opened: OpenSession) -> None:
    code = "await compact.run('keep alpha'); await compact.run()"
    async with opened([*fill(), sc.cell(code), sc.say("ok")]) as session:
        stream = session.events()
        await session.prompt("go")
        starts = of_type(stream.pending(), "compaction_start")
    assert [start.custom_instructions for start in starts] == [None]


async def test_run_without_await_or_under_asyncio_run_says_how_to_call_it(opened: OpenSession) -> None:
    """The message names `await compact.run()`; nothing is sent."""
    steps = [
        *fill(),
        sc.cell("compact.run()"),
        sc.cell("import asyncio\nasyncio.run(compact.run())"),
        sc.cell("compact.run('x')\n1 + 1"),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        result = await session.prompt("go")
        assert session.kernel.bridge_stats.received == 0
    unawaited, asyncio_run, dropped = outputs(result)[-3:]
    assert "await compact.run(" in unawaited
    assert "await compact.run(" in asyncio_run
    assert "await compact.run(" in dropped
    assert result.compactions == ()


async def test_threads_tasks_and_fifty_at_once_each_get_their_own_answer(opened: OpenSession) -> None:
    code = """
import asyncio, threading
many = await asyncio.gather(*(compact.status() for _ in range(50)))
background = asyncio.create_task(compact.status())
found = []
thread = threading.Thread(target=lambda: found.append(asyncio.run(compact.status())))
thread.start()
await asyncio.to_thread(thread.join)
print(len(many), all(s['context_window'] == 32000 for s in many), (await background)['context_window'], len(found))
"""
    async with opened([sc.cell(code), sc.say("ok")]) as session:
        result = await session.prompt("go")
    assert outputs(result)[0].strip() == "50 True 32000 1"


async def test_a_call_that_no_host_hears_fails_at_once_and_the_next_one_is_answered(opened: OpenSession) -> None:
    """Never a hang."""
    code = """
import os, time
real = os.environ['HOST_BRIDGE_ENDPOINT']
os.environ['HOST_BRIDGE_ENDPOINT'] = 'ipc:///nowhere'
began = time.monotonic()
for call in (compact.status, compact.run):
    try:
        await call()
    except compact.BridgeUnavailable as error:
        print(type(error).__name__, time.monotonic() - began < 10)
os.environ['HOST_BRIDGE_ENDPOINT'] = real
print((await compact.status())['context_window'])
"""
    async with opened([sc.cell(code), sc.say("ok")]) as session:
        result = await session.prompt("go")
    assert outputs(result)[0].splitlines() == ["BridgeUnavailable True", "BridgeUnavailable True", "32000"]


async def test_a_short_session_is_refused_with_its_reason(opened: OpenSession) -> None:
    async with opened([sc.cell("await compact.run()"), sc.say("ok")]) as session:
        result = await session.prompt("go")
    answer = last_value(outputs(result)[0])
    assert answer["scheduled"] is False
    assert "session is too short to compact" in answer["reason"]
    assert result.compactions == ()


async def test_a_call_from_a_leftover_background_task_finds_no_active_turn(opened: OpenSession) -> None:
    code = """
import asyncio
async def later():
    await asyncio.sleep(0.3)
    globals()["answer"] = await compact.run()
task = asyncio.create_task(later())
"""
    async with opened(
        [*fill(), sc.cell(code), sc.say("first done"), sc.cell("await task; answer"), sc.say("ok")]
    ) as session:
        await session.prompt("go")
        waiting = await session.kernel.execute("await task")
        assert waiting.status == "ok"
        result = await session.prompt("and now?")
    answer = last_value(outputs(result)[0])
    assert answer["scheduled"] is False
    assert "no active turn" in answer["reason"]


async def test_below_the_floor_the_reason_tells_usage_and_floor(opened: OpenSession) -> None:
    async with opened([*fill(), sc.cell("await compact.run()"), sc.say("ok")], agent_floor_percent=90) as session:
        result = await session.prompt("go")
        assert session.status().would_compact is False
    answer = last_value(outputs(result)[-1])
    assert answer["scheduled"] is False
    assert "90 %" in answer["reason"]
    assert "% full" in answer["reason"]


async def test_right_after_a_compaction_there_is_nothing_to_compact(opened: OpenSession) -> None:
    async with opened([*fill(3), sc.say("ok")]) as session:
        await session.prompt("go")
        first = await session.compact()
        second = await session.compact()
        status = session.status()
    assert first.status == "completed"
    assert second.status == "skipped"
    assert second.message is not None
    assert "already compacted" in second.message
    assert status.would_compact is False
    assert "already compacted" in (status.reason or "")


async def test_when_the_operator_switched_it_off_the_call_raises_and_the_prompt_is_silent(opened: OpenSession) -> None:
    code = """
for call in (compact.status, compact.run):
    try:
        await call()
    except RuntimeError as error:
        print(type(error).__name__, error)
"""
    async with opened([*fill(), sc.cell(code), sc.say("ok")], agent_callable=False) as session:
        result = await session.prompt("go")
        model = session.model
        assert isinstance(model, sc.ScriptedModel)
        assert "compact.run" not in model.requests[0].system
    assert outputs(result)[-1].strip().splitlines() == [
        "RuntimeError the compact skill is disabled in this session",
        "RuntimeError the compact skill is disabled in this session",
    ]


async def test_switching_it_off_drops_a_pending_request_and_on_brings_it_back(opened: OpenSession) -> None:
    code = """
import pathlib, asyncio
await compact.run('x')
print('asked', flush=True)
while not pathlib.Path('go-on').exists():
    await asyncio.sleep(0.02)
try:
    await compact.run('y')
except RuntimeError as error:
    print(error)
"""
    async with opened([*fill(), sc.cell(code), sc.cell("await compact.status()"), sc.say("ok")]) as session:
        stream = session.events()
        seen: list[sc.events.Event] = []

        async def switch() -> None:
            async for event in stream:
                seen.append(event)
                if event.type == "compaction_scheduled":
                    session.set_agent_callable(False)
                    (session.workspace / "go-on").touch()
                if event.type == "tool_execution_end" and not session.agent_callable:
                    session.set_agent_callable(True)
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(switch)
            result = await session.prompt("go")
    (dropped,) = of_type(seen, "request_dropped")
    assert "switched the compact skill off" in dropped.cause
    assert dropped.custom_instructions == "x"
    assert "the compact skill is disabled in this session" in outputs(result)[-2]
    assert last_value(outputs(result)[-1])["scheduled"] is False
    assert result.compactions == ()
