"""Ways out that have worked elsewhere, each tried from inside a cell, with the thing outside really there."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest

import selfcompact as sc
from selfcompact.errors import WorkspaceError
from selfcompact.sandbox.protected_dirs import ProtectedDirs
from selfcompact.settings.load import PROJECT_FILE, load_settings, user_settings_file
from selfcompact.workspace import new_session_file

from .conftest import Host, OpenKernel


@pytest.mark.slow
async def test_nothing_of_the_users_is_there(opened: OpenKernel, workspace: Path) -> None:
    home = Path.home()
    secrets = [home / ".ssh/id_ed25519", home / ".aws/credentials", home / ".docker/config.json", home / ".netrc"]
    secrets += [user_settings_file(), new_session_file(workspace), workspace.parent / "other-project/.env"]
    for path in secrets:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("canary0123456789")
    async with opened() as kernel:
        await kernel.execute("import os")
        seen = await kernel.execute(f"[path for path in {list(map(str, secrets))!r} if os.path.lexists(path)]")
        assert seen.text == "[]"
        assert (await kernel.execute(f"os.listdir({str(workspace.parent)!r})")).text == "['workspace']"
        grep = "!grep -rlsI canary[0]123456789 /etc /home /tmp /root /run /dev/shm | head -3"
        assert (await kernel.execute(grep)).text == ""


async def test_sockets_of_services_cannot_be_reached(
    opened: OpenKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker, D-Bus and the agent of SSH by their variables, their usual places, and another kernel's directory."""
    runtime = Path(os.environ["XDG_RUNTIME_DIR"])
    with closing(socket.socket(socket.AF_UNIX)) as bus, closing(socket.socket(socket.AF_UNIX)) as docker:
        bus.bind(str(runtime / "bus"))
        docker.bind(str(runtime / "docker.sock"))
        for server in (bus, docker):
            server.listen()
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={runtime}/bus")
        monkeypatch.setenv("DOCKER_HOST", f"unix://{runtime}/docker.sock")
        monkeypatch.setenv("SSH_AUTH_SOCK", str(runtime / "bus"))
        async with opened() as kernel, opened() as other:
            assert other.pid is not None
            code = f"""
import os, socket
def reach(path):
    try: socket.socket(socket.AF_UNIX).connect(path)
    except OSError as error: return type(error).__name__
places = [{str(runtime)!r} + name for name in ("/bus", "/docker.sock")]
places += ["/var/run/docker.sock", "/run/docker.sock", "/run/dbus/system_bus_socket", "/run/containerd/containerd.sock"]
print(set(map(reach, places)), os.listdir("/run"), os.path.exists("/var"), os.path.exists({str(runtime)!r}))
print([name for name in ("DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "SSH_AUTH_SOCK") if name in os.environ])
"""
            found = await kernel.execute(code)
            assert found.text == "{'FileNotFoundError'} ['selfcompact'] False False\n[]"


async def test_settings_of_the_operating_system_cannot_be_written(opened: OpenKernel) -> None:
    """Not by root either: what the file systems allow to root is covered."""
    code = """
import os
def refused(path):
    try: os.close(os.open(path, os.O_WRONLY))
    except OSError: return True
places = ["/sys/kernel/uevent_helper", "/sys/power/state", "/sys/fs/cgroup/x", "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity"]
print([place for place in places if not refused(place)], os.path.exists("/sys"))
"""
    async with opened() as kernel:
        assert (await kernel.execute(code)).text == "[] False"


async def test_links_lead_out_neither_for_the_cell_nor_for_the_host(
    opened: OpenKernel, workspace: Path, tmp_path: Path
) -> None:
    """Hard links cannot be made across mounts; the host follows no link that a cell has left for it."""
    secret = tmp_path / "secret"
    secret.write_text("outside")
    async with opened({"read": [str(secret)]}) as kernel:
        await kernel.execute("import os")
        for source in (str(secret), "/etc/passwd", "/run/selfcompact/bridge/b"):
            result = await kernel.execute(f"os.link({source!r}, 'hard')")
            assert result.error_name in ("OSError", "PermissionError"), source
        # A snapshot is fetched from a directory that cells can write.
        await kernel.execute(f"os.symlink({str(secret)!r}, '/run/selfcompact/kernel/restore')")
        stored = tmp_path / "stored"
        stored.write_bytes(b"a snapshot")
        restored = await kernel.restore(stored)
        assert restored.problem
        assert secret.read_text() == "outside"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_what_lies_in_the_workspace_is_never_run_by_the_host(workspace: Path, tmp_path: Path) -> None:
    """Hooks of git, files that shells, Python and pytest run by themselves; a session with a compaction and a death."""
    mark = tmp_path / "mark"
    write = f"#!/bin/sh\ntouch {mark}\n"
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    names = (
        "pre-commit",
        "post-checkout",
        "post-index-change",
        "fsmonitor-watchman",
        "pre-push",
        "reference-transaction",
    )
    code = f"""
import os
for name in {names!r}:
    path = os.path.join(".git/hooks", name)
    open(path, "w").write({write!r}); os.chmod(path, 0o755)
open(".git/config", "a").write("[core]\\n\\tfsmonitor = .git/hooks/pre-commit\\n\\tpager = .git/hooks/pre-commit\\n")
for name in (".envrc", ".bashrc", ".profile"): open(name, "w").write({write!r})
python = "open({str(mark)!r}, 'w').close()\\n"
for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "selfcompact.py", "platformdirs.py", "setup.py"):
    open(name, "w").write(python)
os._exit(0)
"""
    steps = [sc.cell(code), sc.cell("print('x' * 9000)\nawait compact.run('keep it')"), sc.say("done")]
    model = sc.ScriptedModel(steps, context_window=32_000)
    settings = sc.Settings.model_validate({"compaction": {"keep_recent_tokens": 300, "reserve_tokens": 4000}})
    async with sc.open_session(
        model, workspace=workspace, session_file=tmp_path / "session.jsonl", settings=settings
    ) as session:
        await session.prompt("go")
    done = await anyio.run_process([sys.executable, "-m", "selfcompact", "settings"], cwd=tmp_path)
    assert done.returncode == 0
    assert (workspace / ".git/hooks/pre-commit").exists()
    assert not mark.exists()


