"""The live end of a file, damage and other versions included: what is told, and how much is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selfcompact.entries import CompactionEntry, Entry, ModelChangeEntry, ThinkingLevelChangeEntry
from selfcompact.errors import SessionFileError
from selfcompact.log import live_path, read_header, read_live, read_session, stream_entries
from selfcompact.log.lines import line_number, torn_tail
from selfcompact.log.reading import model_in_force, stream_json

from .test_reading import AT, HEADER, chain, say, write


def ids(path: Path) -> list[str]:
    return [entry.id for entry in read_live(path).entries]


def compacted(number: int, parent: str, kept: str, **noted: Any) -> CompactionEntry:
    return CompactionEntry(
        id=f"c{number}",
        parent_id=parent,
        timestamp=AT,
        summary="s",
        first_kept_entry_id=kept,
        tokens_before=9,
        details={"selfcompact": noted},
    )


def damaged(path: Path, *numbers: int, by: bytes = b"\0\0\0") -> None:
    """Replace lines, counted from 1, by bytes that are no record."""
    lines = path.read_bytes().splitlines()
    for number in numbers:
        lines[number - 1] = by
    path.write_bytes(b"\n".join(lines) + b"\n")


def test_what_is_told_of_a_live_end(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [])
    empty = read_live(path)
    assert (empty.header, list(empty.entries), empty.leaf_id, empty.damage) == (
        HEADER,
        [],
        None,
        (),
    )
    write(path, chain(3))
    live = read_live(path)
    assert (live.leaf_id, live.bytes_read) == (
        "e2",
        path.stat().st_size - len(path.read_bytes().partition(b"\n")[0]) - 1,
    )
    assert read_live(path, leaf_id="e1").leaf_id == "e1"


def test_the_newest_model_of_the_live_path_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"

    def changed(number: int, parent: str | None, model_id: str) -> ModelChangeEntry:
        return ModelChangeEntry(id=f"m{number}", parent_id=parent, timestamp=AT, provider="p", model_id=model_id)

    def thinking(number: int, parent: str, level: str) -> ThinkingLevelChangeEntry:
        return ThinkingLevelChangeEntry(id=f"t{number}", parent_id=parent, timestamp=AT, thinking_level=level)

    entries: list[Entry] = [
        changed(1, None, "old"),
        thinking(1, "m1", "low"),
        thinking(2, "t1", "high"),
        say(1, "t2"),
        changed(2, "e1", "new"),
        say(2, "m2"),
    ]
    write(path, entries)
    assert model_in_force(read_live(path).entries) == "p:new"
    assert model_in_force(read_live(path, leaf_id="t1").entries) == "p:old"
    noted = compacted(1, "e2", "e2", model="q:noted")
    assert model_in_force([changed(1, None, "old"), noted]) == "q:noted"
    assert model_in_force([noted, changed(1, None, "new")]) == "p:new"
    assert model_in_force([changed(1, None, "old"), compacted(2, "e2", "e2")]) == "p:old"
    assert model_in_force([say(1, None)]) is None


def test_only_the_newest_compaction_says_where_the_live_path_begins(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    entries: list[Entry] = [*chain(4), compacted(1, "e3", "e3"), say(5, "c1"), say(6, "e5"), compacted(2, "e6", "e2")]
    write(path, entries)
    # The newest one keeps more than the one before it: that one lies on the way.
    assert ids(path) == ["e2", "e3", "c1", "e5", "e6", "c2"] == [entry.id for entry in live_path(entries)]
    itself = [*chain(2), compacted(1, "e1", "c1"), say(5, "c1")]
    write(path, itself)
    assert ids(path) == [entry.id for entry in live_path(itself)] == ["e0", "e1", "c1", "e5"]


def test_a_gap_of_several_damaged_lines_is_bridged_and_each_is_told_once_in_order(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, chain(7))
    damaged(path, 3, 4, 7)
    live = read_live(path)
    assert [entry.id for entry in live.entries] == ["e0", "e3", "e4", "e6"]
    assert [f"line {number}: cannot be read" in told for number, told in zip((3, 4, 7), live.damage, strict=True)] == [
        True
    ] * 3
    assert all(told.startswith(f"{path}, line ") for told in live.damage)


def test_damage_off_the_live_path_is_told_and_takes_nothing_away(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [*chain(3), say(10, "e0"), say(3, "e2")])
    damaged(path, 5)
    live = read_live(path)
    assert [entry.id for entry in live.entries] == ["e0", "e1", "e2", "e3"]
    assert len(live.damage) == 1


def test_a_newest_entry_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, chain(3))
    damaged(path, 4)
    live = read_live(path)
    assert ([entry.id for entry in live.entries], live.leaf_id, len(live.damage)) == (["e0", "e1"], "e1", 1)


def test_a_damaged_link_whose_ids_can_be_made_out_leads_to_its_parent_and_not_to_its_neighbour(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [*chain(2), say(10, "e0", "a branch that was left"), say(2, "e1"), say(3, "e2")])
    torn = json.dumps(say(2, "e1").to_json())[:-5].encode()
    for by in (torn, torn.replace(b'": "', b'":"')):
        damaged(path, 5, by=by)
        assert ids(path) == ["e0", "e1", "e3"]
        assert len(read_live(path).damage) == 1
    # Another entry's ids in the damage say nothing about the one that is looked for: its neighbour takes the place.
    damaged(path, 5, by=torn.replace(b"e2", b"e7"))
    assert ids(path) == ["e0", "e10", "e3"]


@pytest.mark.parametrize("version", [1, 2, 4])
def test_every_way_of_reading_entries_refuses_another_version_and_says_what_to_do(tmp_path: Path, version: int) -> None:
    path = tmp_path / "s.jsonl"
    write(path, chain(1))
    path.write_bytes(path.read_bytes().replace(b'"version":3', b'"version":%d' % version))
    for read in (read_live, read_session, lambda path: list(stream_entries(path))):
        with pytest.raises(SessionFileError, match=f"has format version {version}; `selfcompact migrate`"):
            read(path)
    assert read_header(path).version == version
    assert len(list(stream_json(path))) == 2


@pytest.mark.parametrize("content", [b"", b"\n\n", b"[]\n", b"{}\n", b'{"type":"message","id":"a","timestamp":"t"}\n'])
def test_a_file_without_a_header_is_no_session(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    with pytest.raises(SessionFileError, match=r"s\.jsonl, line 1: is not a session header"):
        read_header(path)


def test_a_stream_of_entries_tells_offsets_and_damage_and_can_begin_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, chain(4))
    damaged(path, 3)
    found = list(stream_entries(path))
    assert [entry.id for _, entry in found] == ["e0", "e2", "e3"]
    content = path.read_bytes()
    assert [json.loads(content[offset:].partition(b"\n")[0])["id"] for offset, _ in found] == ["e0", "e2", "e3"]
    assert [entry.id for _, entry in stream_entries(path, start=found[1][0])] == ["e2", "e3"]
    damage: list[str] = []
    assert len(list(stream_entries(path, damage=damage))) == 3
    header, entries, told = read_session(path)
    assert (header, [entry.id for entry in entries]) == (HEADER, ["e0", "e2", "e3"])
    (sentence,) = told
    assert told == damage
    assert f"{path}, line 3: cannot be read" in sentence
    assert "passed over" in sentence
    assert [record["id"] for record in stream_json(path) if isinstance(record, dict)] == ["s", "e0", "e2", "e3"]


def test_the_live_path_of_entries_at_hand_may_end_anywhere() -> None:
    entries: list[Entry] = [*chain(3), say(10, "e0")]
    assert [entry.id for entry in live_path(entries)] == ["e0", "e10"]
    assert [entry.id for entry in live_path(entries, "e2")] == ["e0", "e1", "e2"]
    assert live_path(entries, "nowhere") == []
    assert live_path([]) == []


def test_lines_longer_than_a_block_are_counted_and_torn_tails_found_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfcompact.log.lines.BLOCK", 7)
    path = tmp_path / "f"
    path.write_bytes(b"a" * 20 + b"\n" + b"b\n\n" + b"c" * 30)
    assert [line_number(path, offset) for offset in (0, 21, 23, 24, 10_000)] == [1, 2, 3, 4, 4]
    with path.open("rb") as file:
        assert torn_tail(file.fileno()) == b"c" * 30
    for content, tail in ((b"", b""), (b"x" * 14, b"x" * 14), (b"x" * 13 + b"\n", b""), (b"\n" + b"x" * 7, b"x" * 7)):
        path.write_bytes(content)
        with path.open("rb") as file:
            assert torn_tail(file.fileno()) == tail
