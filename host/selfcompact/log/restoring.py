"""A session file that was taken away under its writer: its name freed, and its content there again."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

from selfcompact.private_files import open_regular

_CHUNK = 1 << 20


def put_aside(path: Path) -> Path | None:
    """Rename what has this name, a link and not what it leads to; the new name, or None when there is nothing.

    Raises:
        OSError: it cannot be renamed.
    """
    if not os.path.lexists(path):
        return None
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.replaced-{number}")
        if not os.path.lexists(aside):
            return path.rename(aside)
    raise AssertionError("numbers do not end")


def copy_of(descriptor: int, path: Path) -> int:
    """A descriptor, for appending, of a new file with the content of an open one, whose own name may be gone.

    Raises:
        OSError: it cannot be written; nothing has the name then.
    """
    draft, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(draft, "wb") as writer:
            offset = 0
            while chunk := os.pread(descriptor, _CHUNK, offset):
                writer.write(chunk)
                offset += len(chunk)
            writer.flush()
            os.fsync(writer.fileno())
        os.link(name, path)  # unlike a rename it takes nobody's place
    finally:
        Path(name).unlink(missing_ok=True)
    return open_regular(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
