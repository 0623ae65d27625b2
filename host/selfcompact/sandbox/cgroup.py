"""A control group around one sandbox, where this machine lets us make one: limits for all its processes together.

Resource limits count for each process, and not at all for the number of processes of root. A control group bounds the
sandbox as a whole. Making one needs write access to the hierarchy: root has it outside containers, an ordinary user
where systemd delegates it. Where it cannot be had, the limits of single processes are what is left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
"""Which groups this process is in."""

_PREFIX = "selfcompact-"


@dataclass(frozen=True)
class ControlGroup:
    """The directories of one group, one for each hierarchy. `remove` it when its processes are gone."""

    directories: tuple[Path, ...]
    limited: frozenset[str]
    """What it bounds: `pids`, `memory`, or both."""

    def add(self, pid: int) -> None:
        """Move a process into the group; its future children come along. Failing is not an error: see the module."""
        for directory in self.directories:
            with contextlib.suppress(OSError):
                (directory / "cgroup.procs").write_text(str(pid))

    def killed_for_memory(self) -> bool:
        """Whether the operating system ended a process of the group because its memory was used up."""
        for directory in self.directories:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    for line in (directory / name).read_text().splitlines():
                        if line.startswith("oom_kill ") and int(line.split()[1]) > 0:
                            return True
        return False

    def remove(self) -> None:
        """Give the group back. Never raises; may be called twice."""
        for directory in self.directories:
            with contextlib.suppress(OSError):
                directory.rmdir()


def make_control_group(*, processes: int | None, memory: int | None) -> ControlGroup | None:
    """A new group with these limits, as far as they can be had; None when none can."""
    wanted = {
        "pids": ("pids.max", "pids.max", processes),
        "memory": ("memory.max", "memory.limit_in_bytes", memory),
    }
    made: dict[Path, Path] = {}
    limited: set[str] = set()
    for controller, (name_v2, name_v1, limit) in wanted.items():
        found = _base(controller) if limit is not None else None
        if found is None:
            continue
        base, version = found
        directory = made.get(base) or _make(base)
        if directory is None:
            continue
        made[base] = directory
        with contextlib.suppress(OSError):
            (directory / (name_v2 if version == 2 else name_v1)).write_text(str(limit))
            limited.add(controller)
    return ControlGroup(tuple(made.values()), frozenset(limited)) if made else None


def _make(base: Path) -> Path | None:
    directory = base / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        _sweep(base)
        directory.mkdir()
    except OSError:
        return None
    return directory


def _sweep(base: Path) -> None:
    """Remove the groups of hosts that are gone; a group that still has processes refuses to go."""
    for path in base.glob(f"{_PREFIX}*"):
        pid = path.name[len(_PREFIX) :].split("-")[0]
        if not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                path.rmdir()


def _base(controller: str) -> tuple[Path, int] | None:
    """The directory in which a group for this controller can be made, and the version of its hierarchy."""
    try:
        lines = OWN.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            base = ROOT / controller / path.lstrip("/")
            return (base, 1) if os.access(base, os.W_OK) else None
        if not controllers:
            # Version 2 allows no processes beside groups, but at the root: the new one becomes a sibling of ours.
            own = ROOT / path.lstrip("/")
            base = ROOT if own == ROOT else own.parent
            with contextlib.suppress(OSError):
                if controller in (base / "cgroup.subtree_control").read_text().split() and os.access(base, os.W_OK):
                    return base, 2
    return None
