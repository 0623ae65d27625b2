"""How cells that run too long, hang or die are ended: the table of docs/kernel.md, row by row."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from selfcompact.kernel import CellResult, Kernel

from .conftest import Host, Nothing, OpenKernel

STARTED = "open('started', 'w').close()\n"
BOUND_S = 3.0
"""With a grace of one second, as the tests have it: two signals, a kill, and a slow machine."""

STOPS = {
    "a sleep": "import time; time.sleep(60)",
    "an awaited sleep": "import asyncio; await asyncio.sleep(60)",
    "gathered blocking calls": (
        "import asyncio, time\nasync def f(): time.sleep(60)\nawait asyncio.gather(*(f() for _ in range(20)))"
    ),
    "a thread that is joined": (
        "import threading, time\nt = threading.Thread(target=time.sleep, args=(60,), daemon=True)\nt.start(); t.join()"
    ),
    "a child that waits": "import subprocess; subprocess.run(['sleep', '60'])",
    "a shell command": "!sleep 60",
}
HANGS = {
    "a loop that swallows everything": (
        "import time\nwhile True:\n    try:\n        time.sleep(0.05)\n    except BaseException: pass"
    ),
    "a C call that holds the GIL": "sum(range(10**12))",
}
LOOP, CALL = HANGS
REPEATED = {(LOOP, "limit"), (LOOP, "abort"), (CALL, "interrupt")}
"""Each hang and each way to end it is tried without these once; the slow tests try the rest."""


@dataclass(frozen=True)
class Ended:
    result: CellResult | None
    took_s: float


async def end(kernel: Kernel, how: str, code: str, started: anyio.Path) -> Ended:
    """Run a cell, end it in one of three ways once it has begun, and say how long the ending took."""
    await started.unlink(missing_ok=True)
    if how == "limit":
        begin = time.monotonic()
        return Ended(await kernel.execute(STARTED + code, timeout_s=0.5), time.monotonic() - begin - 0.5)
    result: CellResult | None = None

    async def run() -> None:
        nonlocal result
        result = await kernel.execute(STARTED + code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(10):
            while not await started.exists():
                await anyio.sleep(0.01)
        await anyio.sleep(0.1)  # from the file to the next line, which nothing outside can see
        begin = time.monotonic()
        if how == "interrupt":
            await kernel.interrupt()
        else:
            tasks.cancel_scope.cancel()
    return Ended(result, time.monotonic() - begin)


STATUS = {"interrupt": "aborted", "limit": "timeout", "abort": None}


@pytest.mark.parametrize(
    "how", ["interrupt", pytest.param("limit", marks=pytest.mark.slow), pytest.param("abort", marks=pytest.mark.slow)]
)
async def test_what_can_be_interrupted_keeps_its_kernel_and_its_names(
    opened: OpenKernel, workspace: anyio.Path, how: str
) -> None:
    """Whatever waits, blocks or runs a child."""
    async with opened(interrupt_grace_s=5.0) as kernel:  # a shell takes its time to end on a machine that is busy
        await kernel.execute("kept = 1")
        for name, code in STOPS.items():
            ended = await end(kernel, how, code, anyio.Path(workspace) / "started")
            assert ended.took_s < BOUND_S, name
            assert (ended.result.status if ended.result else None) == STATUS[how], name
            after = await kernel.execute("kept, open('/proc/self/stat').read().split()[7]")
            assert (after.status, after.text[:2], after.note) == ("ok", "(1", None), (name, after)
            assert kernel.generation == 1, name
        left = await kernel.execute("!ps ax -o args | grep -c '[s]leep 60'")
        assert left.text == "0", "a child of a stopped cell runs on"


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(name, how, marks=pytest.mark.slow if (name, how) in REPEATED else ())
        for name in HANGS
        for how in ("interrupt", "limit", "abort")
    ],
)
async def test_what_cannot_be_interrupted_is_ended_with_its_kernel(
    opened: OpenKernel, workspace: anyio.Path, how: str, name: str
) -> None:
    """After the grace the kernel is killed, and the model is told that its names are gone."""
    async with opened() as kernel:
        pid = kernel.pid
        ended = await end(kernel, how, HANGS[name], anyio.Path(workspace) / "started")
        assert ended.took_s < BOUND_S
        assert (ended.result.status if ended.result else None) == STATUS[how]
        if ended.result is not None:
            assert "its names are gone" in (ended.result.note or "")
        assert not await anyio.Path(f"/proc/{pid}").exists()
        after = await kernel.execute("1 + 1")
        assert (after.status, after.text, after.generation) == ("ok", "2", 2)
        assert "A new kernel was started" in (after.note or "")
        assert (await kernel.execute("1 + 1")).note is None


DEATHS = {
    "import os; os._exit(3)": "exit code 3",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "SIGKILL",
    "import ctypes; ctypes.string_at(0)": "SIGSEGV",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)": "SIGTERM",
}


async def test_a_death_is_noticed_at_once_and_says_what_died_and_why(opened: OpenKernel) -> None:
    """Within 2 s, by the process and not by messages; the cell is not run again."""
    async with opened() as kernel:
        for number, (code, reason) in enumerate(DEATHS.items(), 1):
            result = await kernel.execute(f"print('last words', flush=True)\nimport time; time.sleep(0.05)\n{code}")
            assert (result.status, result.text) == ("died", "last words")
            assert reason in (result.note or "")
            assert result.duration_s < 2
            assert kernel.pid is None
            after = await kernel.execute("'print' in dir()")
            assert (after.status, after.generation) == ("ok", number + 1)


async def test_a_death_between_cells_is_told_with_the_next_one(opened: OpenKernel) -> None:
    async with opened() as kernel:
        await kernel.execute("import os, threading; threading.Timer(0.05, os._exit, (1,)).start(); x = 1")
        with anyio.fail_after(2):
            while kernel.pid is not None:
                await anyio.sleep(0.01)
        assert not (await kernel.names()).known
        result = await kernel.execute("'x' in globals()")
        assert (result.text, "names of the old one are gone" in (result.note or "")) == ("False", True)


async def test_more_memory_than_allowed_is_an_error_and_the_kernel_lives(opened: OpenKernel) -> None:
    async with opened({"memory": "2GiB"}) as kernel:
        result = await kernel.execute("x = bytearray(20 * 2**30)")
        assert (result.status, result.error_name) == ("error", "MemoryError")
        assert (await kernel.execute("1")).generation == 1


async def test_input_is_an_error_at_once_and_a_child_that_reads_gets_the_end_of_file(opened: OpenKernel) -> None:
    async with opened() as kernel:
        asked = await kernel.execute("input('name? ')")
        assert "nobody is there to type" in (asked.error_value or "")
        password = await kernel.execute("import getpass; getpass.getpass()")
        assert "nobody is there to type" in (password.error_value or "")
        child = await kernel.execute("import subprocess; subprocess.run(['cat']).returncode", timeout_s=5)
        assert (child.status, child.text) == ("ok", "0")


async def test_an_interrupt_hits_only_the_cell_it_was_meant_for(opened: OpenKernel) -> None:
    async with opened() as kernel:
        await kernel.interrupt()
        for _ in range(20):
            assert (await kernel.execute("1")).status == "ok"
            await kernel.interrupt()
        results: list[str] = []

        async def run(code: str) -> None:
            results.append((await kernel.execute(code)).status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "import time; time.sleep(60)")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(run, "import time; time.sleep(0.3)")
            await anyio.wait_all_tasks_blocked()
            await kernel.interrupt()
        assert results == ["aborted", "ok"]


async def test_a_cleanup_after_an_interrupt_is_not_interrupted_again(opened: OpenKernel) -> None:
    code = """
