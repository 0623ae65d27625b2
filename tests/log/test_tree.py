"""The whole file as a tree: what each entry is called, how much of it is shown, which branch is live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from selfcompact.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
)
from selfcompact.errors import SessionFileError
from selfcompact.log.reading import session_name
from selfcompact.log.tree import excerpt_of, kind_of, path_to, read_tree
from selfcompact.messages import Message
from tests.compaction.build import answered, called, resulted, said

from .test_reading import AT, chain, say, write

AFTER: dict[str, Any] = {"parent_id": "e2", "timestamp": AT}


def message(told: Message) -> MessageEntry:
    return MessageEntry(id="m", message=told, **AFTER)


@pytest.mark.parametrize(
    ("entry", "kind", "excerpt"),
    [
        (message(said("a  question\n of two lines")), "user", "a question of two lines"),
        (message(answered("an answer", called("c"))), "assistant", "an answer"),
        (message(answered("", called("c", "x = 1\ny"), called("d"))), "assistant", "ipython: x = 1 y; ipython: 1 + 1"),
        (message(answered(" \n", called("c", name="other", path="p"))), "assistant", "other: {'path': 'p'}"),
        (message(resulted("c", "42")), "toolResult", "42"),
        (message(resulted("c", "no such name", is_error=True)), "toolResult", "error: no such name"),
        (CompactionEntry(id="c", summary="s", first_kept_entry_id="e", tokens_before=9, **AFTER), "compaction", "s"),
        (BranchSummaryEntry(id="b", from_id="e", summary="went nowhere", **AFTER), "branch_summary", "went nowhere"),
        (ModelChangeEntry(id="m", provider="openai", model_id="gpt", **AFTER), "model_change", "openai:gpt"),
        (LabelEntry(id="l", target_id="e1", label="here", **AFTER), "label", "e1: here"),
        (LabelEntry(id="l", target_id="e1", label=None, **AFTER), "label", "e1: (removed)"),
        (SessionInfoEntry(id="n", name="A talk", **AFTER), "session_info", "A talk"),
        (SessionInfoEntry(id="n", name=None, **AFTER), "session_info", ""),
        (CustomEntry(id="x", custom_type="selfcompact.attempt", **AFTER), "custom", "selfcompact.attempt"),
        (CustomMessageEntry(id="x", custom_type="note", content="a note", **AFTER), "custom_message", "a note"),
        (ThinkingLevelChangeEntry(id="t", thinking_level="high", **AFTER), "thinking_level_change", ""),
    ],
)  # fmt: skip
def test_an_entry_is_named_by_what_it_is_and_shown_by_what_it_says(entry: Entry, kind: str, excerpt: str) -> None:
    assert (kind_of(entry), excerpt_of(entry)) == (kind, excerpt)


def test_an_excerpt_is_cut_at_its_limit_and_says_so() -> None:
    assert excerpt_of(say(1, None, "x" * 80)) == "x" * 80
    assert excerpt_of(say(1, None, "x" * 81)) == "x" * 79 + "…"
    assert excerpt_of(say(1, None, "x" * 9), limit=8) == "x" * 7 + "…"


def labelled(number: int, target: str, label: str | None) -> LabelEntry:
    return LabelEntry(id=f"l{number}", parent_id="e2", timestamp=AT, target_id=target, label=label)


def test_the_newest_label_and_name_hold_and_a_removed_label_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    labels = [
        labelled(1, "e0", "first"),
        labelled(2, "e0", "again"),
        labelled(3, "e1", "gone"),
        labelled(4, "e1", None),
        labelled(5, "e2", ""),
    ]
    names = [SessionInfoEntry(id=f"n{n}", name=name, **AFTER) for n, name in enumerate(["Old", "New"])]
    write(path, [*chain(3), *labels, *names])
    tree = read_tree(path)
    assert {node.id: node.label for node in tree.nodes.values() if node.label} == {"e0": "again"}
    assert tree.nodes["e1"].label is None
    assert tree.name == session_name(path) == "New"


def test_a_name_is_found_wherever_it_stands_and_never_in_what_was_said(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    name = SessionInfoEntry(id="n", name="A talk", **AFTER)
    forged = say(9, "n", '{"type":"session_info","name":"forged"}')
    write(path, [name, *chain(2)])
    assert session_name(path) == "A talk"
    write(path, [*chain(2), name, forged])
    assert session_name(path) == "A talk"
    write(path, [*chain(2), name])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert session_name(path) == "A talk"
    broken = b'{"type":"session_info","name":\n'
    path.write_bytes(path.read_bytes() + b"\n" + broken)
    assert session_name(path) == "A talk"
    write(path, chain(2))
    assert session_name(path) is None


def test_every_node_says_where_it_belongs_and_the_newest_entry_is_the_leaf(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [*chain(2), say(7, "lost")])
    tree = read_tree(path)
    assert tree.leaf_id == "e7"
    assert [root.id for root in tree.roots] == ["e0", "e7"]
    node = tree.nodes["e1"]
    assert (node.id, node.parent_id, node.kind, node.excerpt, node.timestamp) == ("e1", "e0", "user", "m1", AT)
    assert (node.children, node.live, tree.nodes["e7"].live) == ((), False, True)
    assert tree.path("nowhere") == []
    assert tree.name is None
    write(path, [])
    empty = read_tree(path)
    assert (empty.nodes, empty.leaf_id, empty.path()) == ({}, None, [])


def test_a_long_file_tells_the_offset_it_has_reached_every_5000_entries(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [say(n, None) for n in range(5_001)])
    heard: list[int] = []
    read_tree(path, heard.append)
    lines = path.read_bytes().splitlines(keepends=True)
    assert heard == [sum(map(len, lines[: 1 + count])) for count in (0, 5_000)]


def test_the_way_to_an_entry_is_from_the_root_to_it_along_its_own_branch(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [*chain(3), say(10, "e0"), say(11, "e10"), say(20, "nowhere")])
    assert path_to(path, "e11") == ["e0", "e10", "e11"]
    assert path_to(path, "e0") == ["e0"]
    assert path_to(path, "e20") == ["e20"]
    with pytest.raises(SessionFileError, match="has no entry e99"):
        path_to(path, "e99")
