"""From a policy to the arguments of bubblewrap. Pure: it takes values and returns values.

The sandbox starts from nothing. What a cell can see is what is mounted here, and parents are mounted before what lies
in them, so that the more specific path wins: a read-only interpreter in the user's home inside an otherwise absent
home, a writable workspace inside a read-only tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from selfcompact.sandbox.policy import SandboxPolicy

INSIDE = Path("/run/selfcompact")
"""Where the kernel finds its sockets and the two kernel-side packages. Fixed and short: socket paths have 107 bytes."""

HOME = Path("/home/agent")
"""A private, writable, empty home."""

SETTINGS = ".selfcompact"
"""The folder of a workspace that holds settings of the host. They name commands that the host runs, addresses that it
sends keys to, and the sandbox of the next session; so a cell may read them, and not write them."""

IN_MEMORY = (Path("/tmp"), Path("/dev/shm"), HOME)  # noqa: S108 - places inside
"""Private, writable places that end with the sandbox."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
"""Where programs and libraries are. Some are links into /usr on some systems and directories on others."""

ETC = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "fonts",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "pki",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
"""The parts of /etc that programs need and that hold no secret. The rest of /etc is not there."""

ETC_ONLINE = ("gai.conf", "host.conf", "resolv.conf")

PROC_COVERED = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi")
"""What root may write there is not asked of capabilities but of the user's number; bubblewrap covers it only where the
directory itself is writable, which `/proc/sys` never is."""

FIRST_PROCESS = "/proc/1"
"""Covered by an empty directory. The first process of the sandbox ends it when the host is gone; whoever can write its
memory, which the same user may, can take that out of it."""

Access = Literal["ro-bind", "bind", "tmpfs", "symlink"]


@dataclass(frozen=True)
class Mount:
    """One thing that is put into the sandbox: at `place` stands what `source` is outside."""

    access: Access
    place: Path
    source: str = ""


@dataclass(frozen=True)
class HostFacts:
    """Everything outside the policy that decides what a sandbox looks like.

    `links` says which of the system paths are symbolic links outside, and where they lead; `present` which of the
    candidates exist at all. Both are looked up by the caller, so that planning needs no file system.
    """

    workspace: Path
    needs: Sequence[Path]
    kernel_dir: Path
    bridge_dir: Path
    packages: Mapping[str, Path]
    present: frozenset[Path]
    links: Mapping[Path, str]
    uid: int
    gid: int
    read_only: Mapping[Path, Path] = field(default_factory=dict)
    """Directories in writable places that no cell may change, and what is shown there: what the host reads or runs."""
    memory_dirs: Mapping[Path, Path] = field(default_factory=dict)
    """Where, for each place in memory, its file system is mounted outside already. Empty: bubblewrap mounts them."""


def mounts(policy: SandboxPolicy, facts: HostFacts) -> tuple[Mount, ...]:
    """What is mounted, parents first; for one place the last and most specific wish wins."""
    wanted: dict[Path, Mount] = {}

    def add(items: Iterable[Mount]) -> None:
        for item in items:
            wanted[item.place] = item

    add(_system(facts))
    etc = (*ETC, *ETC_ONLINE) if policy.network else ETC
    add(Mount("ro-bind", Path("/etc") / name, f"/etc/{name}") for name in etc if Path("/etc") / name in facts.present)
    for place in IN_MEMORY:
        made = facts.memory_dirs.get(place)
        add([Mount("tmpfs", place) if made is None else Mount("bind", place, str(made))])
    writable = [*policy.write, *([facts.workspace] if policy.workspace == "read-write" else [])]
    readable = [*policy.read, *([facts.workspace] if policy.workspace == "read-only" else [])]
    # What the interpreter needs inside the workspace is there with it; what must not be changed is in `read_only`.
    needs = [path for path in facts.needs if not _inside(path, writable) and not _inside(path, map(Path, SYSTEM))]
    add(Mount("ro-bind", path, str(path)) for path in (*needs, *readable))
    add(Mount("bind", path, str(path)) for path in writable)
    add(Mount("ro-bind", place, str(shown)) for place, shown in facts.read_only.items())
    add([Mount("bind", INSIDE / "kernel", str(facts.kernel_dir))])
    add([Mount("ro-bind", INSIDE / "bridge", str(facts.bridge_dir))])
    add(Mount("ro-bind", INSIDE / "lib" / name, str(path)) for name, path in facts.packages.items())
    return tuple(sorted(wanted.values(), key=lambda mount: (mount.place.parts, mount.access)))


def bwrap_argv(
    bwrap: Path,
    policy: SandboxPolicy,
    facts: HostFacts,
    command: Sequence[str],
    *,
    info_fd: int | None = None,
    seccomp_fd: int | None = None,
    block_fd: int | None = None,
) -> list[str]:
    """The whole command line. The environment is not part of it: command lines can be read by other users."""
    argv = [str(bwrap), "--unshare-all", "--unshare-user", "--disable-userns"]
    if policy.network:
        argv.append("--share-net")
    argv += ["--uid", str(facts.uid), "--gid", str(facts.gid), "--hostname", "sandbox"]
    argv += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if info_fd is not None:
        argv += ["--info-fd", str(info_fd)]
    if seccomp_fd is not None:
        argv += ["--seccomp", str(seccomp_fd)]
    if block_fd is not None:
        argv += ["--block-fd", str(block_fd)]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for place in PROC_COVERED:
        argv += ["--ro-bind-try", place, place]
    argv += ["--perms", "0555", "--tmpfs", FIRST_PROCESS]
    for mount in mounts(policy, facts):
        argv += _arguments(mount, policy)
    argv += ["--remount-ro", "/", "--chdir", str(facts.workspace), "--", *command]
    return argv


def _system(facts: HostFacts) -> Iterable[Mount]:
    for path in map(Path, SYSTEM):
        if path in facts.links:
            yield Mount("symlink", path, facts.links[path])
        elif path in facts.present:
            yield Mount("ro-bind", path, str(path))


def _arguments(mount: Mount, policy: SandboxPolicy) -> list[str]:
    if mount.access == "tmpfs":
        size = ["--size", str(int(policy.tmp_size))] if policy.tmp_size else []
        return ["--perms", _mode(mount.place), *size, "--tmpfs", str(mount.place)]
    return [f"--{mount.access}", mount.source, str(mount.place)]


def memory_mounts(policy: SandboxPolicy, facts: HostFacts) -> list[tuple[str, str]]:
    """Directories outside, and the options of the file system in memory that has to be mounted on each."""
    limits = [("size", policy.tmp_size), ("nr_inodes", policy.tmp_files)]
    options = [f"{name}={int(value)}" for name, value in limits if value is not None]
    return [
        (str(outside), ",".join([f"mode={_mode(place)}", *options])) for place, outside in facts.memory_dirs.items()
    ]


def _mode(place: Path) -> str:
    return "1777" if place != HOME else "0700"


def _inside(path: Path, places: Iterable[Path]) -> bool:
    return any(path == place or place in path.parents for place in places)
