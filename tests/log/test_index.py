"""The search index: what is in it, when it is built anew, and what a hit shows."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from selfcompact.entries import BranchSummaryEntry, CompactionEntry, CustomEntry, MessageEntry
from selfcompact.errors import SessionFileError
from selfcompact.log import search as search_module
from selfcompact.log.search import EXCERPT_CHARS, Archive, excerpt, searchable
from selfcompact.messages import Message
from tests.compaction.build import answered, called, resulted, said

from .test_reading import AT, chain, say, write


def ids(log: Path, query: str, limit: int = 10) -> list[str]:
    return [hit.entry_id for hit in Archive(log).search(query, limit)]


def rows(log: Path) -> list[str]:
    """The ids in the index, in order, doubles included."""
    with closing(sqlite3.connect(Archive(log).index)) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM entries ORDER BY number")]


def append(log: Path, *numbers: int) -> None:
    source = log.with_name("more.jsonl")
    write(source, [say(n, None, f"needle {n}") for n in numbers])
    with log.open("ab") as file:
        file.write(source.read_bytes().partition(b"\n")[2])


def test_every_entry_is_indexed_once_however_often_the_log_grows(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, chain(3))
    assert ids(log, "needle") == []
    for number in (10, 11):
        append(log, number)
        assert Archive(log).entry(f"e{number}") is not None
    assert Archive(log).index == tmp_path / "s.jsonl.index.sqlite"
    assert rows(log) == ["e0", "e1", "e2", "e10", "e11"]
    with closing(sqlite3.connect(Archive(log).index)) as connection:
        found = log.stat()
        assert connection.execute("SELECT * FROM state").fetchall() == [(found.st_ino, found.st_size)]
    assert sorted(ids(log, "needle")) == ["e10", "e11"]


def test_what_is_appended_while_the_index_is_brought_up_to_date_is_indexed_once(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, chain(2))
    Archive(log).search("needle", on_progress=lambda _: append(log, 10))
    assert ids(log, "needle") == ["e10"]
    assert rows(log) == ["e0", "e1", "e10"]


def test_a_line_that_is_still_being_written_is_indexed_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, [])
    append(log, 1, 2)
    whole = log.read_bytes()
    for cut in (whole[:-20], whole[:-1], whole):
        log.write_bytes(cut)
        assert ids(log, "needle") == (["e2", "e1"] if cut == whole else ["e1"])
    assert rows(log) == ["e1", "e2"]


def test_a_line_longer_than_a_block_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, [say(1, None, "needle first"), say(2, None, "needle " + "x" * 20_000)])
    whole = log.read_bytes()
    log.write_bytes(whole[:-10])
    assert ids(log, "needle") == ["e1"]
    log.write_bytes(whole)
    assert sorted(ids(log, "needle")) == ["e1", "e2"]


@pytest.mark.parametrize("rest", [4_094, 4_095, 4_096])
def test_the_last_whole_line_is_found_wherever_a_block_begins(tmp_path: Path, rest: int) -> None:
    log = tmp_path / "s.jsonl"
    write(log, [say(1, None, "needle first"), say(2, None, "needle second")])
    log.write_bytes(log.read_bytes() + b"x" * rest)
    assert sorted(ids(log, "needle")) == ["e1", "e2"]


def test_a_log_that_shrank_is_indexed_anew(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, chain(1))
    append(log, 10, 11)
    inode = log.stat().st_ino
    assert sorted(ids(log, "needle")) == ["e10", "e11"]
    write(log, [say(12, None, "needle")])
    assert log.stat().st_ino == inode
    assert ids(log, "needle") == ["e12"]
    assert rows(log) == ["e12"]


def test_another_file_in_the_logs_place_is_indexed_anew_however_large(tmp_path: Path) -> None:
    log, other = tmp_path / "s.jsonl", tmp_path / "other.jsonl"
    write(log, [say(1, None, "needle"), say(2, None, "haystack")])
    write(other, [say(3, None, "needle"), say(4, None, "haystack")])
    assert log.stat().st_size == other.stat().st_size
    assert ids(log, "needle") == ["e1"]
    other.replace(log)
    assert ids(log, "needle") == ["e3"]
    assert rows(log) == ["e3", "e4"]


def test_an_index_of_another_schema_is_built_anew(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, [say(1, None, "needle")])
    assert ids(log, "needle") == ["e1"]
    with closing(sqlite3.connect(Archive(log).index)) as connection:
        connection.execute("DELETE FROM entries")
        connection.execute("PRAGMA user_version = 99")
        connection.commit()
    assert ids(log, "needle") == ["e1"]


def test_rebuilding_takes_away_every_file_of_the_index_and_nothing_else(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, chain(1))
    for suffix in ("", "-journal", "-wal", "-shm"):
        (tmp_path / f"s.jsonl.index.sqlite{suffix}").touch()
    Archive(log).rebuild()
    assert list(tmp_path.iterdir()) == [log]
    Archive(log).rebuild()


def test_a_folder_that_cannot_be_written_to_is_searched_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, [say(1, None, "needle")])
    Archive(log).index.mkdir()
    assert ids(log, "needle") == ["e1"]
    assert list(Archive(log).index.iterdir()) == []


def test_a_log_of_another_version_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, chain(1))
    log.write_bytes(log.read_bytes().replace(b'"version":3', b'"version":2'))
    with pytest.raises(SessionFileError, match="format version 2"):
        Archive(log).search("m0m")
    with pytest.raises(SessionFileError, match="format version 2"):
        Archive(log).entry("e0")


def test_a_first_search_tells_the_offset_it_has_reached_every_5000_entries(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, [say(n, None) for n in range(5_001)])
    heard: list[int] = []
    Archive(log).search("needle", on_progress=heard.append)
    lines = log.read_bytes().splitlines(keepends=True)
    assert heard == [sum(map(len, lines[: 1 + count])) for count in (0, 5_000)]
    Archive(log).search("needle", on_progress=heard.append)
    assert len(heard) == 2


def test_hits_are_as_many_as_asked_for_the_best_and_of_equal_ones_the_newest_first(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    often = "needle needle needle"
    entries = [say(n, None, often if n == 2 else "needle in hay") for n in range(5)]
    write(log, [*entries, *(say(n, None, "nothing of it") for n in range(5, 40))])
    assert ids(log, "needle") == ["e2", "e4", "e3", "e1", "e0"]
    assert ids(log, "needle", 2) == ["e2", "e4"]
    assert ids(log, "needle", 1) == ["e2"]
    assert ids(log, "needle", 0) == []
    best, second, *_ = Archive(log).search("needle")
    assert best.score > second.score > 0
    assert round(best.score, 3) == best.score
    assert (second.kind, second.timestamp, second.excerpt) == ("user", AT, "needle in hay")


def test_short_words_are_found_by_reading_all_of_them_together_newest_first(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    texts = ["go UP", "up and go", "up only", "nothing", "go up again"]
    write(log, [say(n, None, text) for n, text in enumerate(texts)])
    assert ids(log, "up GO") == ["e4", "e1", "e0"]
    assert ids(log, "up go", 2) == ["e4", "e1"]
    hit = Archive(log).search("up go")[0]
    assert (hit.entry_id, hit.kind, hit.timestamp, hit.excerpt, hit.score) == ("e4", "user", AT, "go up again", 0.0)
    # Beside a word that is long enough for the index, a short one does not narrow.
    assert ids(log, "up nothing") == ["e3"]
    write(log, [say(1, None, "an old cat")])
    assert ids(log, "cat") == ["e1"]


def test_quoting_round_words_is_no_part_of_them(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    write(log, [say(1, None, 'the needle, and the "thread" of it'), say(2, None, "needle alone")])
    assert ids(log, '"needle," (thread)?') == ["e1"]
    assert ids(log, "[needle] <thread>; {it}! `the':") == ["e1"]
    assert ids(log, '"thread" of') == ["e1"]
    assert ids(log, "() [] ,") == []
    assert ids(log, 'th"read') == []


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (said("a question"), "a question"),
        (answered("Look.", called("c", "x = 1"), called("d", "y")), "Look.\nx = 1\ny"),
        (answered("", called("c", "x = 1", timeout_s=5)), "5"),
        (resulted("c", "42"), "42"),
        (said("half a pair \ud800"), "half a pair \ufffd"),
    ],
)
def test_a_message_is_found_by_its_text_and_the_arguments_of_its_calls(message: Message, text: str) -> None:
    assert searchable(MessageEntry(id="m", timestamp=AT, message=message)) == text


def test_summaries_are_found_and_records_without_words_are_not() -> None:
    compaction = CompactionEntry(id="c", timestamp=AT, summary="so far", first_kept_entry_id="e", tokens_before=9)
    assert searchable(compaction) == "so far"
    assert searchable(BranchSummaryEntry(id="b", timestamp=AT, from_id="e", summary="nowhere")) == "nowhere"
    assert searchable(CustomEntry(id="x", timestamp=AT, custom_type="y", data="z")) == ""


def test_an_excerpt_shows_the_first_place_of_any_term_with_a_third_of_it_before() -> None:
    text = "a" * 300 + " NEEDLE " + "b" * 300 + " thread " + "c" * 300
    shown = excerpt(text, ["thread", "needle", "absent"])
    assert shown == "…" + text[301 - EXCERPT_CHARS // 3 :][:EXCERPT_CHARS].strip() + "…"
    assert shown.index("NEEDLE") == EXCERPT_CHARS // 3 + 1
    assert excerpt(text, ["absent"]) == text[:EXCERPT_CHARS] + "…"
    assert excerpt("one\n  two", ["two"]) == "one two"
    assert excerpt("x" * 10, ["x"], limit=10) == "x" * 10
    assert excerpt("x" * 11, ["x"], limit=10) == "x" * 10 + "…"
    assert excerpt("0123456789needle", ["needle"], limit=12) == "…6789needle"


def test_an_entry_comes_back_whole_from_its_place_in_the_file(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    entries = chain(4)
    write(log, entries)
    assert [Archive(log).entry(entry.id) for entry in entries] == entries
    assert Archive(log).entry("e4") is None


def test_a_log_that_goes_away_before_it_is_indexed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "s.jsonl"
    write(log, chain(1))

    def checked(*_: object) -> None:
        log.unlink()

    monkeypatch.setattr(search_module, "check_version", checked)
    with pytest.raises(SessionFileError, match="cannot be read"):
        Archive(log).search("needle")


def test_searches_at_the_same_time_index_every_entry_once_and_all_find_it(tmp_path: Path) -> None:
    """A cell may ask for many things at once, and so may several programs; also when nothing is indexed yet."""
    log = tmp_path / "s.jsonl"
    write(log, [say(n, None, f"needle {n}") for n in range(200)])
    with ThreadPoolExecutor(4) as pool:
        for entries in (200, 201):
            start = Barrier(4)

            def search(_: int, start: Barrier = start) -> int:
                start.wait()
                return len(Archive(log).search("needle", 1_000))

            assert list(pool.map(search, range(4))) == [entries] * 4
            assert len(rows(log)) == entries
            append(log, 200)


def test_a_search_waits_for_another_one_that_builds_the_index_of_a_long_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own patience of five seconds is less than a first index takes."""
    write(tmp_path / "s.jsonl", [say(1, None, "needle")])
    connect, waits = sqlite3.connect, []

    def noted(path: Path, timeout: float = 5.0) -> sqlite3.Connection:
        waits.append(timeout)
        return connect(path, timeout=timeout)

    monkeypatch.setattr("selfcompact.log.search.sqlite3.connect", noted)
    assert ids(tmp_path / "s.jsonl", "needle") == ["e1"]
    assert waits
    assert set(waits) == {search_module.LOCK_TIMEOUT_S}
    assert search_module.LOCK_TIMEOUT_S >= 30
