"""Full-text search over everything that was ever said in a session, the summarised parts included.

The index is a SQLite file beside the log. It is built when it is first asked for, follows the log from then on, and
may be deleted at any time: it is never needed for correctness. Trigrams are indexed, so that parts of words, paths and
text without spaces between words are found.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from selfcompact.entries import BranchSummaryEntry, CompactionEntry, Entry, message_of
from selfcompact.errors import SessionFileError
from selfcompact.log.lines import lines_forward
from selfcompact.log.reading import check_version, decode_line, read_header, stream_entries
from selfcompact.log.tree import kind_of
from selfcompact.messages import AssistantMessage, Message, text_of
from selfcompact.private_files import create_private, open_regular
from selfcompact.text.surrogates import encodable

SCHEMA_VERSION = 1
EXCERPT_CHARS = 240
AROUND = "\"'`()[]{}<>,;:!?"
"""What is taken off the ends of a query's words: they are more often quoting than part of what is looked for."""

MIN_TERM = 3
"""Characters of the shortest term that trigrams can find; shorter ones are looked for by reading."""


LOCK_TIMEOUT_S = 60.0
"""How long a search waits for another one that is building the index of a long session."""

SCHEMA = (
    "DROP TABLE IF EXISTS said",
    "DROP TABLE IF EXISTS entries",
    "DROP TABLE IF EXISTS state",
    "CREATE VIRTUAL TABLE said USING fts5(text, tokenize = 'trigram')",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, id TEXT, kind TEXT, timestamp TEXT, offset INT)",
    "CREATE INDEX by_id ON entries (id)",
    "CREATE TABLE state (log_inode INT, until INT)",
    "INSERT INTO state VALUES (0, 0)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


@dataclass(frozen=True)
class Hit:
    """One entry that was found. `score` is larger for better hits; `excerpt` shows the place."""

    entry_id: str
    kind: str
    timestamp: str
    excerpt: str
    score: float


