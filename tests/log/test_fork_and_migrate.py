"""Copies: a branch into a new file, an older version into the newest; the original is never touched."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from selfcompact.entries import CompactionEntry
from selfcompact.errors import SessionFileError
from selfcompact.log import SessionLog, live_path, read_header, read_live, read_session
from selfcompact.log.blobs import INLINE_BYTES, blob_folder
from selfcompact.log.fork import fork_session, migrate_session
from selfcompact.log.migrate import migrated
from selfcompact.log.tree import read_tree
from selfcompact.messages import CustomMessage

from .test_blobs import with_image
from .test_reading import chain, say, write

USER = {"role": "user", "timestamp": 1}
REAL = Path(__file__).parents[1] / "data/pi-v1-large.jsonl"


def test_a_fork_holds_its_branch_alone_and_names_where_it_came_from(tmp_path: Path) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write(source, [*chain(4), say(10, "e1"), say(11, "e10")])
    before = source.read_bytes()
    fork_session(source, target, "e3")
    assert [entry.id for entry in read_live(target).entries] == ["e0", "e1", "e2", "e3"]
    assert read_header(target).parent_session == str(source)
    assert read_header(target).id != read_header(source).id
    assert source.read_bytes() == before
    with pytest.raises(SessionFileError, match="already exists"):
        fork_session(source, target, "e3")
    with pytest.raises(SessionFileError, match="has no entry e99"):
        fork_session(source, tmp_path / "c.jsonl", "e99")
    assert not (tmp_path / "c.jsonl").exists()


def test_a_real_session_of_version_1_opens_after_migration(tmp_path: Path) -> None:
    """1,018 entries, no ids; nothing of them is lost."""
    with pytest.raises(SessionFileError, match="format version 1; `selfcompact migrate`"):
        SessionLog.open(REAL, cwd=tmp_path)
    target = migrate_session(REAL, tmp_path / "v3.jsonl")
    header, entries, damage = read_session(target)
    assert (header.version, len(entries), damage) == (3, 1018, [])
    assert live_path(entries) == entries
    old = [json.loads(line) for line in REAL.read_text().splitlines()]
    new = [json.loads(line) for line in target.read_text().splitlines()]
    for before, after in zip(old[1:], new[1:], strict=True):
        assert {key: value for key, value in after.items() if key not in ("id", "parentId")} == before
    assert len({entry.id for entry in entries}) == 1018
    with SessionLog.open(target, cwd=tmp_path) as log:
        assert len(log.entries) == 1018


def test_indices_of_version_1_become_ids_and_hook_messages_are_renamed(tmp_path: Path) -> None:
    source = tmp_path / "v1.jsonl"
    records = [
        {"type": "session", "id": "s", "timestamp": "t", "cwd": "/"},
        *({"type": "message", "timestamp": "t", "message": {**USER, "content": text}} for text in "abc"),
        {"type": "compaction", "timestamp": "t", "summary": "s", "firstKeptEntryIndex": 2, "tokensBefore": 5},
        {"type": "message", "timestamp": "t",
         "message": {"role": "hookMessage", "customType": "x", "content": "c", "display": True, "timestamp": 1}},
    ]  # fmt: skip
    source.write_text("\n".join(map(json.dumps, records)) + "\n")
    _, entries, damage = read_session(migrate_session(source, tmp_path / "v3.jsonl"))
    assert damage == []
    compaction = entries[3]
    assert isinstance(compaction, CompactionEntry)
    assert compaction.first_kept_entry_id == entries[1].id
    assert isinstance(getattr(entries[4], "message", None), CustomMessage)


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "v9.jsonl"
    source.write_text('{"type":"session","version":9,"id":"s","timestamp":"t","cwd":"/"}\n')
    with pytest.raises(SessionFileError, match=r"v9\.jsonl: has format version 9, which is newer than 3"):
        migrate_session(source, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_the_tree_shows_every_branch_and_which_is_live(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [*chain(3), say(10, "e0", "another way"), say(11, "e10")])
    tree = read_tree(path)
    assert [root.id for root in tree.roots] == ["e0"]
    assert tree.nodes["e0"].children == ("e1", "e10")
    assert [node.id for node in tree.nodes.values() if node.live] == ["e0", "e10", "e11"]
    assert [node.id for node in tree.path()] == ["e0", "e10", "e11"]
    assert [node.id for node in tree.path("e2")] == ["e0", "e1", "e2"]
    assert tree.nodes["e10"].excerpt == "another way"


def records_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_fork_keeps_its_records_as_they_stood_and_has_a_header_of_its_own(tmp_path: Path) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    unknown = {"type": "invented", "id": "u", "parentId": "e1", "timestamp": "t", "x": {"y": None}}
    write(source, chain(2))
    header, *entries = records_of(source)
    source.write_text("\n".join(map(json.dumps, [{**header, "mood": "good"}, *entries, unknown])) + "\nbroken\n[1]\n")
    before = datetime.now(UTC)
    assert fork_session(source, target, "u") == target
    forked, *rest = records_of(target)
    assert rest == [*entries, unknown]
    assert forked == {
        **header,
        "mood": "good",
        "id": forked["id"],
        "timestamp": forked["timestamp"],
        "parentSession": str(source),
    }
    assert forked["id"] != header["id"]
    assert datetime.fromisoformat(forked["timestamp"]) >= before - timedelta(seconds=1)


def test_a_fork_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError, match="format version 1"):
        fork_session(REAL, tmp_path / "b.jsonl", "e0")
    assert not (tmp_path / "b.jsonl").exists()


def test_images_beside_the_log_go_with_every_copy(tmp_path: Path) -> None:
    path, raw = tmp_path / "s.jsonl", os.urandom(INLINE_BYTES * 2)
    entry = with_image("a", raw)
    with SessionLog.open(path, cwd=tmp_path) as log:
        log.append(entry)
    fork_session(path, tmp_path / "fork.jsonl", "a")
    migrate_session(path, tmp_path / "migrated.jsonl")
    for copy in ("fork.jsonl", "migrated.jsonl"):
        assert list(read_live(tmp_path / copy).entries) == [entry]
    write(tmp_path / "plain.jsonl", chain(1))
    fork_session(tmp_path / "plain.jsonl", tmp_path / "plain-fork.jsonl", "e0")
    assert not blob_folder(tmp_path / "plain-fork.jsonl").exists()


V1: dict[str, Any] = {"type": "session", "id": "s", "timestamp": "t", "cwd": "/"}
COMPACTION: dict[str, Any] = {"type": "compaction", "timestamp": "t", "summary": "s", "tokensBefore": 5}


def said_in_v1(text: str) -> dict[str, Any]:
    return {"type": "message", "timestamp": "t", "message": {**USER, "content": text}}


def test_lines_that_are_no_records_and_second_headers_count_in_version_1_and_are_no_entries() -> None:
    """An index counts lines of the file, so what is skipped must not move the others."""
    second = {**V1, "id": "again"}
    records = [V1, said_in_v1("a"), [1], second, said_in_v1("b"), {**COMPACTION, "firstKeptEntryIndex": 4}]
    header, a, again, b, compaction = migrated(records, 1)
    assert (header, again) == ({**V1, "version": 3}, {**second, "version": 3})
    assert isinstance(a, dict)
    assert isinstance(b, dict)
    assert isinstance(compaction, dict)
    assert (a["parentId"], b["parentId"], compaction["parentId"]) == (None, a["id"], b["id"])
    assert compaction["firstKeptEntryId"] == b["id"]
    assert "firstKeptEntryIndex" not in compaction
    assert len({a["id"], b["id"], compaction["id"]}) == 3
    assert all(len(record["id"]) == 16 for record in (a, b, compaction))


@pytest.mark.parametrize("index", [None, -1, 0, 2, 9, "1"])
def test_an_index_that_leads_to_no_entry_keeps_nothing_before_the_compaction(index: object) -> None:
    *_, compaction = migrated([V1, said_in_v1("a"), {**COMPACTION, "firstKeptEntryIndex": index}], 1)
    assert isinstance(compaction, dict)
    assert compaction["firstKeptEntryId"] == compaction["id"]


def test_the_entry_right_after_the_header_has_index_1_and_an_id_that_is_there_stays() -> None:
    _, a, by_index, by_id = migrated(
        [V1, said_in_v1("a"), {**COMPACTION, "firstKeptEntryIndex": 1}, {**COMPACTION, "firstKeptEntryId": "kept"}], 1
    )
    assert isinstance(a, dict)
    assert isinstance(by_index, dict)
    assert isinstance(by_id, dict)
    assert by_index["firstKeptEntryId"] == a["id"]
    assert by_id["firstKeptEntryId"] == "kept"


def test_version_2_keeps_its_ids_and_only_the_messages_of_extensions_change() -> None:
    hook = {"role": "hookMessage", "customType": "x", "content": "c", "timestamp": 1}
    entry: dict[str, Any] = {"type": "message", "id": "a", "parentId": None, "timestamp": "t", "message": hook}
    other = {**entry, "id": "b", "parentId": "a", "message": {**USER, "content": "hookMessage"}}
    header, first, second = migrated([{**V1, "version": 2}, entry, "no record", other], 2)
    assert header == {**V1, "version": 3}
    assert first == {**entry, "message": {**hook, "role": "custom"}}
    assert second is other


def test_a_session_of_the_newest_version_is_copied_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", chain(3))
    assert migrate_session(tmp_path / "a.jsonl", tmp_path / "b.jsonl") == tmp_path / "b.jsonl"
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
