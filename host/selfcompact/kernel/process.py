"""The kernel's process as its owner holds it: by descriptors, never by a bare number that may be somebody else's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

_PIDFD_SIGNAL_PROCESS_GROUP = 4
"""Linux 6.9: the signal goes to the whole process group, without a moment in which the number could be reused."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_CREDENTIALS = struct.Struct("3i")


class OwnedProcess:
    """A started process, and with a sandbox around the kernel also the first process inside.

    The thread that made it owns it. `close` gives the descriptors back; the process itself is ended by `kill`.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, sandboxed: bool) -> None:
        self._process = process
        self._outer = os.pidfd_open(process.pid)
        self._sandboxed = sandboxed
        self._init: int | None = None
        self._kernel: int | None = None if sandboxed else os.pidfd_open(process.pid)
        self.pid: int | None = None if sandboxed else process.pid
        """The kernel's own process, as the host numbers it; None until it is known."""

    @property
    def outer(self) -> int:
        """The descriptor that becomes readable when the started process has ended."""
        return self._outer

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal, None while it runs. Bubblewrap reports a signal as 128 + number."""
        code = self._process.poll()
        if code is not None and self._sandboxed and code > 128:
            return 128 - code
        return code

    def adopt_init(self, pid: int) -> None:
        """Remember the first process of the sandbox, whose end is the end of all others in it."""
        with contextlib.suppress(OSError):
            self._init = os.pidfd_open(pid)

    def adopt_kernel(self, pid: int) -> None:
        """Remember which process is the kernel, so that interrupts reach it and not the sandbox."""
        if self._kernel is None:
            with contextlib.suppress(OSError):
                self._kernel = os.pidfd_open(pid)
                self.pid = pid

    def find_kernel(self) -> None:
        """Look the kernel up among the children of the sandbox's first process, for kernels that do not report."""
        if self._kernel is not None or self._init is None:
            return
        with contextlib.suppress(OSError, ValueError):
            init = _pid_of(self._init)
            children = Path(f"/proc/{init}/task/{init}/children").read_text().split()
            if children:
                self.adopt_kernel(int(children[0]))

    def signal(self, number: int) -> bool:
        """Send a signal to the kernel and its children. False when there is nobody to send it to."""
        self.find_kernel()
        if self._kernel is None or self.returncode is not None:
            return False
        try:
            signal.pidfd_send_signal(self._kernel, number, None, _PIDFD_SIGNAL_PROCESS_GROUP)
        except ProcessLookupError:
            return False
        except OSError:  # an older system: a group's number cannot be reused while its leader is there to be asked
            try:
                signal.pidfd_send_signal(self._kernel, 0)
                os.killpg(self.pid or 0, number) if self.pid else None
            except OSError:
                return False
        return True

    def kill_children_since(self, boot_s: float) -> None:
        """End every process below the kernel, or left in its sandbox, that started at `boot_s` or later.

        `boot_s` is in seconds on the clock CLOCK_BOOTTIME. A child in a session of its own gets no interrupt that is
        sent to the kernel's group, and one that was being started at that moment may be known to nobody.
        """
        root = _pid_of(self._init) if self._init is not None else self.pid
        if root is None or self.returncode is not None:
            return
        for pid, started_s in _descendants(root).items():
            if pid != self.pid and started_s >= boot_s:
                with contextlib.suppress(OSError):
                    descriptor = os.pidfd_open(pid)
                    try:
                        if _descendants(root).get(pid) == started_s:  # it is still the same process
                            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    finally:
                        os.close(descriptor)

    def kill(self) -> None:
        """End the process and, with a sandbox, every process in it. Never raises; `wait` tells when it is done."""
        if not self._sandboxed:
            self.signal(signal.SIGKILL)
        for descriptor in (self._init, self._outer):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    async def wait(self) -> int:
        """Wait until it has ended, and everything in its sandbox too; return the exit code. May be cancelled."""
        await readable(self._outer)
        if self._init is not None:
            await readable(self._init)
        self._process.wait()
        code = self.returncode
        return 0 if code is None else code

    def close(self) -> None:
        """Give the descriptors back. May be called twice."""
        for descriptor in (self._outer, self._init, self._kernel):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._outer, self._init, self._kernel = -1, None, None


async def readable(descriptor: int) -> None:
    """Wait until a descriptor can be read. Safe to cancel."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    # A duplicate, so that two waiters do not take each other's place in the loop.
    copy = os.dup(descriptor)
    loop.add_reader(copy, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(copy)
        os.close(copy)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class StatusChannel:
    """The socket on which the launcher says how far it came; each word carries the sender's process number.

    The operating system writes that number, as this side sees it, so a sandbox cannot make one up.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._ours.setblocking(False)
        self.stage = "sandbox"
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, on_stage: Callable[[str, int], None]) -> None:
        """Call back with each stage and process number from now on; the empty stage means the other side is gone."""
        self.theirs.close()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ours.fileno(), self._read, on_stage)

    def close(self) -> None:
        """Stop reading. May be called twice."""
        if self._loop is not None and self._ours.fileno() >= 0:
            self._loop.remove_reader(self._ours.fileno())
        self._ours.close()
        self.theirs.close()

    def _read(self, on_stage: Callable[[str, int], None]) -> None:
        try:
            data, ancillary, _, _ = self._ours.recvmsg(64, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        pid = next((_CREDENTIALS.unpack(raw)[0] for level, kind, raw in ancillary if kind == socket.SCM_CREDENTIALS), 0)
        if not data and self._loop is not None:
            self._loop.remove_reader(self._ours.fileno())
        self.stage = data.decode(errors="replace") or self.stage
        on_stage(data.decode(errors="replace"), pid)


async def read_info(descriptor: int, timeout_s: float) -> int | None:
    """The process number of the sandbox's first process, from bubblewrap's --info-fd; None when none came."""
    data = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while b"}" not in data:
                await readable(descriptor)
                chunk = os.read(descriptor, 4096)
                if not chunk:
                    break
                data += chunk
    try:
        return int(json.loads(data)["child-pid"])
    except (ValueError, KeyError, TypeError):
        return None


def _descendants(root: int) -> dict[int, float]:
    """The processes below `root`, and when each was started, in seconds since the machine was."""
    parents: dict[int, int] = {}
    started: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            pid = int(path.parent.name)
            parents[pid], started[pid] = int(fields[1]), int(fields[19]) / _TICKS_PER_S
    found: dict[int, float] = {}
    frontier = [root]
    while frontier:
        parent = frontier.pop()
        for pid in [pid for pid, its_parent in parents.items() if its_parent == parent and pid not in found]:
            found[pid] = started[pid]
            frontier.append(pid)
    return found


def _pid_of(pidfd: int) -> int:
    text = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pid:"))


def start(
    argv: Sequence[str], *, environment: dict[str, str], cwd: Path, output: int, pass_fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with no input.

    Call it on a thread that lives as long as the process shall: "die with the parent" means that thread.
    """
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        cwd=cwd,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
        bufsize=0,
    )