import time
try:
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)
    print("saved")
"""
    async with opened() as kernel:
        result = await kernel.execute(code, timeout_s=0.3)
        assert (result.status, result.text) == ("timeout", "saved")


async def test_a_background_task_survives_the_interrupt_of_a_later_cell(opened: OpenKernel) -> None:
    async with opened() as kernel:
        await kernel.execute("import asyncio, time\ntask = asyncio.create_task(asyncio.sleep(1, 'done'))")
        await kernel.execute("async def f(): time.sleep(60)\nawait asyncio.gather(f(), f())", timeout_s=0.3)
        assert (await kernel.execute("await task")).text == "'done'"


async def test_an_interrupt_cancels_the_handler_of_the_request_that_the_cell_waits_for(
    opened: OpenKernel, host: Host
) -> None:
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
        tasks.start_soon(kernel.execute, "await compact.status()")
        await started.wait()
        await kernel.interrupt()
        with anyio.fail_after(2):
            await ended.wait()


async def test_a_restart_ends_the_running_cell_and_everything_it_started(opened: OpenKernel) -> None:
    """Status() works in the first cell of the new kernel."""
    async with opened() as kernel:
        results: list[CellResult] = []

        async def run() -> None:
            results.append(await kernel.execute("import subprocess; subprocess.run(['sleep', '60'])"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            await kernel.restart()
            assert (await kernel.execute("(await compact.status())['tokens']")).text == "10"
        assert (results[0].status, kernel.generation) == ("died", 2)


async def test_a_closed_kernel_says_so(opened: OpenKernel) -> None:
    from selfcompact.errors import KernelClosed

    async with opened() as kernel:
        pass
    with pytest.raises(KernelClosed):
        await kernel.execute("1")
