"""The rows that the kernel's side keeps, from cells of a real kernel in the real sandbox."""

from __future__ import annotations

import anyio
import pytest

from .conftest import Host, OpenKernel

AWAIT = "await compact.run()"


async def test_both_calls_return_what_the_host_says(opened: OpenKernel, host: Host) -> None:
    async with opened() as kernel:
        status = await kernel.execute("await compact.status()")
        assert status.text == "{'tokens': 10, 'context_window': 100, 'percent': 10.0, 'scheduled': False}"
        run = await kernel.execute("(await compact.run('keep `x`'))['scheduled'], await compact.run()")
        assert run.text == "(True, {'scheduled': True, 'note': 'when this turn is over'})"
        assert host.asked == ["keep `x`", None]


async def test_instructions_that_are_no_text_are_a_type_error_and_nothing_is_sent(
    opened: OpenKernel, host: Host
) -> None:
    async with opened() as kernel:
        for value in ("3", "b'x'", "['x']", "object()"):
            result = await kernel.execute(f"await compact.run({value})")
            kind = type(eval(value)).__name__
            assert (result.status, result.error_name) == ("error", "TypeError")
            assert f"as a str, not {kind}" in (result.error_value or "")
        assert host.asked == []
        assert kernel.bridge_stats.received == 0


async def test_a_call_without_await_says_what_to_write_and_sends_nothing(opened: OpenKernel, host: Host) -> None:
    """As the cell's value, as a statement, assigned, in a function, and under asyncio.run."""
    async with opened() as kernel:
        for code in (
            "compact.run()",
            "compact.run();",
            "x = compact.run()",
            "def f():\n    compact.run()\nf()",
            "import asyncio\nasyncio.run(compact.run())",
            "asyncio.get_event_loop().run_until_complete(compact.run())",
        ):
            result = await kernel.execute(code)
            assert AWAIT in result.text, code
            assert result.text.count(AWAIT) == 1 or "asyncio" in code or "f()" in code, result.text
        assert AWAIT.replace("run", "status") in (await kernel.execute("compact.status()")).text
        assert (await kernel.execute("1")).text == "1"
        assert (host.asked, kernel.bridge_stats.received) == ([], 0)


async def test_a_call_that_was_forgotten_can_still_be_awaited_once(opened: OpenKernel, host: Host) -> None:
    async with opened() as kernel:
        await kernel.execute("x = compact.run('late')")
        assert "True" in (await kernel.execute("await x")).text
        again = await kernel.execute("await x")
        assert "call it again" in (again.error_value or "")
        assert host.asked == ["late"]


async def test_a_task_that_is_on_its_way_is_not_complained_about(opened: OpenKernel, host: Host) -> None:
    async with opened() as kernel:
        made = await kernel.execute("import asyncio\ntask = asyncio.create_task(compact.run('from a task'))")
        assert made.text == ""
        assert "True" in (await kernel.execute("await task")).text
        assert host.asked == ["from a task"]


async def test_fifty_calls_at_once_get_each_their_own_answer(opened: OpenKernel, host: Host) -> None:
    async with opened() as kernel:
        result = await kernel.execute(
            "import asyncio\n"
            "answers = await asyncio.gather(*(compact.run(str(n)) for n in range(50)))\n"
            "sum(answer['scheduled'] for answer in answers)"
        )
        assert result.text == "50"
        assert sorted(host.asked, key=lambda text: int(text or -1)) == [str(n) for n in range(50)]


async def test_calls_from_threads_background_tasks_and_forks_are_answered(opened: OpenKernel, host: Host) -> None:
    code = """
import asyncio, os, threading
from host_bridge.kernel.requests import host_request_blocking
found = []
def own_loop():
    found.append(asyncio.run(compact.run("thread with a loop")))
def no_loop():
    found.append(host_request_blocking("compact.run", {"instructions": "thread without"}))
threads = [threading.Thread(target=target) for target in (own_loop, no_loop)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
async def background():
    await asyncio.sleep(0)
    found.append(await compact.run("background"))
task = asyncio.create_task(background())
await task
child = os.fork()
if child == 0:
    host_request_blocking("compact.run", {"instructions": "fork"})
    os._exit(0)
os.waitpid(child, 0)[1], len(found)
"""
    async with opened() as kernel:
        result = await kernel.execute(code)
        assert result.text == "(0, 3)", result.text
        assert set(host.asked) == {"thread with a loop", "thread without", "background", "fork"}


async def test_a_background_task_is_answered_after_its_cell_has_ended(opened: OpenKernel, host: Host) -> None:
    """With no cell running, and so with no parent message."""
    async with opened() as kernel:
        await kernel.execute(
            "import asyncio\nasync def later():\n    await asyncio.sleep(0.1)\n    return await compact.run('later')\n"
            "task = asyncio.create_task(later())"
        )
        with anyio.fail_after(5):
            while not host.asked:
                await anyio.sleep(0.01)
        assert "True" in (await kernel.execute("task.result()")).text


async def test_the_disabled_skill_is_a_runtime_error_with_its_sentence(opened: OpenKernel, host: Host) -> None:
    host.dispatcher.unregister("compact.run")
    host.dispatcher.unregister("compact.status")
    async with opened() as kernel:
        for call in ("compact.run()", "compact.status()"):
            result = await kernel.execute(f"await {call}")
            assert (result.error_name, result.error_value) == (
                "RuntimeError",
                "the compact skill is disabled in this session",
            )


async def test_without_a_host_the_call_is_an_error_at_once(opened: OpenKernel) -> None:
    async with opened() as kernel:
        result = await kernel.execute(
            "import os\nos.environ['HOST_BRIDGE_ENDPOINT'] = 'ipc:///nowhere'\n"
            "try:\n    await compact.status()\nexcept compact.BridgeUnavailable as error:\n    print(error)"
        )
        assert "no host answers" in result.text
        assert result.duration_s < 2


async def test_instructions_with_half_a_surrogate_pair_still_arrive(opened: OpenKernel, host: Host) -> None:
    async with opened() as kernel:
        await kernel.execute("await compact.run('a\\ud800b')")
        assert host.asked == ["a?b"]


@pytest.mark.slow
async def test_requests_survive_a_cell_that_floods_both_streams(opened: OpenKernel) -> None:
    """Each within a second, while 10,000 lines are flushed beside a noisy thread."""
    code = """
import asyncio, sys, threading, time
stop = threading.Event()
def noise():
    while not stop.is_set():
        print("noise", file=sys.stderr, flush=True)
thread = threading.Thread(target=noise); thread.start()
slowest, answered = 0.0, 0
for n in range(200):
    for line in range(50):
        print("line", n, line, flush=True)
    started = time.perf_counter()
    answered += "tokens" in await compact.status()
    slowest = max(slowest, time.perf_counter() - started)
stop.set(); thread.join()
(answered, slowest < 1.0)
"""
    async with opened() as kernel:
        result = await kernel.execute(code, timeout_s=50)
        assert result.text.rstrip().endswith("(200, True)"), result.text[-300:]
        assert kernel.bridge_stats.answered == 200
