"""The session log: append-only JSON Lines, one record a line, one write a record.

What is on disk is never changed. A line that was torn by a crash is moved aside before the first append, so that
nothing is ever glued to it. One writer at a time: the file is locked while it is open.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from selfcompact.codec import DecodeError
from selfcompact.entries import FORMAT_VERSION, CompactionEntry, Entry, SessionHeader, decode_entry, now_iso
from selfcompact.errors import SessionFileError


def encode_line(record: SessionHeader | Entry) -> bytes:
    """One record as one line of UTF-8.

    Unpaired surrogates have no UTF-8 form; a record that holds some is written in ASCII with escapes, which every
    JSON reader turns back into the same text.
    """
    data = record.to_json()
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def live_path(entries: Sequence[Entry]) -> list[Entry]:
    """The entries the context is made of, oldest first: the newest leaf's path, from the first entry that the
    newest compaction on it kept.

    Raises:
        KeyError: a parent, or the first kept entry, is not there.
    """
    if not entries:
        return []
    by_id = {entry.id: entry for entry in entries}
    path: list[Entry] = []
    first_kept: str | None = None
    entry: Entry | None = entries[-1]
    while entry is not None:
        path.append(entry)
        if entry.id == first_kept:
            break
        if first_kept is None and isinstance(entry, CompactionEntry):
            first_kept = entry.first_kept_entry_id
        entry = by_id[entry.parent_id] if entry.parent_id is not None else None
    path.reverse()
    return path


class SessionLog:
    """A session file that is open for appending.

    `entries` is what was read at opening, the live path only; the owner keeps its own account of what it appends.
    """

    def __init__(
        self, path: Path, descriptor: int, header: SessionHeader, entries: list[Entry], damage: Sequence[str] = ()
    ) -> None:
        self.path, self.header = path, header
        self.entries: Sequence[Entry] = entries
        self.damage = tuple(damage)
        """Sentences about lines that could not be read; they stay in the file and are passed over."""
        self._descriptor: int | None = descriptor
        self._has_entries = bool(entries) or bool(damage)

    @classmethod
    def open(cls, path: Path, *, cwd: Path) -> Self:
        """Open a session file, or make one when there is none.

        Raises:
            SessionFileError: it cannot be read or written, is no session file, is of a version we do not write, or
                another process has it open.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SessionFileError(path, f"cannot be opened ({error.strerror}); choose another file") from error
        try:
            _lock(descriptor, path)
            if os.fstat(descriptor).st_size == 0:
                header = SessionHeader(version=FORMAT_VERSION, id=str(uuid.uuid4()), timestamp=now_iso(), cwd=str(cwd))
                _write(descriptor, path, encode_line(header))
                return cls(path, descriptor, header, [])
            read_header(path)
            _set_torn_tail_aside(descriptor, path)
            header, entries, damage = read_session(path)
            try:
                return cls(path, descriptor, header, live_path(entries), damage)
            except KeyError as error:
                raise SessionFileError(path, f"entry {error} is named but not there; restore the file") from error
        except BaseException:
            os.close(descriptor)
            raise

    def append(self, entry: Entry) -> None:
        """Write one entry; when this returns, the operating system has it.

        Raises:
            SessionFileError: it could not be written whole; the file is as before.
        """
        if self._descriptor is None:
            raise SessionFileError(self.path, "is closed; open the session again")
        _write(self._descriptor, self.path, encode_line(entry))
        self._has_entries = True

    def sync(self) -> None:
        """Have the disk store everything that was appended."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close and unlock the file; one that holds a header alone is removed. Closing twice is fine."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            if not self._has_entries:
                self.path.unlink(missing_ok=True)
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_header(path: Path) -> SessionHeader:
    """The header of a session file; nothing else is read, nothing is changed.

    Raises:
        SessionFileError: it cannot be read, or its first line is no session header of the version we know.
    """
    number, line = next(_lines(path), (1, b""))
    try:
        header = SessionHeader.from_json(json.loads(line))
    except (ValueError, DecodeError) as error:
        raise SessionFileError(path, "is no session header; name a session file", line=number) from error
    if header.type != "session":
        raise SessionFileError(path, "is no session header; name a session file", line=number)
    if header.version != FORMAT_VERSION:
        raise SessionFileError(path, f"has format version {header.version}; only {FORMAT_VERSION} can be continued")
    return header


def read_session(path: Path) -> tuple[SessionHeader, list[Entry], list[str]]:
    """Read a whole file: header, entries in file order, and a sentence for each line that could not be read.

    Raises:
        SessionFileError: it cannot be read, or its first line is no session header of the version we know.
    """
    header = read_header(path)
    entries: list[Entry] = []
    damage: list[str] = []
    lines = _lines(path)
    next(lines)
    for number, line in lines:
        try:
            entries.append(decode_entry(json.loads(line)))
        except (ValueError, DecodeError) as error:
            damage.append(f"{path}, line {number}: {error}")
    return header, entries, damage


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise SessionFileError(path, f"cannot be read ({error.strerror})") from error


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise SessionFileError(path, "is open in another session; close that one, or choose another file") from error


def _write(descriptor: int, path: Path, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(0, f"only {written} of {len(line)} bytes fitted")
    except OSError as error:
        os.ftruncate(descriptor, size)
        raise SessionFileError(path, f"cannot be written ({error.strerror}); make room and try again") from error


def _set_torn_tail_aside(descriptor: int, path: Path) -> None:
    """Move bytes after the last newline into a file of their own; a crash in the middle of a write left them."""
    size = os.fstat(descriptor).st_size
    tail = b""
    position = size
    while position > 0:
        start = max(0, position - 65536)
        block = os.pread(descriptor, position - start, start)
        newline = block.rfind(b"\n")
        if newline >= 0:
            tail = block[newline + 1 :] + tail
            break
        tail, position = block + tail, start
    if not tail:
        return
    try:
        decode_entry(json.loads(tail))
    except (ValueError, DecodeError):
        aside = path.with_name(f"{path.name}.torn-{size}")
        aside.write_bytes(tail)
        os.ftruncate(descriptor, size - len(tail))
    else:
        # The record is whole, only its newline is missing: another program's last write.
        os.write(descriptor, b"\n")
