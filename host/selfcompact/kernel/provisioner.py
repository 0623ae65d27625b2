"""A Jupyter kernel provisioner that starts kernels in the sandbox.

Registered as `selfcompact` under the entry point `jupyter_client.kernel_provisioners`: a kernel spec that names it in
its metadata gets the same sandbox from nbclient, JupyterLab or anything else that starts kernels:

    "metadata": {"kernel_provisioner": {"provisioner_name": "selfcompact", "config": {"policy": {"network": true}}}}
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Any as AnyTrait
from traitlets import Bool, Dict, Unicode

from selfcompact.kernel.process import OwnedProcess, read_info, start
from selfcompact.kernel.runtime import RuntimeDirectory, kernel_side_packages, make_runtime_directory
from selfcompact.sandbox import environment as env_rules
from selfcompact.sandbox.bubblewrap import find_bwrap, stage_argv
from selfcompact.sandbox.cgroup import ControlGroup, make_control_group
from selfcompact.sandbox.git_dirs import git_directory
from selfcompact.sandbox.interpreter import Interpreter, inspect_interpreter
from selfcompact.sandbox.mounts import (
    ETC,
    ETC_ONLINE,
    HOME,
    IN_MEMORY,
    INSIDE,
    SYSTEM,
    HostFacts,
    bwrap_argv,
    memory_mounts,
)
from selfcompact.sandbox.policy import SandboxPolicy
from selfcompact.sandbox.protected_dirs import ProtectedDirs
from selfcompact.sandbox.seccomp import seccomp_filter

INFO_TIMEOUT_S = 10.0
"""Bubblewrap says where its child is within milliseconds of its start."""

QUIET = {
    "DEBIAN_FRONTEND": "noninteractive",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "PIP_NO_INPUT": "1",
    "TERM": "dumb",
}
"""Programs that would wait for a person, or colour what only a model reads, are told that nobody is there."""


class SandboxProvisioner(KernelProvisionerBase):
    """Starts one kernel after the other in a sandbox made from a policy.

    It owns the kernel's process and, unless one was given, the private directory with its sockets; `cleanup` removes
    both. Connections are Unix sockets in that directory, whatever transport the manager was set to: the sandbox has
    no network that TCP could use.
    """

    policy = Dict(help="the fields of selfcompact.sandbox.policy.SandboxPolicy").tag(config=True)
    workspace = Unicode("", help="the directory cells work in; empty: the kernel's cwd").tag(config=True)
    own_launcher = Bool(False, help="start our own launcher with the spec's interpreter").tag(config=True)
    extra_environment = Dict(help="variables set beside the allowed ones").tag(config=True)
    runtime = AnyTrait(None, allow_none=True)
    status_fd = AnyTrait(None, allow_none=True)
    interpreter = AnyTrait(None, allow_none=True, help="what was found out about the spec's interpreter")

    process: OwnedProcess | None = None
    group: ControlGroup | None = None
    """The control group around the sandbox; None where this machine does not let us make one."""
    held_back: tuple[str, ...] = ()
    """Allowed variables that were not passed on because they look like keys."""

    _owns_runtime = False
    _settings: ProtectedDirs | None = None

    @property
    def has_process(self) -> bool:
        """Whether a kernel was started and not cleaned up."""
        return self.process is not None

    @property
    def settings(self) -> SandboxPolicy:
        """The policy, validated."""
        return SandboxPolicy.model_validate(self.policy)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Make the private directory, put the connection file there, and find the interpreter's parts."""
        if self.runtime is None:
            self.runtime, self._owns_runtime = make_runtime_directory(), True
        runtime: RuntimeDirectory = self.runtime
        manager = self.parent
        extra = kwargs.pop("extra_arguments", [])
        argv = list(self.kernel_spec.argv)
        if manager is not None:
            manager.transport, manager.ip = "ipc", str(runtime.kernel_dir / "k")
            manager.connection_file = str(runtime.kernel_dir / "connection.json")
            manager.write_connection_file()
            self.connection_info = manager.get_connection_info()
            argv = manager.format_kernel_cmd(extra_arguments=extra)
        sandboxed = self.settings.kind == "bwrap"
        inside = INSIDE / "kernel" if sandboxed else runtime.kernel_dir
        seen = _write_inside(runtime.kernel_dir, inside)
        outside = str(runtime.kernel_dir / "connection.json")
        argv = [part.replace(outside, seen) for part in argv]
        if self.own_launcher:
            lib = INSIDE / "lib" if sandboxed else runtime.lib_dir
            argv = [argv[0], "-I", str(lib / "agent_kernel" / "launch.py"), "-f", seen, *extra]
        return await super().pre_launch(cmd=argv, **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel. The sandbox ends with the calling thread."""
        policy, runtime = self.settings, self.runtime
        workspace = _real(self.workspace or kwargs.get("cwd") or ".")
        interpreter = self.interpreter or inspect_interpreter(Path(cmd[0]))
        packages = kernel_side_packages()
        environment, self.held_back = self._environment(interpreter, policy, runtime, kwargs.get("env") or {})
        output = kwargs.get("stdout", subprocess.DEVNULL)
        pass_fds = [self.status_fd] if self.status_fd is not None else []
        if policy.kind == "none":
            for name, path in packages.items():
                (runtime.lib_dir / name).unlink(missing_ok=True)
                (runtime.lib_dir / name).symlink_to(path)
            popen = start(cmd, environment=environment, cwd=workspace, output=output, pass_fds=pass_fds)
            self.process = OwnedProcess(popen, sandboxed=False)
            return self.connection_info
        bwrap = find_bwrap((workspace, *policy.write))
        facts = _look_around(workspace, interpreter, runtime, packages, counts_files=bwrap.counts_files)
        self._settings = ProtectedDirs(workspace, policy)
        shown = {**_git(workspace, policy), **self._settings.shown, **_kept(interpreter, workspace, policy)}
        facts = replace(facts, read_only=shown)
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            info, info_fd = _pipe(ours, theirs)
            block_fd, release = _pipe(theirs, ours)
            fds = {"info_fd": info_fd, "block_fd": block_fd, "seccomp_fd": _filter(theirs)}
            argv = bwrap_argv(bwrap.path, policy, facts, cmd, **fds)
            if facts.memory_dirs:
                argv = stage_argv(memory_mounts(policy, facts), argv)
            inherited = [*pass_fds, *(fd for fd in fds.values() if fd is not None)]
            popen = start(argv, environment=environment, cwd=workspace, output=output, pass_fds=inherited)
            theirs.close()
            self.process = OwnedProcess(popen, sandboxed=True)
            self.group = make_control_group(processes=policy.processes, memory=policy.memory)
            init = await read_info(info, INFO_TIMEOUT_S)
            if init is not None:
                self.process.adopt_init(init)
            if self.group is not None:
                # Before anything runs inside: what is started later is in the group from its beginning.
                for pid in (popen.pid, init):
                    if pid is not None:
                        self.group.add(pid)
            with contextlib.suppress(OSError):  # it may have failed already, which the caller finds out
                os.write(release, b"1")
        return self.connection_info

    def _environment(
        self, interpreter: Interpreter, policy: SandboxPolicy, runtime: RuntimeDirectory, wanted: dict[str, str]
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        passed, held_back = env_rules.allowed({**os.environ, **wanted}, policy.env)
        home = HOME if policy.kind == "bwrap" else runtime.path / "home"
        if policy.kind == "none":
            home.mkdir(mode=0o700, exist_ok=True)
        limits = {
            name: None if value is None else int(value)
            for name in ("memory", "processes", "file_size", "open_files", "cpu_seconds")
            if (value := getattr(policy, name)) is not None
        }
        if policy.kind == "none":
            limits["parent"] = os.getpid()
        environment = {
            **passed,
            **QUIET,
            "PATH": os.pathsep.join([str(interpreter.executable.parent), "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(home),
            "IPYTHONDIR": str(home / ".ipython"),
            "TMPDIR": "/tmp",  # noqa: S108 - private inside the sandbox
            **self.extra_environment,
        }
        if self.own_launcher:
            environment["HOST_BRIDGE_LIMITS"] = json.dumps(limits)
        if self.status_fd is not None:
            environment["HOST_BRIDGE_STATUS_FD"] = str(self.status_fd)
        return environment, held_back

    def out_of_memory(self) -> bool:
        """Whether the operating system ended a process of the sandbox because the sandbox's memory was used up."""
        return self.group is not None and self.group.killed_for_memory()

    @property
    def cgroup_limits(self) -> frozenset[str]:
        """What is limited for all processes of the sandbox together: `pids`, `memory`, both or none."""
        return self.group.limited if self.group is not None else frozenset()

    async def poll(self) -> int | None:
        """The exit code, or None while the kernel runs."""
        return self.process.returncode if self.process else 0

    async def wait(self) -> int | None:
        """Wait for the kernel, and everything in its sandbox, to end."""
        if self.process is None:
            return 0
        code = await self.process.wait()
        self._forget()
        return code

    async def send_signal(self, signum: int) -> None:
        """Signal the kernel and its children, never the sandbox around them; SIGKILL ends the sandbox too."""
        if self.process is None:
            return
        if signum == signal.SIGKILL:
            self.process.kill()
        else:
            self.process.signal(signum)

    async def kill(self, restart: bool = False) -> None:  # noqa: ARG002 - the base class names it
        """End the kernel and everything in its sandbox at once."""
        if self.process is not None:
            self.process.kill()

    async def terminate(self, restart: bool = False) -> None:  # noqa: ARG002 - the base class names it
        """Ask the kernel to end."""
        await self.send_signal(signal.SIGTERM)

    async def cleanup(self, restart: bool = False) -> None:
        """Give everything back. Before a restart the private directory stays: clients are connected to its sockets."""
        self._forget()
        if not restart and self._owns_runtime and self.runtime is not None:
            await asyncio.to_thread(self.runtime.remove)
            self.runtime = None
        if not restart and self.parent is not None:
            self.parent.connection_file = ""

    def _forget(self) -> None:
        if self._settings is not None:
            self._settings.close()
            self._settings = None
        if self.group is not None:
            self.group.remove()
        if self.process is not None:
            self.process.close()
            self.process = None


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed by the two stacks."""
    ends = os.pipe()
    reader.callback(os.close, ends[0])
    writer.callback(os.close, ends[1])
    return ends


def _filter(stack: contextlib.ExitStack) -> int | None:
    """A descriptor from which bubblewrap reads the filter of system calls; None where there is none."""
    data = seccomp_filter(platform.machine())
    if data is None:
        return None
    descriptor = os.memfd_create("seccomp")
    stack.callback(os.close, descriptor)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _real(path: str) -> Path:
    """Resolved, so that what is mounted is what is worked in. One look at a local disk."""
    return Path(path).resolve()


def _write_inside(directory: Path, inside: Path) -> str:
    """Write the connection file as the kernel sees its directory, and return that file's path in its eyes."""
    outside = directory / "connection.json"
    if outside.exists() and directory != inside:
        info = json.loads(outside.read_text())
        info["ip"] = str(inside / "k")
        target = directory / "inside.json"
        target.touch(mode=0o600)
        target.write_text(json.dumps(info))
        return str(inside / "inside.json")
    return str(inside / "connection.json")


def _git(workspace: Path, policy: SandboxPolicy) -> dict[Path, Path]:
    """The real git directory of a worktree or a submodule, to be read; `sandbox.write` wins."""
    found = git_directory(workspace)
    written = (workspace, *policy.write)
    if found is None or any(place == found or place in found.parents for place in written):
        return {}
    return {found: found}


def _kept(interpreter: Interpreter, workspace: Path, policy: SandboxPolicy) -> dict[Path, Path]:
    """Where in the workspace the interpreter lies: the host runs it at each session's start, so no cell may change it.

    The folder right below the workspace, as one further up could be put aside by its name. `sandbox.write` wins.
    """
    found = set()
    for prefix in interpreter.prefixes:
        if workspace in prefix.parents:
            top = workspace / prefix.relative_to(workspace).parts[0]
            if top.is_dir() and top not in policy.write:
                found.add(top)
    return {top: top for top in found}


def _look_around(
    workspace: Path, interpreter: Interpreter, runtime: RuntimeDirectory, packages: Any, *, counts_files: bool
) -> HostFacts:
    """What the planning of the sandbox has to know about this machine."""
    memory_dirs = {place: runtime.memory_dir / place.name for place in IN_MEMORY} if counts_files else {}
    for directory in memory_dirs.values():
        directory.mkdir(mode=0o700, exist_ok=True)
    system = [Path(path) for path in SYSTEM]
    etc = [Path("/etc") / name for name in (*ETC, *ETC_ONLINE)]
    links = {path: str(path.readlink()) for path in system if path.is_symlink()}
    return HostFacts(
        workspace=workspace,
        needs=interpreter.needs,
        kernel_dir=runtime.kernel_dir,
        bridge_dir=runtime.bridge_dir,
        packages=packages,
        present=frozenset(path for path in (*system, *etc) if path.exists()),
        links=links,
        uid=os.getuid(),
        gid=os.getgid(),
        memory_dirs=memory_dirs,
    )