async def test_a_cell_cannot_change_the_settings_that_the_host_reads_in_the_workspace(
    opened: OpenKernel, workspace: Path
) -> None:
    """They name commands that the host runs: a hook there would be a way out."""
    attack = json.dumps({"compaction": {"hooks": {"beforeCompact": [{"argv": ["true"]}]}}})
    code = f"""
import os
def attempt(action):
    try: action()
    except OSError: return "refused"
    return "done"
print(attempt(lambda: open(".selfcompact/settings.json", "w").write({attack!r})),
    attempt(lambda: os.rename(".selfcompact", "away")), attempt(lambda: os.rmdir(".selfcompact")),
    attempt(lambda: os.mkdir(".selfcompact")), attempt(lambda: os.unlink(".selfcompact/settings.json")))
"""
    async with opened() as kernel, opened() as other:
        assert (await kernel.execute(code)).text == "refused " * 4 + "refused"
        assert (await other.execute(code)).text == "refused " * 4 + "refused"
    assert os.listdir(workspace) == []  # noqa: PTH208 - it is the last look at a directory of ours
    file = workspace / PROJECT_FILE
    file.parent.mkdir()
    file.write_text("{}")
    async with opened() as kernel:
        assert (await kernel.execute("open('.selfcompact/settings.json').read()")).text == "'{}'"
        assert (await kernel.execute(code)).text == "refused " * 4 + "refused"
        file.write_text('{"model": "a:b"}')  # the user may, and the cell sees it
        assert "a:b" in (await kernel.execute("open('.selfcompact/settings.json').read()")).text
    assert load_settings(workspace).settings.compaction.hooks == sc.Settings().compaction.hooks


async def test_the_folder_of_settings_stays_while_any_sandbox_needs_it(workspace: Path) -> None:
    policy = sc.Settings().sandbox
    first, second = ProtectedDirs(workspace, policy), ProtectedDirs(workspace, policy)
    first.close()
    assert (workspace / ".selfcompact").is_dir()
    second.close()
    assert not (workspace / ".selfcompact").exists()
    (workspace / ".selfcompact").symlink_to("elsewhere")
    with pytest.raises(WorkspaceError, match="settings"):
        ProtectedDirs(workspace, policy)


def test_the_file_of_another_program_in_the_workspace_runs_nothing_and_sends_nothing(workspace: Path) -> None:
    file = workspace / ".prime/agent/settings.json"
    file.parent.mkdir(parents=True)
    dangerous = {"hooks": {"beforeCompact": [{"argv": ["true"]}]}, "remoteEndpoint": "https://example.org/"}
    file.write_text(json.dumps({"compaction": {**dangerous, "keepRecentTokens": 1234}}))
    compaction = load_settings(workspace).settings.compaction
    assert compaction.keep_recent_tokens == 1234
    assert compaction.hooks == sc.Settings().compaction.hooks
    assert compaction.remote_endpoint is None


async def test_an_interpreter_that_a_cell_has_changed_is_not_run_by_the_host(
    opened: OpenKernel, workspace: Path, tmp_path: Path
) -> None:
    python, mark = workspace / "python", tmp_path / "mark"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    async with opened(python=python) as kernel:
        await kernel.execute(f"open('python', 'w').write('#!/bin/sh\\ntouch {mark}\\n')")
        await kernel.restart()
        assert (await kernel.execute("1 + 1")).text == "2"
    assert not mark.exists()


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


