"""The private directory of one kernel: its sockets and the packages it imports.

It is short, absolute and 0700, because a socket's path has at most 107 bytes and whoever can open the socket can run
code. The directory holds a lock for as long as its host lives, so that a later start can tell what a killed host left
behind and remove it.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from selfcompact.errors import KernelStartError
from selfcompact.kernel.removing import remove_tree

PREFIX = "selfcompact-k-"
_MAX_SOCKET_PATH = 100
"""Bytes: 107 on Linux and 103 on macOS, minus what ZeroMQ may add."""

GONE = f"{PREFIX}gone-"
"""What a killed host's directory is called while it is removed: that may take several starts; its lock goes first."""

SWEEP_LIMIT_S = 1.0
"""How long a start works at what killed hosts left behind; the next start goes on with it."""

_OLD_S = 3600.0
"""A directory without its lock is being made at this moment, or, when it is older, was removed in part."""

_LONGEST_NAME = len("/xxxxxxxx/k/k-5")


class RuntimeDirectory:
    """A kernel's private directory. Its maker calls `remove`, which may be called twice and never raises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kernel_dir, self.bridge_dir, self.lib_dir = path / "k", path / "b", path / "lib"
        self.memory_dir = path / "m"
        self._lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for directory in (self.kernel_dir, self.bridge_dir, self.lib_dir, self.memory_dir):
            directory.mkdir(mode=0o700)

    def remove(self) -> None:
        """Remove the directory with everything in it, and give the lock back. Blocks for seconds at most."""
        remove_tree(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def make_runtime_directory() -> RuntimeDirectory:
    """A new private directory in the shortest suitable place; what killed hosts left in that place is removed first.

    Raises:
        KernelStartError: there is no place where such a directory could be made.
    """
    problems = []
    for base in _bases():
        if len(os.fsencode(base / PREFIX)) + _LONGEST_NAME > _MAX_SOCKET_PATH:
            continue
        try:
            _sweep(base, time.monotonic() + SWEEP_LIMIT_S)
            return RuntimeDirectory(Path(tempfile.mkdtemp(prefix=PREFIX, dir=base)))
        except OSError as error:
            problems.append(f"{base}: {error.strerror}")
    raise KernelStartError(
        "runtime directory",
        f"no place for sockets ({'; '.join(problems) or 'every path is too long'}); set XDG_RUNTIME_DIR to a short one",
    )


def kernel_side_packages() -> Mapping[str, Path]:
    """Where the packages lie that the kernel imports and nobody has to install there."""
    found = {}
    for name in ("host_bridge", "compact", "agent_kernel"):
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise KernelStartError("packages", f"{name} cannot be found; install selfcompact again")
        found[name] = Path(spec.submodule_search_locations[0]).resolve()
    return found


def _bases() -> Iterator[Path]:
    """Candidates, best first: a per-user directory in memory, what the user set, and the places that always exist."""
    for text in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - mkdtemp makes it private
        path = Path(text)
        if text and path.is_absolute() and path.is_dir() and os.access(path, os.W_OK | os.X_OK):
            yield path


def _sweep(base: Path, deadline: float) -> None:
    """Remove the directories in `base` whose host is gone: a living one holds the lock. Never raises."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(base):
            left_s = deadline - time.monotonic()
            if entry.name.startswith(PREFIX) and left_s > 0:
                with contextlib.suppress(OSError):
                    _remove_left_over(Path(entry.path), left_s)


def _remove_left_over(path: Path, limit_s: float) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    if path.name.startswith(GONE):
        remove_tree(path, limit_s=limit_s)
        return
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        if time.time() - found.st_mtime > _OLD_S:
            remove_tree(path, limit_s=limit_s)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = path.rename(path.with_name(GONE + path.name.removeprefix(PREFIX)))
        remove_tree(gone, limit_s=limit_s)
    finally:
        os.close(lock)
