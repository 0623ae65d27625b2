"""One kernel from its start to its end: directory, bridge, process, channels. A restart is another generation.

Everything is opened and closed by one task, in one function, in nested blocks; others see a `Generation` and its
events. That is what keeps a kernel's sockets, descriptors and directory from outliving it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from host_bridge.host.comm import CommEnd
from host_bridge.host.connection import TimeShare
from host_bridge.host.dispatcher import Dispatcher
from host_bridge.host.server import BridgeServer, BridgeStats
from selfcompact.errors import KernelDied, KernelStartError
from selfcompact.kernel.channels import Channels, message_bytes
from selfcompact.kernel.process import OwnedProcess, StatusChannel, readable
from selfcompact.kernel.provisioner import SandboxProvisioner
from selfcompact.kernel.runtime import RuntimeDirectory, make_runtime_directory
from selfcompact.sandbox.interpreter import Interpreter
from selfcompact.sandbox.mounts import INSIDE
from selfcompact.sandbox.policy import SandboxPolicy
from selfcompact.settings.kernel import KernelSettings

HELLO_EVERY_S = 0.05
"""How often a starting kernel is asked whether it listens, once it has said that it is up."""

STOP_GRACE_S = 1.0
"""How long a kernel may take to end by itself before it is killed."""

KILL_WAIT_S = 5.0
"""How long the end of a killed sandbox is waited for; it comes within milliseconds unless the disk hangs."""

LAST_WORDS_S = 0.5
"""How long what a dead kernel had sent is still read, at most."""

_OUTPUT_TAIL_BYTES = 8192


@dataclass(frozen=True)
class Recipe:
    """What every generation of a kernel is made from."""

    settings: KernelSettings
    policy: SandboxPolicy
    workspace: Path
    dispatcher: Dispatcher
    interpreter: Interpreter
    """Found out before the first cell ran. It is not asked again: a cell may have changed what would answer."""


class Generation:
    """A kernel that is up. Made by `run_generation`, whose task owns it; other tasks use `channels` and the events."""

    def __init__(
        self,
        number: int,
        process: OwnedProcess,
        channels: Channels,
        stats: BridgeStats,
        directories: tuple[Path, Path],
        out_of_memory: Callable[[], bool],
        cgroup_limits: frozenset[str],
    ) -> None:
        self.number, self.process, self.channels, self.stats = number, process, channels, stats
        self._directories = directories
        self.out_of_memory = out_of_memory
        self.cgroup_limits = cgroup_limits
        """What a control group limits for all processes cgroup_limits: `pids`, `memory`, both or none."""
        self.pid = process.pid
        self.stop, self.dead, self.closed = anyio.Event(), anyio.Event(), anyio.Event()
        self.death: KernelDied | None = None
        self.wedged = False
        """Set with `stop` for a kernel that did not answer: it is killed without being asked to end."""

    def shared_file(self, name: str) -> tuple[Path, str]:
        """A file in the directory that host and kernel share, as each of them sees it."""
        outside, inside = self._directories
        return outside / name, str(inside / name)

    @property
    def usable(self) -> bool:
        """Whether a cell can be sent to it."""
        return not (self.dead.is_set() or self.stop.is_set())

    def interrupt(self) -> None:
        """SIGINT to the kernel and its children."""
        self.process.signal(signal.SIGINT)


async def run_generation(recipe: Recipe, number: int, *, task_status: anyio.abc.TaskStatus[Generation]) -> None:
    """Start a kernel, report it when it answers, and keep it until its `stop` is set or it dies; then clean up.

    Raises:
        KernelStartError, SandboxUnavailable: before it was reported.
    """
    async with _runtime() as runtime:
        endpoint = f"ipc://{runtime.bridge_dir}/b"
        key, share = secrets.token_bytes(32), TimeShare()
        async with BridgeServer(
            recipe.dispatcher, endpoint=endpoint, key=key, generation=number, share=share
        ) as server:
            start = _Start(recipe, runtime, server, share)
            generation: Generation | None = None
            try:
                with anyio.move_on_after(recipe.settings.start_timeout_s):
                    generation = await start.run(number)
                if generation is None:
                    raise start.failed(f"it was not ready within {recipe.settings.start_timeout_s:g} s")
                task_status.started(generation)
                await _until_over(generation)
            finally:
                with anyio.CancelScope(shield=True):
                    await start.close(generation)


async def _until_over(generation: Generation) -> None:
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            code = await generation.process.wait()
            generation.death = _death(code, generation.number, out_of_memory=generation.out_of_memory())
            await generation.channels.until_quiet(LAST_WORDS_S)
            generation.dead.set()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        await generation.stop.wait()
        tasks.cancel_scope.cancel()


def _death(code: int, number: int, *, out_of_memory: bool) -> KernelDied:
    if out_of_memory:
        reason = "the memory limit of its sandbox was reached (sandbox.memory)"
        return KernelDied(reason, signal=signal.SIGKILL, generation=number)
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        reason = f"its process was ended by {name}"
        if -code == signal.SIGXCPU:
            reason += ", because its seconds of a processor were used up (sandbox.cpuSeconds)"
        if -code == signal.SIGKILL:
            reason += " (the memory of the machine may have run out)"
        return KernelDied(reason, signal=-code, generation=number)
    return KernelDied(f"its process ended with exit code {code}", exit_code=code, generation=number)


class _Start:
    """The steps of a start, and their undoing in reverse order."""

    def __init__(self, recipe: Recipe, runtime: RuntimeDirectory, server: BridgeServer, share: TimeShare) -> None:
        self._recipe, self._runtime, self._server, self._share = recipe, runtime, server, share
        self._status = StatusChannel()
        self._ready = anyio.Event()
        self._output = _OutputTail()
        self._provisioner: SandboxProvisioner | None = None
        self._process: OwnedProcess | None = None
        self._channels: Channels | None = None

    async def run(self, number: int) -> Generation:
        provisioner = self._provisioner = self._provision()
        arguments = await provisioner.pre_launch(env={}, cwd=str(self._recipe.workspace))
        command = arguments.pop("cmd")
        await provisioner.launch_kernel(command, stdout=self._output.theirs, **arguments)
        process = self._process = provisioner.process
        assert process is not None
        self._output.watch()
        self._status.watch(self._on_stage)
        channels: Channels | None = None
        async with anyio.create_task_group() as tasks:

            async def give_up_on_death() -> None:
                await readable(process.outer)
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up_on_death)
            await self._ready.wait()
            self._channels = Channels(provisioner.connection_info, self._recipe.settings, self._share)
            while True:
                answer = await self._channels.ask("shell", "kernel_info_request", {}, HELLO_EVERY_S)
                if answer is not None and self._channels.heard_iopub.is_set():
                    break
            channels = self._channels
            tasks.cancel_scope.cancel()
        if channels is None:
            await process.wait()
            raise self.failed(f"its process ended with exit code {process.returncode}")
        process.find_kernel()
        inside = INSIDE / "kernel" if self._recipe.policy.kind == "bwrap" else self._runtime.kernel_dir
        directories = (self._runtime.kernel_dir, inside)
        address = self._server.address
        comm = CommEnd(
            self._server.line,
            key=address.key,
            generation=number,
            send=lambda kind, content: channels.send("control", kind, content),
        )
        channels.on_comm = comm.receive
        return Generation(
            number,
            process,
            channels,
            self._server.stats,
            directories,
            provisioner.out_of_memory,
            provisioner.cgroup_limits,
        )

    def failed(self, problem: str) -> KernelStartError:
        """The error that says how far the start came."""
        return KernelStartError(self._status.stage, problem, self._output.text())

    async def close(self, generation: Generation | None) -> None:
        """Let the kernel end by itself, kill it when it does not, and give everything back. Bounded."""
        # A start that is cancelled in the middle of launching has a process that it was not given yet.
        process = self._process or (self._provisioner.process if self._provisioner is not None else None)
        if process is not None:
            if generation is not None and not (generation.dead.is_set() or generation.wedged):
                generation.channels.send("control", "shutdown_request", {"restart": False})
                with anyio.move_on_after(STOP_GRACE_S):
                    await process.wait()
            process.kill()
            with anyio.move_on_after(KILL_WAIT_S):
                await process.wait()
        if self._channels is not None:
            self._channels.close()
        if self._provisioner is not None:
            await self._provisioner.cleanup()
        self._status.close()
        self._output.close()
        if generation is not None:
            generation.dead.set()
            generation.closed.set()

    def _provision(self) -> SandboxProvisioner:
        settings, policy = self._recipe.settings, self._recipe.policy
        interpreter = self._recipe.interpreter
        inside_bridge = self._server.address
        endpoint = f"ipc://{INSIDE}/bridge/b" if policy.kind == "bwrap" else inside_bridge.endpoint
        address = replace(inside_bridge, endpoint=endpoint)
        config = {
            "policy": policy.model_dump(mode="json", by_alias=True),
            "workspace": str(self._recipe.workspace),
            "own_launcher": True,
            "extra_environment": {
                **address.to_environment(),
                "HOST_BRIDGE_OUTPUT_HEAD": str(settings.output_head_bytes + settings.output_tail_bytes),
                "HOST_BRIDGE_OUTPUT_TAIL": str(settings.output_tail_bytes),
                "HOST_BRIDGE_MESSAGE": str(message_bytes(settings)),
            },
            "runtime": self._runtime,
            "interpreter": interpreter,
            "status_fd": self._status.theirs.fileno(),
        }
        spec = KernelSpec(
            argv=[str(interpreter.executable), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="selfcompact",
            language="python",
            metadata={"kernel_provisioner": {"provisioner_name": "selfcompact", "config": config}},
        )
        manager = AsyncKernelManager(kernel_name="")
        manager._kernel_spec = spec
        provisioner = KernelProvisionerFactory.instance().create_provisioner_instance("agent", spec, parent=manager)
        assert isinstance(provisioner, SandboxProvisioner)
        return provisioner

    def _on_stage(self, stage: str, pid: int) -> None:
        if pid and self._process is not None:
            self._process.adopt_kernel(pid)
        if stage == "ready":
            self._ready.set()


class _OutputTail:
    """The pipe that the kernel's process writes its own output to; the last part of it is kept for error messages."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._watching = False

    def watch(self) -> None:
        os.close(self.theirs)
        self.theirs = -1
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ours, self._read)
        self._watching = True

    def text(self) -> str:
        if self._watching:
            self._read()
        return b"".join(self._chunks)[-_OUTPUT_TAIL_BYTES:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        if self._watching:
            self._loop.remove_reader(self._ours)
            self._watching = False
        for descriptor in (self._ours, self.theirs):
            if descriptor >= 0:
                os.close(descriptor)
        self._ours = self.theirs = -1

    def _read(self) -> None:
        try:
            data = os.read(self._ours, 65536)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._ours)
            return
        self._chunks.append(data[-_OUTPUT_TAIL_BYTES:])
        self._size += len(self._chunks[-1])
        while self._size - len(self._chunks[0]) >= _OUTPUT_TAIL_BYTES:
            self._size -= len(self._chunks.popleft())


@contextlib.asynccontextmanager
async def _runtime() -> AsyncIterator[RuntimeDirectory]:
    directory = make_runtime_directory()
    try:
        yield directory
    finally:
        # Cells may have filled it with whatever takes long to remove, and other sessions live on this loop.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(directory.remove)
