"""Try the sandbox from inside, and say line by line what holds: what `selfcompact sandbox` prints.

A real kernel is started with the settings in force. It is given every chance: the host opens a port, an abstract socket
and a file, and puts a canary into its environment, and a cell then tries to reach them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host_bridge.host.dispatcher import Dispatcher
from selfcompact.kernel.kernel import open_kernel
from selfcompact.sandbox.bubblewrap import find_bwrap
from selfcompact.sandbox.policy import SandboxPolicy
from selfcompact.settings.kernel import KernelSettings

PROBE_TIMEOUT_S = 30.0

CANARY = "SELFCOMPACT_PROBE_API_KEY"

_CODE = """
import ctypes, errno, json, os, resource, socket
given = json.loads({given!r})
libc = ctypes.CDLL(None, use_errno=True)
def reach(family, address):
    with socket.socket(family) as s:
        s.settimeout(2)
        try: s.connect(address)
        except OSError: return False
        return True
def writes(folder):
    path = os.path.join(folder, ".selfcompact-probe")
    try: open(path, "w").close()
    except OSError: return False
    os.unlink(path)
    return True
def reads(path):
    try: return bool(open(path, "rb").read(1))
    except OSError: return False
def opens(path):
    try: os.close(os.open(path, os.O_WRONLY))
    except OSError: return False
    return True
def refused(number, *arguments):
    ctypes.set_errno(0)
    return libc.syscall(number, *arguments) == -1 and ctypes.get_errno() == errno.EPERM
def status(field):
    return next((l.split()[1] for l in open("/proc/self/status") if l.startswith(field)), "")
def no_socket(family):
    try: socket.socket(family, socket.SOCK_STREAM).close()
    except OSError as error: return error.errno in (errno.EPERM, errno.EAFNOSUPPORT)
    return False
def writable_memory():
    found = []
    for process in os.listdir("/proc"):
        if process.isdigit() and int(process) != os.getpid() and opens("/proc/" + process + "/mem"):
            found.append(process)
    return found
def environs():
    found = [name for name in os.environ if name == given["canary"]]
    for process in os.listdir("/proc"):
        if process.isdigit():
            try: found += [process] * (given["canary"].encode() in open("/proc/" + process + "/environ", "rb").read())
            except OSError: pass
    return bool(found)
