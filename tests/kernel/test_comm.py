"""The comm transport, through kernels whose environment names no bridge."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from host_bridge.host.comm import CommEnd
from host_bridge.host.line import Line
from host_bridge.host.server import Dispatcher

from .conftest import Host, Nothing, OpenKernel

NO_BRIDGE = "import os; os.environ.pop('HOST_BRIDGE_ENDPOINT', None);"

FOREIGN = """
import asyncio
from comm import create_comm
kernel = get_ipython().kernel
loop = asyncio.get_running_loop()
answers = {}
def on_message(stream, ident, message):
    content = message["content"]
    future = answers.get(content["comm_id"])
    if future is not None:
        loop.call_soon_threadsafe(lambda: future.done() or future.set_result(content["data"]))
for kind in ("comm_msg", "comm_close"):
    kernel.control_handlers[kind] = on_message
async def host_request(data):
    comm = create_comm(target_name="host.request", data=data, primary=False)
    answers[comm.comm_id] = loop.create_future()
    comm.open(data=data)
    return await asyncio.wait_for(answers[comm.comm_id], 10)
"""


async def test_the_skill_uses_a_comm_where_no_bridge_is_named(opened: OpenKernel, host: Host) -> None:
    """The cell awaits, and the answer comes on the control channel."""
    async with opened() as kernel:
        status = await kernel.execute(f"{NO_BRIDGE} (await compact.status())['tokens']")
        assert status.text == "10"
        run = await kernel.execute("await compact.run('by comm')")
        assert run.text == "{'scheduled': True, 'note': 'when this turn is over'}"
        assert host.asked == ["by comm"]
        assert run.duration_s < 1


async def test_threads_and_fifty_at_once_are_answered_by_comm_too(opened: OpenKernel, host: Host) -> None:
    code = f"""{NO_BRIDGE}
import asyncio, threading
answers = await asyncio.gather(*(compact.run(str(n)) for n in range(50)))
found = []
threads = [threading.Thread(target=lambda: found.append(asyncio.run(compact.status()))) for n in range(3)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
len(answers), len(found)
"""
    async with opened() as kernel:
        assert (await kernel.execute(code)).text == "(50, 3)"
        assert len(set(host.asked)) == 50


async def test_a_foreign_runtimes_plain_comm_gets_flat_keys(opened: OpenKernel, host: Host) -> None:
    async with opened() as kernel:
        await kernel.execute(FOREIGN)
        run = await kernel.execute("await host_request({'instructions': 'keep it', 'type': 'compact.run'})")
        assert run.text == "{'scheduled': True, 'note': 'when this turn is over', 'status': 'ok'}"
        refused = await kernel.execute("await host_request({'instructions': 3, 'type': 'compact.run'})")
        assert "'status': 'error'" in refused.text
        assert "instructions" in refused.text
        assert host.asked == ["keep it"]


async def test_a_client_that_sends_a_version_gets_its_result_apart(opened: OpenKernel) -> None:
    async with opened() as kernel:
        await kernel.execute(FOREIGN)
        run = await kernel.execute("await host_request({'v': 1, 'type': 'compact.status', 'payload': {}})")
        assert " ".join(run.text.split()).startswith("{'v': 1, 'status': 'ok', 'result': {'tokens': 10")
        bad = await kernel.execute("await host_request({'v': 1, 'type': 'nothing', 'payload': {}})")
        assert "'code': 'unknown_type'" in bad.text


async def test_an_error_is_the_same_error_by_comm(opened: OpenKernel, host: Host) -> None:
    host.dispatcher.unregister("compact.run")
    async with opened() as kernel:
        result = await kernel.execute(f"{NO_BRIDGE} await compact.run()")
        assert result.error_value == "the compact skill is disabled in this session"


async def test_an_interrupt_cancels_the_handler_behind_a_comm(opened: OpenKernel, host: Host) -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def hang(_payload: Nothing) -> dict[str, Any]:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    host.dispatcher.unregister("compact.status")
    host.dispatcher.register("compact.status", Nothing, hang)
    async with opened() as kernel, anyio.create_task_group() as tasks:
        tasks.start_soon(kernel.execute, f"{NO_BRIDGE} await compact.status()")
        await started.wait()
        await kernel.interrupt()
        with anyio.fail_after(2):
            await ended.wait()


async def test_no_host_on_the_other_side_is_a_time_out_and_no_hang(opened: OpenKernel) -> None:
    async with opened() as kernel:
        result = await kernel.execute(
            f"{NO_BRIDGE}\nfrom host_bridge.kernel import comm\ncomm.COMM_TARGET = 'nobody'\n"
            "await comm.comm_request('compact.status', {}, 0.3)"
        )
        assert result.error_name == "BridgeTimeout"
        assert result.duration_s < 2


@pytest.mark.parametrize("content", [{}, {"comm_id": 3}, {"comm_id": "x"}, {"comm_id": "x", "data": 3}])
@pytest.mark.parametrize("kind", ["comm_open", "comm_msg", "comm_close"])
async def test_comm_messages_that_are_no_request_do_no_harm(kind: str, content: dict[str, Any]) -> None:
    sent: list[Any] = []
    async with anyio.create_task_group() as tasks:
        line = Line(Dispatcher(), key=b"k", generation=1, tasks=tasks)
        line.start()
        end = CommEnd(line, key=b"k", generation=1, send=lambda kind, said: sent.append((kind, said)))
        end.receive(kind, content)
        end.receive(kind, {**content, "target_name": "host.request"})
        tasks.cancel_scope.cancel()
    for _, said in sent:
        assert said["data"]["status"] == "error"
