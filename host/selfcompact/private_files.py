"""Files that hold conversation or settings: regular, bounded, private, and never reached by a planted link.

What lies where cells can write may be anything: a link to a key, a pipe that nobody writes, a device without an end. So
a file is opened without waiting, looked at by its descriptor, and read up to a limit; what is made is made anew with an
unused name, readable by its owner alone whatever the umask says, and put in place by a rename.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

SETTINGS_BYTES = 1024 * 1024
"""The largest settings file; one has a few hundred bytes."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotRegular(OSError):
    """What has this name is not a file that can be read and written like one."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


def open_regular(path: Path | str, flags: int, *, dir_fd: int | None = None) -> int:
    """A descriptor of a regular file, made readable by its owner alone when `flags` has it made. Never waits.

    Raises:
        NotRegular: it is a directory, a pipe, a device or a socket.
        OSError: it cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ENXIO):
            raise NotRegular(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(path)
    os.set_blocking(descriptor, True)
    return descriptor


def read_bounded(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises:
        NotRegular: see `open_regular`. OSError: it cannot be read, or is larger.
    """
    return _read(open_regular(path, os.O_RDONLY), path, limit)


def read_beneath(root: Path, relative: Path, limit: int) -> bytes:
    """The same for a file below `root`, to which no symbolic link leads: neither it nor a folder on the way is one.

    Raises:
        NotRegular: see `open_regular`. OSError: it cannot be read, is larger, or is reached by a link.
    """
    with contextlib.ExitStack() as stack:
        here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, here)
        *folders, name = relative.parts
        for folder in folders:
            here = os.open(folder, _DIRECTORY, dir_fd=here)
            stack.callback(os.close, here)
        return _read(open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here), root / relative, limit)


@contextlib.contextmanager
def folder_itself(path: Path) -> Iterator[int | None]:
    """A descriptor of the folder with this name, for the block; None when it is a link, something else, or not there.

    Names listed, opened and removed relative to it are in that folder, whatever is put in its place meanwhile.

    Raises:
        OSError: the folder cannot be opened.
    """
    try:
        descriptor = os.open(path, _DIRECTORY)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_within(folder: int, name: str, limit: int) -> bytes:
    """The content of a regular file, no link, of at most `limit` bytes in a folder given by its descriptor.

    Raises:
        NotRegular: see `open_regular`. OSError: it cannot be read, is larger, or is a link.
    """
    return _read(open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), Path(name), limit)


def _read(descriptor: int, path: Path, limit: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return data


def open_new(path: Path) -> int:
    """A descriptor, for writing, of a file that is not there yet.

    Raises:
        FileExistsError: something has this name, be it a link that leads nowhere. OSError: it cannot be made.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def create_private(path: Path, data: bytes) -> None:
    """Write a file that is not there yet.

    Raises:
        FileExistsError: see `open_new`. OSError: it cannot be written.
    """
    with os.fdopen(open_new(path), "wb") as file:
        file.write(data)


def discard(path: Path) -> None:
    """Take a name away, a link and not what it leads to. A directory stays; raises nothing."""
    with contextlib.suppress(OSError):
        path.unlink()


def replace_private(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; what had its name before is replaced, a link and not what it leads to.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def make_private_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, for their owner alone.

    Raises:
        OSError: it cannot be made, or is something else.
    """
    missing = []
    here = folder
    while not here.exists() and here != here.parent:
        missing.append(here)
        here = here.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(folder))