async def test_keys_are_on_no_command_line_and_not_in_the_first_process(
    opened: OpenKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary0123456789")
    async with opened() as kernel:
        own = (await kernel.execute("import os\nos.environ['HOST_BRIDGE_KEY']")).text.strip("'")
        first = await kernel.execute("b'canary0123456789' in open('/proc/1/environ', 'rb').read()")
        assert first.error_name == "FileNotFoundError"
        for line in _command_lines():
            assert b"canary0123456789" not in line
            assert own.encode() not in line


@pytest.mark.slow
async def test_nothing_can_be_typed_into_the_terminal_of_the_host(tmp_path: Path, workspace: Path) -> None:
    """A host that is run in a terminal: cells have none, and TIOCSTI types nothing."""
    code = """
import fcntl, os
def type_into(descriptor):
    try: fcntl.ioctl(descriptor, 0x5412, b"x")
    except OSError: return "refused"
    return "typed"
def terminal():
    try: return type_into(os.open("/dev/tty", os.O_RDWR))
    except OSError: return "none"
print([type_into(number) for number in (0, 1, 2)], terminal())
"""
    program = f"""
import anyio, fcntl, pathlib, termios
from host_bridge.host.server import Dispatcher
from selfcompact.kernel import KernelSettings, SandboxPolicy, open_kernel
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
async def main():
    async with open_kernel(
        KernelSettings(), SandboxPolicy(), workspace=pathlib.Path({str(workspace)!r}), dispatcher=Dispatcher()
    ) as kernel:
        pathlib.Path({str(tmp_path / "result")!r}).write_text((await kernel.execute({code!r})).text)
anyio.run(main)
"""
    ours, theirs = os.openpty()
    with open(ours, "rb", buffering=0) as screen, open(theirs, "wb", buffering=0) as terminal:  # noqa: ASYNC230, PTH123
        await anyio.run_process(
            [sys.executable, "-c", program], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
        )
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(screen.fileno(), 1)
    assert (tmp_path / "result").read_text() == "['refused', 'refused', 'refused'] none"


@pytest.mark.slow
async def test_a_flood_of_requests_from_one_kernel_leaves_another_alone(opened: OpenKernel, host: Host) -> None:
    flood = """
import os, time, zmq
from host_bridge.wire.protocol import Address, Request, pack_request
address = Address.from_environment()
socket = zmq.Context.instance().socket(zmq.DEALER); socket.linger = 0
socket.connect(address.endpoint)
sent, end = 0, time.monotonic() + 2
while time.monotonic() < end:
    for kind in ("compact.status", "no.such.type"):
        request = Request(id=f"flood-{sent}", generation=address.generation, type=kind, payload={})
        frame = pack_request(address.key, request)
        try: socket.send(frame, zmq.NOBLOCK); socket.send(b"noise" * 20, zmq.NOBLOCK)
        except zmq.Again: pass
        sent += 1
socket.close(); sent > 1000
"""
    asking = """
import time
slowest = 0.0
for _ in range(20):
    began = time.perf_counter(); await compact.status(); slowest = max(slowest, time.perf_counter() - began)
slowest < 1.0
"""
    async with opened() as first, opened() as second, anyio.create_task_group() as tasks:
        tasks.start_soon(first.execute, flood)
        with anyio.fail_after(10):
            while first.bridge_stats.bad_signature < 10:
                await anyio.sleep(0.01)
        result = await second.execute(asking)
        assert result.text == "True", result.text
        assert second.bridge_stats.bad_signature == second.bridge_stats.unknown_type == 0


async def test_a_forged_message_changes_nothing(opened: OpenKernel, host: Host) -> None:
    """On IOPub with a wrong signature, as output and as a request; on the bridge with another key."""
    code = """
import json, os, secrets
from host_bridge.wire.protocol import Address, Request, pack_request
address, kernel = Address.from_environment(), get_ipython().kernel
request = pack_request(b"x" * 32, Request(id="forged", generation=address.generation, type="compact.run", payload={}))
parent = kernel.get_parent()["header"]
def forge(kind, content):
    header = {"msg_id": secrets.token_hex(8), "msg_type": kind, "version": "5.3", "session": "s", "username": "u"}
    parts = [json.dumps(part, default=str).encode() for part in (header, parent, {}, content)]
    kernel.iopub_thread.send_multipart([b"", b"<IDS|MSG>", b"0" * 64, *parts])
forge("stream", {"name": "stdout", "text": "forged output"})
forge("status", {"execution_state": "idle"})
forge("comm_open", {"comm_id": "c", "target_name": "host.request", "data": {"type": "compact.run", "payload": {}}})
import zmq
socket = zmq.Context.instance().socket(zmq.DEALER); socket.connect(address.endpoint); socket.send(request)
(await compact.status())["scheduled"]
"""
    async with opened() as kernel:
        result = await kernel.execute(code)
        assert result.text == "False", result.text
        assert kernel._current is not None
        assert kernel._current.channels.dropped >= 3
        with anyio.fail_after(5):
            while kernel.bridge_stats.bad_signature < 1:
                await anyio.sleep(0.01)
    assert host.asked == []