x86 = os.uname().machine == "x86_64"
try: socket.getaddrinfo("example.com", 80); dns = True
except OSError: dns = False
print(json.dumps(dict(
    loopback=reach(socket.AF_INET, ("127.0.0.1", given["port"])),
    abstract=reach(socket.AF_UNIX, "\\0" + given["abstract"]), dns=dns,
    workspace=writes("."), system=writes("/usr"), root=writes("/"), etc=writes("/etc"), tmp=writes("/tmp"),
    home=writes(os.path.expanduser("~")), file=reads(given["file"]), shadow=reads("/etc/shadow"),
    tunable=[path for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/power/state")
        if opens(path)], canary=environs(), processes=sum(name.isdigit() for name in os.listdir("/proc")),
    host_process=os.path.exists("/proc/%d/cmdline" % given["pid"]) and given["pid"] > 20
        and given["marker"].encode() in open("/proc/%d/environ" % given["pid"], "rb").read(),
    userns=refused(272 if x86 else 97, 0x10000000), keyring=refused(250 if x86 else 219, 0, 0, 0),
    ptrace=all(refused(number, 16, 1, 0, 0) for number in ((101, 310, 311, 312) if x86 else (117, 270, 271, 272))),
    vsock=no_socket(40), memory_of=writable_memory(),
    seccomp=status("Seccomp:"), capabilities=status("CapEff:") + status("CapBnd:"), privileges=status("NoNewPrivs:"),
    devices=sorted(os.listdir("/dev")), sockets=sorted(os.listdir("/run/selfcompact/bridge")),
    memory=resource.getrlimit(resource.RLIMIT_AS)[0], file_size=resource.getrlimit(resource.RLIMIT_FSIZE)[0],
    open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    tmp_files=max(os.statvfs(path).f_files for path in ("/tmp", "/dev/shm", os.path.expanduser("~"))),
    processes_max=resource.getrlimit(resource.RLIMIT_NPROC)[0],
)))
"""

_HARMLESS_DEVICES = {
    "console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
    "urandom", "zero",
}  # fmt: skip


@dataclass(frozen=True)
class ProbeRow:
    """One line of the table: what is promised, and whether it was seen to hold just now.

    `verified` is None where nothing is promised, as without a sandbox.
    """

    topic: str
    promise: str
    verified: bool | None
    detail: str = ""


async def probe_sandbox(settings: KernelSettings, policy: SandboxPolicy, *, workspace: Path) -> tuple[ProbeRow, ...]:
    """Start a kernel with these settings, try it from inside, and say what holds.

    Takes about a second. Leaves nothing behind, in the workspace neither.

    Raises:
        SandboxUnavailable, KernelStartError, WorkspaceError: as `open_kernel`.
    """
    if policy.kind == "none":
        return (ProbeRow("sandbox", "there is none: cells run with all your rights", None),)
    with _bait() as given:
        async with open_kernel(settings, policy, workspace=workspace, dispatcher=Dispatcher()) as kernel:
            together = kernel.cgroup_limits
            result = await kernel.execute(_CODE.format(given=json.dumps(given)), timeout_s=PROBE_TIMEOUT_S)
    try:
        found = json.loads(result.text)
    except ValueError:
        return (ProbeRow("sandbox", "it can be tried from inside", False, result.text[-500:]),)
    bwrap = find_bwrap((workspace, *policy.write))
    found |= {"together": together, "counts_files": bwrap.counts_files, "as_root": os.getuid() == 0}
    return judge(policy, found)


def judge(policy: SandboxPolicy, found: Mapping[str, Any]) -> tuple[ProbeRow, ...]:
    """From what a cell found to the rows of the table. Pure."""
    online = policy.network
    writable = policy.workspace == "read-write"

    def row(topic: str, promise: str, holds: bool, detail: str = "") -> ProbeRow:
        return ProbeRow(topic, promise, bool(holds), detail)

    odd_devices = sorted(set(found["devices"]) - _HARMLESS_DEVICES)
    rows = [
        row("read", "the interpreter and the system, not your files", not found["file"]),
        row("read", "no password file, even as root", not found["shadow"]),
        row("read", "no environment of the host, in no process", not found["canary"]),
        row("write", f"the workspace is {'writable' if writable else 'read-only'}", found["workspace"] == writable),
        row("write", "a private /tmp and home, in memory", found["tmp"] and found["home"]),
        row("write", "nothing else of the system", not (found["system"] or found["root"] or found["etc"])),
        row("write", "no settings of the operating system", not found["tunable"], " ".join(found["tunable"])),
    ]
    if online:
        promise = "the host's network, with the services on its loopback"
        rows.append(row("reach", promise, found["loopback"]))
    else:
        rows.append(row("reach", "no network: no loopback of the host", not found["loopback"]))
        rows.append(row("reach", "no abstract sockets of the host", not found["abstract"]))
        rows.append(row("reach", "no name resolution", not found["dns"]))
    rows += [
        row("reach", "its own bridge socket and no other", found["sockets"] == ["b"], " ".join(found["sockets"])),
        row("reach", "no process of the host", not found["host_process"], f"{found['processes']} processes in sight"),
        row("use", "no privileges", set(found["capabilities"]) == {"0"} and found["privileges"] == "1"),
        row("use", "no new user namespaces", found["userns"]),
        row("use", "no kernel key rings, and other calls filtered", found["keyring"] and found["seccomp"] == "2"),
        row("use", "no looking into another process (ptrace, process_vm_*, kcmp)", found["ptrace"]),
        row("use", "no memory of the sandbox's first process", not found["memory_of"], " ".join(found["memory_of"])),
        row("reach", "no sockets past network namespaces (vsock)", found["vsock"]),
        row("use", "no devices but the harmless ones", not odd_devices, " ".join(odd_devices)),
    ]
    limits = (("memory", "memory"), ("file_size", "file_size"), ("open_files", "open_files"))
    for name, key in limits:
        limit = getattr(policy, name)
        if limit is not None:
            rows.append(row("limit", f"{name.replace('_', ' ')}: {int(limit):,}", 0 <= found[key] <= int(limit)))
    if policy.processes is not None:
        if "pids" in found["together"] or not found["as_root"]:
            held = 0 <= found["processes_max"] <= policy.processes
            rows.append(row("limit", f"processes: {policy.processes:,}", held))
        else:
            rows.append(ProbeRow("limit", "processes: none, as root without a control group", None))
    if policy.tmp_files is not None:
        if found["counts_files"]:
            held = 0 < found["tmp_files"] <= policy.tmp_files
            rows.append(row("limit", f"files in /tmp, in the home and in /dev/shm: {policy.tmp_files:,} each", held))
        else:
            rows.append(ProbeRow("limit", "files in /tmp: only by memory, as namespaces are bubblewrap's alone", None))
    if policy.memory is not None and "memory" not in found["together"]:
        rows.append(ProbeRow("limit", "memory of all together: none, without a control group", None))
    elif policy.memory is not None:
        rows.append(row("limit", f"memory of all together: {int(policy.memory):,}", holds=True))
    return tuple(rows)


@contextlib.contextmanager
def _bait() -> Iterator[dict[str, Any]]:
    """Things of the host that a cell must not reach: a port, an abstract socket, a file, a variable, a process."""
    abstract, marker = f"selfcompact-{secrets.token_hex(8)}", secrets.token_hex(8)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
        tempfile.NamedTemporaryFile("w", prefix="selfcompact-probe-") as file,
    ):
        local.bind("\0" + abstract)
        local.listen()
        file.write("canary")
        file.flush()
        os.environ[CANARY] = marker
        try:
            port = server.getsockname()[1]
            yield {"port": port, "abstract": abstract, "file": file.name, "canary": CANARY} | {
                "marker": marker,
                "pid": os.getpid(),
            }
        finally:
            os.environ.pop(CANARY, None)
