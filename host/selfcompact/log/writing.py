"""A session file that is open for appending.

One record, one line, one write. What is on disk is never changed. A line that was torn by a crash is moved aside
before the first append, so that nothing is ever glued to it. One writer at a time: the file is locked while it is
open.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from selfcompact.codec import DecodeError
from selfcompact.entries import FORMAT_VERSION, Entry, SessionHeader, decode_entry, now_iso
from selfcompact.errors import SessionFileError
from selfcompact.log.blobs import without_blobs
from selfcompact.log.lines import encode_json, encode_line, torn_tail
from selfcompact.log.reading import LiveLog, check_version, read_header, read_live
from selfcompact.log.restoring import copy_of, put_aside
from selfcompact.private_files import create_private, make_private_folder, open_regular


class SessionLog:
    """The one writer of a session file. No method awaits.

    `live` is what was read at opening; the owner keeps its own account of what it appends.
    """

    def __init__(self, path: Path, descriptor: int, live: LiveLog, *, fsync: bool = True) -> None:
        self.path, self.live, self._fsync = path, live, fsync
        self._descriptor: int | None = descriptor
        self._size = os.fstat(descriptor).st_size
        self._has_entries = bool(live.entries or live.damage)
        self._synced = True

    @property
    def header(self) -> SessionHeader:
        """The first line."""
        return self.live.header

    @property
    def entries(self) -> Sequence[Entry]:
        """The live path as it was read at opening, oldest first."""
        return self.live.entries

    @property
    def damage(self) -> Sequence[str]:
        """Sentences about lines that could not be read; they stay in the file and are passed over."""
        return self.live.damage

    @classmethod
    def open(cls, path: Path, *, cwd: Path, fsync: bool = True, parent_session: str | None = None) -> Self:
        """Open a session file, or make one when there is none. `fsync` off leaves storing to the operating system.

        Raises:
            SessionFileError: it cannot be read or written, is not a session file, is of a version we do not write, or
                another process has it open.
        """
        try:
            make_private_folder(path.parent)
            descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise SessionFileError(path, f"cannot be opened ({error.strerror}); choose another file") from error
        try:
            _lock(descriptor, path)
            _set_torn_header_aside(descriptor, path)
            if os.fstat(descriptor).st_size == 0:
                header = SessionHeader(
                    version=FORMAT_VERSION,
                    id=str(uuid.uuid4()),
                    timestamp=now_iso(),
                    cwd=str(cwd),
                    parent_session=parent_session,
                )
                _write(descriptor, path, encode_line(header))
                return cls(path, descriptor, LiveLog(header, [], None), fsync=fsync)
            check_version(path, read_header(path))
            _set_torn_tail_aside(descriptor, path)
            return cls(path, descriptor, read_live(path), fsync=fsync)
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
        try:
            line = encode_json(without_blobs(self.path, entry.to_json()))
        except OSError as error:
            raise SessionFileError(self.path, f"an image cannot be written beside it ({error.strerror})") from error
        _write(self._descriptor, self.path, line)
        self._size += len(line)
        self._has_entries, self._synced = True, False

    def sync(self) -> str | None:
        """Have the disk store everything that was appended, in the file that has our name.

        Returns a sentence when that file was removed, replaced or cut by somebody: it is then there again.

        Raises:
            SessionFileError: the disk did not store it; the operating system has it, and the next call tries again.
        """
        if self._descriptor is None:
            return None
        try:
            said = self._put_back()
        except OSError as error:
            raise SessionFileError(self.path, f"is gone and cannot be written anew ({error.strerror})") from error
        if self._fsync and not self._synced:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise SessionFileError(self.path, f"is not stored on the disk ({error.strerror})") from error
        self._synced = True
        return said

    def _put_back(self) -> str | None:
        """Write the file anew from the one that is still open when its name leads elsewhere, or nowhere, now."""
        assert self._descriptor is not None
        ours = os.fstat(self._descriptor)
        try:
            there = self.path.stat()
        except OSError:
            there = None
        if there is not None and os.path.samestat(ours, there):
            cut, self._size = self._size - ours.st_size, ours.st_size
            if cut <= 0:
                return None
            if torn_tail(self._descriptor):
                _write(self._descriptor, self.path, b"\n")
            return f"somebody cut {cut:,} bytes off {self.path}; what they said is lost from it"
        make_private_folder(self.path.parent)
        aside = put_aside(self.path)
        copied = copy_of(self._descriptor, self.path)
        _lock(copied, self.path)
        os.close(self._descriptor)
        self._descriptor, self._synced = copied, False
        where = f"what was there instead is {aside.name} now" if aside is not None else "it had been removed"
        return f"the session log {self.path} was written anew: {where}"

    def close(self) -> None:
        """Close and unlock the file; one that holds a header alone is removed. Closing twice is fine."""
        if self._descriptor is not None:
            try:
                self.sync()
            finally:
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


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(descriptor)
        raise SessionFileError(path, f"is open in {holder}; close that one, or choose another file") from error


def _holder(descriptor: int) -> str:
    """Who holds the lock, as far as the operating system tells."""
    found = os.fstat(descriptor)
    here = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        for line in Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines():
            fields = line.split()
            if "FLOCK" in fields and here in fields:
                pid = int(fields[fields.index("FLOCK") + 3])
                if pid == os.getpid():
                    return "another session of this process"
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                return f"process {pid} ({' '.join(command.split())[:80]})"
    except (OSError, ValueError, IndexError):
        pass
    return "another process"


def _write(descriptor: int, path: Path, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(0, f"only {written} of {len(line)} bytes fitted")
    except OSError as error:
        os.ftruncate(descriptor, size)
        raise SessionFileError(path, f"cannot be written ({error.strerror}); make room and try again") from error


def _set_aside(path: Path, size: int, tail: bytes) -> None:
    """Keep the torn bytes in a new file beside the log; a name that is taken, by whatever it is, is left alone."""
    for number in itertools.count():
        name = f"{path.name}.torn-{size}" + (f"-{number}" if number else "")
        try:
            create_private(path.with_name(name), tail)
        except FileExistsError:
            continue
        except OSError as error:
            raise SessionFileError(path, f"has a torn end that cannot be set aside ({error.strerror})") from error
        return


_BEGINNING = b'{"type":"session"'


def _set_torn_header_aside(descriptor: int, path: Path) -> None:
    """A session whose very first write did not end is begun again. Any other file without a header is not a session."""
    size = os.fstat(descriptor).st_size
    tail = torn_tail(descriptor)
    if size == 0 or len(tail) != size or tail[: len(_BEGINNING)] != _BEGINNING[: len(tail)]:
        return
    try:
        json.loads(tail)
    except ValueError:
        _set_aside(path, size, tail)
        os.ftruncate(descriptor, 0)


def _set_torn_tail_aside(descriptor: int, path: Path) -> None:
    """Move bytes after the last newline into a file of their own; a crash in the middle of a write left them."""
    tail = torn_tail(descriptor)
    if not tail:
        return
    size = os.fstat(descriptor).st_size
    if len(tail) == size:
        _write(descriptor, path, b"\n")  # a whole header without its newline
        return
    try:
        decode_entry(json.loads(tail))
    except (ValueError, DecodeError):
        _set_aside(path, size, tail)
        os.ftruncate(descriptor, size - len(tail))
    else:
        _write(descriptor, path, b"\n")  # the record is whole: another program's last write
