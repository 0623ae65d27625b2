"""Copies of a session: one branch into a new file, or an older version into the one that is written.

Both write a new file, record by record as it stood, and never touch the old one.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from selfcompact.codec import Json
from selfcompact.entries import FORMAT_VERSION, now_iso
from selfcompact.errors import SessionFileError
from selfcompact.log.blobs import copy_blobs
from selfcompact.log.lines import encode_json
from selfcompact.log.migrate import migrated
from selfcompact.log.reading import check_version, read_header, stream_json
from selfcompact.log.tree import path_to
from selfcompact.private_files import make_private_folder


def fork_session(source: Path, target: Path, entry_id: str) -> Path:
    """Copy the branch that ends at an entry into a new session file, which names the old one as its parent.

    Returns the new file.

    Raises:
        SessionFileError: the source cannot be read or has no such entry; the target already exists.
    """
    header = read_header(source)
    check_version(source, header)
    wanted = set(path_to(source, entry_id))
    new_header = {
        **header.to_json(),
        "id": str(uuid.uuid4()),
        "timestamp": now_iso(),
        "parentSession": str(source),
    }

    def records() -> Iterator[Json]:
        yield new_header
        lines = stream_json(source)
        next(lines)
        yield from (record for record in lines if isinstance(record, dict) and record.get("id") in wanted)

    write_new(target, records())
    copy_blobs(source, target)
    return target


def migrate_session(source: Path, target: Path) -> Path:
    """Write a session file of an older version as a new file in the version that is written.

    Raises:
        SessionFileError: the source cannot be read or is of a newer version; the target already exists.
    """
    header = read_header(source)
    if header.version > FORMAT_VERSION:
        raise SessionFileError(source, f"has format version {header.version}, which is newer than {FORMAT_VERSION}")
    write_new(target, migrated(stream_json(source), header.version))
    copy_blobs(source, target)
    return target


def write_new(target: Path, records: Iterable[Json]) -> None:
    """Write a file that is not there yet, whole or not at all.

    Raises:
        SessionFileError: it already exists, or cannot be written.
    """
    if target.exists():
        raise SessionFileError(target, "already exists; name another file")
    try:
        make_private_folder(target.parent)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    except OSError as error:
        raise SessionFileError(target, f"cannot be written ({error.strerror})") from error
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for record in records:
                file.write(encode_json(record))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, target)  # unlike a rename it fails when the target appeared meanwhile
    except FileExistsError as error:
        raise SessionFileError(target, "already exists; name another file") from error
    except OSError as error:
        raise SessionFileError(target, f"cannot be written ({error.strerror})") from error
    finally:
        draft.unlink(missing_ok=True)
