"""Reading a session file: only its live end, or all of it as a stream.

Opening reads backwards from the newest entry along the chain of parents, until it has the newest compaction and the
first entry that one kept. So it costs what the live context costs, however old the session is.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from selfcompact.codec import DecodeError, Json
from selfcompact.details import CompactionDetails
from selfcompact.entries import (
    FORMAT_VERSION,
    CompactionEntry,
    Entry,
    ModelChangeEntry,
    SessionHeader,
    SessionInfoEntry,
    decode_entry,
)
from selfcompact.errors import SessionFileError
from selfcompact.log.blobs import with_blobs
from selfcompact.log.chain import LiveEnd, ancestors
from selfcompact.log.lines import line_number, lines_backward, lines_forward
from selfcompact.private_files import open_regular

_ID = re.compile(rb'"id":\s?"([^"\\]+)"')
_PARENT = re.compile(rb'"parentId":\s?"([^"\\]+)"')


@dataclass(frozen=True)
class LiveLog:
    """The live end of a session file.

    `entries` is the live path, oldest first. `damage` are sentences about lines that could not be read; they stay in
    the file and are passed over. `leaf_id` is where the next entry goes on.
    """

    header: SessionHeader
    entries: Sequence[Entry]
    leaf_id: str | None
    damage: tuple[str, ...] = ()
    bytes_read: int = 0


def read_header(path: Path) -> SessionHeader:
    """The header of a session file of any version; nothing else is read, nothing is changed.

    Raises:
        SessionFileError: it cannot be read, or its first line is not a session header.
    """
    try:
        _, line = next(lines_forward(path), (0, b""))
    except OSError as error:
        raise SessionFileError(path, f"cannot be read ({error.strerror}); name an existing file") from error
    try:
        header = SessionHeader.from_json(json.loads(line))
    except (ValueError, DecodeError) as error:
        raise SessionFileError(path, "is not a session header; name a session file", line=1) from error
    if header.type != "session":
        raise SessionFileError(path, "is not a session header; name a session file", line=1)
    return header


def check_version(path: Path, header: SessionHeader) -> None:
    """Raise `SessionFileError` when a file is not of the version that is written."""
    if header.version != FORMAT_VERSION:
        raise SessionFileError(
            path,
            f"has format version {header.version}; `selfcompact migrate` writes a copy in version {FORMAT_VERSION}",
        )


def read_live(path: Path, *, leaf_id: str | None = None) -> LiveLog:
    """Read the live end of a session file, or the one that an earlier entry was the leaf of.

    Raises:
        SessionFileError: it cannot be read, is not a session file, is of another version, or has no such entry.
    """
    header = read_header(path)
    check_version(path, header)
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError as error:
        raise SessionFileError(path, f"cannot be read ({error.strerror})") from error
    try:
        return _Walk(path, descriptor, header, leaf_id).live()
    finally:
        os.close(descriptor)


@dataclass
class _Walk:
    """One walk from the end of a file along the chain of parents."""

    path: Path
    descriptor: int
    header: SessionHeader
    leaf: str | None
    found: list[Entry] = field(default_factory=list)
    damage: dict[int, str] = field(default_factory=dict)
    """By offset: a walk that is repeated meets the same lines again."""
    wanted: str | None = None
    end: LiveEnd = field(default_factory=LiveEnd)
    lowest: int = 0

    def live(self) -> LiveLog:
        size = os.fstat(self.descriptor).st_size
        self.lowest = size
        self.wanted = self.leaf
        self._walk(size, bridging=False)
        if self.leaf is not None and not self.found:
            raise SessionFileError(self.path, f"has no entry {self.leaf}; `selfcompact inspect` lists them")
        self.found.reverse()
        return LiveLog(
            header=self.header,
            entries=self.found,
            leaf_id=self.found[-1].id if self.found else None,
            damage=tuple(self.damage[offset] for offset in sorted(self.damage)),
            bytes_read=size - self.lowest,
        )

    def _walk(self, end: int, *, bridging: bool) -> None:
        """Follow the chain through the lines before `end`.

        A damaged line may have been a link of the chain. When its id can still be made out, its parent goes on in
        its place. When the chain's next link is nowhere, the walk is repeated from the last damage met while it was
        looked for, and the entry before that damage takes the missing one's place (`bridging`).
        """
        gap: int | None = None
        for offset, line in lines_backward(self.descriptor, end):
            if offset == 0:
                break
            self.lowest = min(self.lowest, offset)
            entry = self._decode(offset, line)
            if entry is None:
                gap = offset if gap is None else gap
                mine, parent = _ID.search(line), _PARENT.search(line)
                if mine and parent and mine[1].decode("utf-8", "replace") == self.wanted:
                    self.wanted, gap = parent[1].decode("utf-8", "replace"), None
                continue
            if not (bridging or self._is_next(entry)):
                continue
            bridging, gap = False, None
            if self._take(entry):
                return
        if self.wanted is not None and self.found and gap is not None:
            self._walk(gap, bridging=True)
        elif self.wanted is not None and self.found and not bridging:
            self.damage[0] = f"{self.path}: entry {self.wanted} is named as a parent but is not there"

    def _is_next(self, entry: Entry) -> bool:
        if not self.found and self.leaf is None:
            return True
        return entry.id == self.wanted

    def _take(self, entry: Entry) -> bool:
        """Add an entry to the path; whether the path is complete."""
        self.found.append(entry)
        self.wanted = entry.parent_id
        return self.end.is_at(entry)

    def _decode(self, offset: int, line: bytes) -> Entry | None:
        try:
            return decode_line(self.path, line)
        except (ValueError, DecodeError) as error:
            if offset not in self.damage:
                self.damage[offset] = damage_sentence(self.path, offset, error)
            return None


def model_in_force(entries: Sequence[Entry]) -> str | None:
    """The model that answered last, as `provider:name`: by its change, else as the newest compaction noted it."""
    for entry in reversed(entries):
        if isinstance(entry, ModelChangeEntry):
            return f"{entry.provider}:{entry.model_id}"
        if isinstance(entry, CompactionEntry):
            noted = CompactionDetails.noted_on(entry).model
            if noted is not None:
                return noted
    return None


def decode_line(path: Path, line: bytes) -> Entry:
    """One line of a session file as an entry, images that are kept beside the file put back.

    Raises:
        DecodeError, ValueError: it is not an entry.
    """
    return decode_entry(with_blobs(path, json.loads(line)))


def damage_sentence(path: Path, offset: int, error: Exception) -> str:
    """What is said about a line that cannot be read."""
    return f"{path}, line {line_number(path, offset)}: cannot be read ({error}); it was passed over"


def stream_entries(path: Path, *, start: int = 0, damage: list[str] | None = None) -> Iterator[tuple[int, Entry]]:
    """Every entry of a file with its offset, in file order, one at a time; unreadable lines are reported to `damage`.

    Raises:
        SessionFileError: it cannot be read, is not a session file, or is of another version.
    """
    check_version(path, read_header(path))
    for offset, line in lines_forward(path, start):
        if offset == 0:
            continue
        try:
            yield offset, decode_line(path, line)
        except (ValueError, DecodeError) as error:
            if damage is not None:
                damage.append(damage_sentence(path, offset, error))


def stream_json(path: Path) -> Iterator[Json]:
    """Every readable line of a file as JSON, header first, exactly as it stands there."""
    for _, line in lines_forward(path):
        try:
            yield json.loads(line)
        except ValueError:
            continue


def read_session(path: Path) -> tuple[SessionHeader, list[Entry], list[str]]:
    """A whole file: header, entries in file order, and a sentence for each line that could not be read.

    Raises:
        SessionFileError: it cannot be read, is not a session file, or is of another version.
    """
    damage: list[str] = []
    return read_header(path), [entry for _, entry in stream_entries(path, damage=damage)], damage


def session_name(path: Path) -> str | None:
    """The newest display name, wherever in the file; found by its bytes, so that a large file costs no parsing."""
    mark = b'"type":"session_info"'
    with (
        os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        place = content.rfind(mark)
        while place >= 0:
            start, end = content.rfind(b"\n", 0, place) + 1, content.find(b"\n", place)
            try:
                entry = decode_entry(json.loads(content[start : end if end >= 0 else len(content)]))
            except (ValueError, DecodeError):
                entry = None
            if isinstance(entry, SessionInfoEntry):
                return entry.name
            place = content.rfind(mark, 0, place)
    return None


def live_path(entries: Sequence[Entry], leaf_id: str | None = None) -> list[Entry]:
    """The live path of entries that are all at hand, oldest first: as `read_live` finds it in a file."""
    by_id = {entry.id: entry for entry in entries}
    leaf = leaf_id if leaf_id is not None else (entries[-1].id if entries else None)
    path: list[Entry] = []
    end = LiveEnd()

    def parent_of(entry_id: str) -> str | None:
        parent = by_id[entry_id].parent_id
        return parent if parent in by_id else None

    for entry_id in ancestors(leaf if leaf in by_id else None, parent_of):
        path.append(by_id[entry_id])
        if end.is_at(by_id[entry_id]):
            break
    path.reverse()
    return path
