"""Search finds what was ever said, follows the log, and is never needed for correctness."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfcompact.entries import CompactionEntry, Entry
from selfcompact.errors import SessionFileError
from selfcompact.log import SessionLog
from selfcompact.log.search import Archive

from .test_reading import AT, chain, say, write


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "s.jsonl"
    texts = [
        "the database timeout is 30 seconds, set in config/database.toml",
        "nothing of interest here",
        "数据库超时设置为三十秒",
        "a timeout of the other kind",
        "ERROR: E1234 in tests/test_billing.py::test_rounds[EUR]",
    ]
    entries: list[Entry] = [say(n, f"e{n - 1}" if n else None, text) for n, text in enumerate(texts)]
    entries.append(
        CompactionEntry(
            id="c", parent_id="e4", timestamp=AT, summary="timeouts", first_kept_entry_id="e4", tokens_before=9
        )
    )
    write(path, entries)
    return path


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("database timeout", "e0"),
        ("TIMEOUT database", "e0"),
        ("数据库超时", "e2"),
        ("超时", "e2"),
        ("test_rounds[EUR]", "e4"),
        ("config/database.toml", "e0"),
        ('he said "E1234', "e4"),
        ("atabas", "e0"),
        ("timeout AND OR NOT (", "c"),
    ],
)
def test_a_query_of_any_kind_finds_its_entry_first(log: Path, query: str, first: str) -> None:
    """Words, parts of words, paths, other scripts, and text that looks like query syntax."""
    hits = Archive(log).search(query)
    assert hits
    assert first in [hit.entry_id for hit in hits]
    assert hits[0].entry_id == first or first == "c"


def test_all_words_are_better_than_any(log: Path) -> None:
    archive = Archive(log)
    assert [hit.entry_id for hit in archive.search("database timeout")] == ["e0"]
    assert {hit.entry_id for hit in archive.search("database interest")} == {"e0", "e1"}


@pytest.mark.parametrize("query", ["", "   ", "xyzzy", "\0", "\ud800"])
def test_a_query_that_matches_nothing_finds_nothing(log: Path, query: str) -> None:
    assert Archive(log).search(query) == []


def test_the_index_follows_the_log_and_may_be_deleted_or_damaged(log: Path, tmp_path: Path) -> None:
    archive = Archive(log)
    assert archive.search("brand new") == []
    with SessionLog.open(log, cwd=tmp_path) as writer:
        writer.append(say(9, "c", "something brand new"))
        assert [hit.entry_id for hit in archive.search("brand new")] == ["e9"]
    archive.index.write_bytes(b"not a database" * 100)
    assert [hit.entry_id for hit in archive.search("brand new")] == ["e9"]
    archive.rebuild()
    assert not archive.index.exists()
    assert [hit.entry_id for hit in archive.search("brand new")] == ["e9"]


def test_a_log_that_was_replaced_is_indexed_anew(log: Path) -> None:
    archive = Archive(log)
    assert archive.search("database")
    log.unlink()
    write(log, chain(3))
    assert archive.search("database") == []
    assert [hit.entry_id for hit in archive.search("m2 ")] != [None]


def test_one_entry_is_found_by_its_id(log: Path) -> None:
    archive = Archive(log)
    found = archive.entry("e3")
    assert found is not None
    assert found.id == "e3"
    assert archive.entry("e99") is None


def test_a_log_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError, match="cannot be read"):
        Archive(tmp_path / "none.jsonl").search("x")
