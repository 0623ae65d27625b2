"""Copies: a branch into a new file, an older version into the newest; the original is never touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from selfcompact.entries import CompactionEntry
from selfcompact.errors import SessionFileError
from selfcompact.log import SessionLog, live_path, read_header, read_live, read_session
from selfcompact.log.fork import fork_session, migrate_session
from selfcompact.log.tree import read_tree
from selfcompact.messages import CustomMessage

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
    with pytest.raises(SessionFileError, match="newer than 3"):
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
