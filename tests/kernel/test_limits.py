"""Running into every limit of the sandbox: the result names it, the host goes on, and so does the next cell."""

from __future__ import annotations

import os
import time

import pytest

from selfcompact.kernel import Kernel, SandboxPolicy
from selfcompact.sandbox.bubblewrap import find_bwrap
from selfcompact.sandbox.limit_notes import limit_reached
from selfcompact.sandbox.mounts import HOME

from .conftest import OpenKernel

FORK_BOMB = """
import os, signal, time
try:
    while True:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
finally:
    for child in open(f'/proc/self/task/{os.getpid()}/children').read().split():
        os.kill(int(child), signal.SIGKILL); os.waitpid(int(child), 0)
"""


async def works(kernel: Kernel) -> bool:
    return (await kernel.execute("1 + 1")).text == "2"


async def test_a_hundred_gigabytes_of_memory_are_refused_and_the_limit_is_named(opened: OpenKernel) -> None:
    async with opened({"memory": "4GiB"}) as kernel:
        result = await kernel.execute("kept = 1\nblock = bytearray(100 * 2**30)")
        assert result.error_name == "MemoryError"
        assert result.note == "A limit was reached: a process may have 4.0GiB of memory (sandbox.memory)."
        assert (await kernel.execute("kept")).text == "1"


async def test_a_file_of_a_hundred_gigabytes_is_refused_wherever_it_is_and_the_limit_is_named(
    opened: OpenKernel,
) -> None:
    async with opened({"file_size": "16MiB", "tmp_size": "8MiB"}) as kernel:
        for code in (
            "with open('big', 'wb') as file:\n    while True: file.write(bytes(2**20))",
            "import os\nos.truncate('big', 100 * 2**30)",
            "!head -c 100G /dev/zero > big",
        ):
            result = await kernel.execute(code)
            assert result.note == "A limit was reached: a file may have 16.0MiB (sandbox.fileSize).", (code, result)
        for place in ("/tmp", "~", "/dev/shm"):
            full = await kernel.execute(f"!head -c 100G /dev/zero > {place}/big")
            assert "each hold 8.0MiB (sandbox.tmpSize)" in (full.note or ""), full
        assert await works(kernel)


@pytest.mark.slow
async def test_a_million_files_in_memory_are_refused_and_the_limit_is_named(opened: OpenKernel) -> None:
    if not find_bwrap().counts_files:
        pytest.skip("namespaces are bubblewrap's alone on this machine")
    async with opened({"tmp_files": 2000}) as kernel:
        for place in ("/tmp", HOME, "/dev/shm"):
            result = await kernel.execute(
                f"made = 0\nwhile made < 10**6:\n    open('{place}/%d' % made, 'w').close()\n    made += 1"
            )
            assert result.error_name == "OSError"
            assert "in 2,000 files (sandbox.tmpFiles)" in (result.note or "")
            assert 1900 < int((await kernel.execute("made")).text) < 2000
        remounted = await kernel.execute("!mount -o remount,nr_inodes=1000000 /tmp; umount /tmp; ls /tmp | wc -l")
        assert int(remounted.text.split()[-1]) > 1900
        assert (await kernel.execute("!rm /tmp/[0-9]*; echo x > /tmp/again; cat /tmp/again")).text == "x"


@pytest.mark.slow
async def test_a_busy_loop_in_every_process_ends_with_the_cell_which_names_its_limit(opened: OpenKernel) -> None:
    code = "import os\nfor _ in range(6):\n    if os.fork() == 0: os.setsid()\nwhile True: pass"
    async with opened() as kernel, opened() as other:
        began = time.monotonic()
        result = await kernel.execute(code, timeout_s=1)
        assert result.status == "timeout"
        assert "ran longer than its limit of 1 s" in (result.note or "")
        assert time.monotonic() - began < 10
        left = await kernel.execute("!grep -l . /proc/[0-9]*/comm | wc -l")
        assert int(left.text) < 8
        assert await works(other)


@pytest.mark.slow
async def test_seconds_of_a_processor_that_are_used_up_are_named_for_the_kernel_and_for_a_child(
    opened: OpenKernel,
) -> None:
    async with opened({"cpu_seconds": 2}) as kernel:
        child = await kernel.execute(
            "import subprocess\nsubprocess.run(['sh', '-c', 'while :; do :; done'], check=True)"
        )
        assert "2 seconds of a processor (sandbox.cpuSeconds)" in (child.note or ""), child
        assert child.generation == 1
        result = await kernel.execute("while True: pass")
        assert result.status == "died"
        assert "sandbox.cpuSeconds" in (result.note or "")
        assert await works(kernel)


async def test_open_files_are_bounded_and_the_limit_is_named(opened: OpenKernel) -> None:
    async with opened({"open_files": 128}) as kernel:
        result = await kernel.execute("files = []\nwhile True: files.append(open('/dev/null'))")
        assert result.note == "A limit was reached: a process may have 128 files open (sandbox.openFiles)."
        assert result.duration_s < 5  # the kernel has some left to answer with
        assert (await kernel.execute("files.clear(); 1 + 1")).text == "2"


@pytest.mark.slow
async def test_a_fork_bomb_is_bounded_and_the_limit_is_named(opened: OpenKernel) -> None:
    async with opened({"processes": 100}) as kernel, opened() as other:
        if os.getuid() == 0 and "pids" not in kernel.cgroup_limits:
            pytest.skip("root has no limit of processes where no control group can be made")
        result = await kernel.execute(FORK_BOMB, timeout_s=20)
        assert "there may be 100 processes and threads (sandbox.processes)" in (result.note or ""), result
        assert await works(kernel)
        assert await works(other)


@pytest.mark.parametrize(
    ("name", "value", "text", "setting"),
    [
        ("BlockingIOError", "[Errno 11] Resource temporarily unavailable", "", "sandbox.processes"),
        ("RuntimeError", "can't start new thread", "", "sandbox.processes"),
        (None, None, "bash: fork: retry: Resource temporarily unavailable\n", "sandbox.processes"),
        ("_ArrayMemoryError", "Unable to allocate 745. GiB", "", "sandbox.memory"),
        ("OSError", "[Errno 12] Cannot allocate memory", "", "sandbox.memory"),
        ("OSError", "[Errno 28] No space left on device: '/tmp/x'", "", "sandbox.tmpSize"),
        (None, None, "cp: error writing 'x': File too large", "sandbox.fileSize"),
        ("OSError", "[Errno 24] Too many open files: '/dev/null'", "", "sandbox.openFiles"),
    ],
)
def test_what_a_limit_looks_like_from_inside_is_recognised(
    name: str | None, value: str | None, text: str, setting: str
) -> None:
    assert setting in (limit_reached(SandboxPolicy(), name, value, text) or "")


def test_other_errors_and_limits_that_are_not_set_are_not_named() -> None:
    assert limit_reached(SandboxPolicy(), "ValueError", "no space left in the table", "fork me: no") is None
    assert limit_reached(SandboxPolicy(), None, None, "the log says: No space left on device, twice") is None
    assert limit_reached(SandboxPolicy(), "CalledProcessError", "died with <Signals.SIGXCPU: 24>.", "") is None
    assert limit_reached(SandboxPolicy(memory=None), "MemoryError", "", "") is None
    assert limit_reached(SandboxPolicy(kind="none"), "OSError", "[Errno 28] No space left on device", "") is None
