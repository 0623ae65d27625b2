"""Removing what a kernel left behind: a walk that nothing in the tree can lead astray, stop, or make fail.

Cells may have made the tree: nested deeper than a recursion goes, closed to its owner, with names that are no text,
with links to elsewhere. So the walk keeps descriptors and no paths, follows no link, holds two directories open at
most, and has a limit. What is left then is left.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

LIMIT_S = 10.0
"""How long a removal may take. A million empty files take five seconds."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | os.PathLike[str], *, limit_s: float = LIMIT_S) -> bool:
    """Remove a directory and everything in it; whether all of it is gone. Never raises, and blocks `limit_s` at most.

    A directory that is full is emptied first: each one in it is moved up next to it, so that no path ever gets longer.
    """
    deadline = time.monotonic() + limit_s
    whole = Path(path).absolute()
    try:
        parent = os.open(whole.parent, _DIRECTORY)
    except OSError:
        return False
    try:
        name = os.fsencode(whole.name)
        with contextlib.suppress(OSError):
            _flatten(parent, name, deadline)
            os.rmdir(name, dir_fd=parent)
        return not _exists(parent, name)
    finally:
        os.close(parent)


def _flatten(parent: int, name: bytes, deadline: float) -> None:
    """Empty the directory `name` in `parent`: files go, and what is in its directories comes up into it."""
    root = _open(parent, name)
    if root is None:
        return
    number = 0
    try:
        while time.monotonic() < deadline:
            directories = _remove_files(root, deadline)
            if not directories:
                return
            for directory in directories:
                if time.monotonic() > deadline:
                    return
                inner = _open(root, directory)
                if inner is not None:
                    try:
                        for below in _remove_files(inner, deadline):
                            number += 1
                            with contextlib.suppress(OSError):
                                _move(inner, below, root, b".%d-%d" % (os.getpid(), number))
                    finally:
                        os.close(inner)
                with contextlib.suppress(OSError):
                    os.rmdir(directory, dir_fd=root)
            if {*_names(root)} == {*directories}:
                return  # nothing of it can be removed
    finally:
        os.close(root)


def _remove_files(directory: int, deadline: float) -> list[bytes]:
    """Remove what is no directory, and name the directories."""
    found: list[bytes] = []
    for name in _names(directory):
        if time.monotonic() > deadline:
            break
        try:
            if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                found.append(name)
            else:
                os.unlink(name, dir_fd=directory)
        except OSError:
            continue
    return found


def _names(directory: int) -> list[bytes]:
    try:
        return [os.fsencode(name) for name in os.listdir(directory)]
    except OSError:
        return []


def _move(source: int, name: bytes, target: int, free: bytes) -> None:
    try:
        os.rename(name, free, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:
        # Moving a directory changes its `..`, which its own mode has to allow.
        opened = _open(source, name)
        if opened is not None:
            os.close(opened)
        os.rename(name, free, src_dir_fd=source, dst_dir_fd=target)


def _open(parent: int, name: bytes) -> int | None:
    """A descriptor of a directory, whose owner may now do all with it; None when it is none, or a link."""
    try:
        # Neither reads nor writes, so that no mode can refuse it, and whatever takes the name's place is not it.
        place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return None
    try:
        if os.fstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with contextlib.suppress(OSError):
                Path(f"/proc/self/fd/{place}").chmod(stat.S_IRWXU)
        return os.open(f"/proc/self/fd/{place}", _DIRECTORY & ~os.O_NOFOLLOW)
    except OSError:
        return None
    finally:
        os.close(place)


def _exists(parent: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return True