class Archive:
    """The search index of one session file. Blocking; call it from a worker thread where that matters."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.index = log.with_name(f"{log.name}.index.sqlite")

    def search(self, query: str, limit: int = 10, on_progress: Callable[[int], None] | None = None) -> list[Hit]:
        """The entries that match best, best first: those with all words of the query, else those with any.

        Raises:
            SessionFileError: the log cannot be read.
        """
        terms = [term for word in query.split() if (term := word.strip(AROUND))]
        if not terms or limit < 1:
            return []
        with self._updated(on_progress) as connection:
            indexed = [term for term in terms if len(term) >= MIN_TERM]
            if not indexed:
                return _by_reading(connection, terms, limit)
            quoted = ['"{}"'.format(term.replace('"', '""')) for term in indexed]
            return _ranked(connection, " AND ".join(quoted), terms, limit) or _ranked(
                connection, " OR ".join(quoted), terms, limit
            )

    def entry(self, entry_id: str) -> Entry | None:
        """One entry by its id, wherever in the session; None when there is none.

        Raises:
            SessionFileError: the log cannot be read.
        """
        with self._updated(None) as connection:
            row = connection.execute("SELECT offset FROM entries WHERE id = ?", (entry_id,)).fetchone()
        if row is None:
            return None
        _, line = next(lines_forward(self._log, int(row[0])))
        return decode_line(self._log, line)

    def rebuild(self) -> None:
        """Throw the index away; the next search builds it again."""
        for suffix in ("", "-journal", "-wal", "-shm"):
            self.index.with_name(self.index.name + suffix).unlink(missing_ok=True)

    @contextmanager
    def _updated(self, on_progress: Callable[[int], None] | None) -> Iterator[sqlite3.Connection]:
        check_version(self._log, read_header(self._log))
        try:
            connection = self._connect()
        except sqlite3.DatabaseError:
            self.rebuild()
            connection = self._connect()
        with closing(connection):
            self._catch_up(connection, on_progress)
            yield connection

    def _connect(self) -> sqlite3.Connection:
        try:
            _make_private(self.index)
            connection = sqlite3.connect(self.index, timeout=LOCK_TIMEOUT_S)
        except (sqlite3.OperationalError, OSError):
            connection = sqlite3.connect(
                ":memory:"
            )  # a folder that cannot be written to: indexed for this search alone
        try:
            connection.execute("PRAGMA synchronous = OFF")
            if _version(connection) != SCHEMA_VERSION:
                connection.execute("BEGIN IMMEDIATE")
                if _version(connection) != SCHEMA_VERSION:  # and nobody else made it meanwhile
                    for statement in SCHEMA:
                        connection.execute(statement)
                connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def _catch_up(self, connection: sqlite3.Connection, on_progress: Callable[[int], None] | None) -> None:
        """Index what was appended since the last time; everything, when the log is another file than it was.

        Several may search at once, so what there is to index is asked again when it is one's own turn.
        """
        if self._news(connection) is None:
            return
        connection.execute("BEGIN IMMEDIATE")
        news = self._news(connection)
        if news is not None:
            self._index(connection, *news, on_progress)
        connection.commit()

    def _news(self, connection: sqlite3.Connection) -> tuple[int, os.stat_result] | None:
        """From which offset on the log as it is now is to be indexed; None when there is nothing new."""
        inode, until = connection.execute("SELECT log_inode, until FROM state").fetchone()
        try:
            found = self._log.stat()
        except OSError as error:
            raise SessionFileError(self._log, f"cannot be read ({error.strerror})") from error
        if inode != found.st_ino or until > found.st_size:
            return 0, found
        return None if until == found.st_size else (until, found)

    def _index(
        self,
        connection: sqlite3.Connection,
        start: int,
        found: os.stat_result,
        on_progress: Callable[[int], None] | None,
    ) -> None:
        if start == 0:
            connection.execute("DELETE FROM said")
            connection.execute("DELETE FROM entries")
        end = _end_of_whole_lines(self._log, found.st_size)
        for count, (offset, entry) in enumerate(stream_entries(self._log, start=start)):
            if offset >= end:  # appended meanwhile, or not whole yet: the next search would index it again
                break
            if on_progress is not None and count % 5_000 == 0:
                on_progress(offset)
            text = searchable(entry)
            row = (entry.id, kind_of(entry), entry.timestamp, offset)
            number = connection.execute(
                "INSERT INTO entries (id, kind, timestamp, offset) VALUES (?, ?, ?, ?)", row
            ).lastrowid
            if text:
                connection.execute("INSERT INTO said (rowid, text) VALUES (?, ?)", (number, text))
        connection.execute("UPDATE state SET log_inode = ?, until = ?", (found.st_ino, end))


def searchable(entry: Entry) -> str:
    """What of an entry can be found: its text, the code of its cells, its summary. Encodable in UTF-8."""
    if isinstance(entry, CompactionEntry | BranchSummaryEntry):
        text = entry.summary
    else:
        message = message_of(entry)
        text = message_text(message) if message is not None else ""
    return encodable(text)


def message_text(message: Message) -> str:
    """The text of a message, with the code of the cells it asks for."""
    parts = [text_of(message)]
    if isinstance(message, AssistantMessage):
        parts.extend(str(value) for call in message.tool_calls for value in call.arguments.values())
    return "\n".join(part for part in parts if part)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _ranked(connection: sqlite3.Connection, match: str, terms: list[str], limit: int) -> list[Hit]:
    rows = connection.execute(
        "SELECT e.id, e.kind, e.timestamp, said.text, -bm25(said) FROM said JOIN entries e ON e.number = said.rowid "
        "WHERE said MATCH ? ORDER BY bm25(said), e.number DESC LIMIT ?",
        (match, limit),
    )
    return [Hit(row[0], row[1], row[2], excerpt(row[3], terms), round(row[4], 3)) for row in rows]


def _by_reading(connection: sqlite3.Connection, terms: list[str], limit: int) -> list[Hit]:
    found = connection.execute(
        "SELECT e.id, e.kind, e.timestamp, said.text FROM said JOIN entries e ON e.number = said.rowid "
        "ORDER BY e.number DESC"
    )
    wanted = [term.lower() for term in terms]
    matching = (row for row in found if all(term in row[3].lower() for term in wanted))
    rows = itertools.islice(matching, limit)
    return [Hit(row[0], row[1], row[2], excerpt(row[3], terms), 0.0) for row in rows]


def excerpt(text: str, terms: list[str], limit: int = EXCERPT_CHARS) -> str:
    """The part of a text round the first term that is in it, on one line."""
    lowered = text.lower()
    places = [place for term in terms if (place := lowered.find(term.lower())) >= 0]
    start = max(0, min(places, default=0) - limit // 3)
    part = " ".join(text[start : start + limit].split())
    return f"{'…' if start else ''}{part}{'…' if start + limit < len(text) else ''}"


def _end_of_whole_lines(log: Path, size: int) -> int:
    """The offset after the last newline before `size`: a line that is still being written is indexed next time."""
    with os.fdopen(open_regular(log, os.O_RDONLY), "rb") as file:
        position = size
        while position > 0:
            start = max(0, position - 4096)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            position = start
    return 0


def _make_private(index: Path) -> None:
    """Have the index be a file of its owner's alone, before the library makes one that the umask decides about."""
    with contextlib.suppress(FileExistsError):
        create_private(index, b"")
    descriptor = open_regular(index, os.O_RDWR | os.O_NOFOLLOW)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
