"""Opening from the end gives what reading everything would give, and costs what the live context costs."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcompact.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    Entry,
    MessageEntry,
    ModelChangeEntry,
    SessionHeader,
)
from selfcompact.errors import SessionFileError
from selfcompact.log import lines as lines_module
from selfcompact.log import live_path, read_header, read_live, read_session
from selfcompact.log.lines import encode_line, line_number, lines_backward, lines_forward
from selfcompact.log.reading import model_in_force
from selfcompact.messages import user

AT = "2026-01-02T03:04:05.678Z"
HEADER = SessionHeader(version=3, id="s", timestamp=AT, cwd="/w")


def say(number: int, parent: str | None, text: str = "") -> MessageEntry:
    return MessageEntry(
        id=f"e{number}", parent_id=parent, timestamp=AT, message=user(text or f"m{number}", clock=lambda: 1)
    )


def write(path: Path, entries: list[Entry]) -> None:
    path.write_bytes(b"".join(encode_line(record) for record in [HEADER, *entries]))


def chain(count: int) -> list[Entry]:
    return [say(n, f"e{n - 1}" if n else None) for n in range(count)]


@given(
    st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")), max_size=30),
    st.booleans(),
)
@settings(max_examples=150)
def test_lines_backward_are_lines_forward_reversed(lines: list[bytes], ends: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "BLOCK", 7)
        path = Path(folder) / "f"
        path.write_bytes(b"\n".join(lines) + (b"\n" if ends else b""))
        descriptor = os.open(path, os.O_RDONLY)
        try:
            backward = list(lines_backward(descriptor))
        finally:
            os.close(descriptor)
        assert backward == list(reversed(list(lines_forward(path))))


@st.composite
def trees(draw: st.DrawFn) -> list[Entry]:
    """Sessions with branches and compactions, as programs of the family write them."""
    entries: list[Entry] = []
    leaf: str | None = None
    for number in range(draw(st.integers(1, 40))):
        kind = draw(st.sampled_from(["say", "say", "say", "compact", "branch", "model"]))
        if kind == "branch" and entries:
            leaf = draw(st.sampled_from(entries)).id
            entries.append(
                BranchSummaryEntry(
                    id=f"e{number}", parent_id=leaf, timestamp=AT, from_id=entries[-1].id, summary="left"
                )
            )
        elif kind == "compact" and leaf is not None:
            on_path = [entry.id for entry in live_path(entries, leaf)]
            kept = draw(st.sampled_from(on_path))
            entries.append(
                CompactionEntry(
                    id=f"e{number}",
                    parent_id=leaf,
                    timestamp=AT,
                    summary="s",
                    first_kept_entry_id=kept,
                    tokens_before=9,
                )
            )
        elif kind == "model":
            entries.append(ModelChangeEntry(id=f"e{number}", parent_id=leaf, timestamp=AT, provider="p", model_id="m"))
        else:
            entries.append(say(number, leaf))
        leaf = entries[-1].id
    return entries


@given(trees())
@settings(max_examples=100)
def test_the_live_end_of_a_file_is_the_live_path_of_all_its_entries(entries: list[Entry]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.jsonl"
        write(path, entries)
        live = read_live(path)
        assert list(live.entries) == live_path(entries)
        assert live.damage == ()
        for entry in entries:
            assert list(read_live(path, leaf_id=entry.id).entries) == live_path(entries, entry.id)


def test_only_the_live_end_is_read(tmp_path: Path) -> None:
    """What lies before the first kept entry is not touched."""
    path = tmp_path / "s.jsonl"
    entries = [say(n, f"e{n - 1}" if n else None, "x" * 2_000) for n in range(3_000)]
    compaction = CompactionEntry(
        id="c", parent_id="e2999", timestamp=AT, summary="s", first_kept_entry_id="e2990", tokens_before=9
    )
    write(path, [*entries, compaction])
    live = read_live(path)
    assert [entry.id for entry in live.entries] == [*(f"e{n}" for n in range(2990, 3000)), "c"]
    assert live.bytes_read < 30_000
    assert path.stat().st_size > 6_000_000


@pytest.mark.parametrize("damaged", range(1, 9))
def test_a_damaged_line_costs_itself_alone_wherever_it_is(tmp_path: Path, damaged: int) -> None:
    """Reported with its line number; what is before it is still part of the conversation."""
    path = tmp_path / "s.jsonl"
    write(path, chain(9))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[damaged] = b"\0" * 30 + b"\n"
    path.write_bytes(b"".join(lines))
    live = read_live(path)
    assert [entry.id for entry in live.entries] == [f"e{n}" for n in range(9) if n != damaged - 1]
    (sentence,) = live.damage
    assert f"line {damaged + 1}: " in sentence


def test_a_damaged_line_whose_ids_can_be_made_out_is_bridged_exactly(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    entries = [*chain(4), say(10, "e1", "left behind"), say(11, "e3")]
    write(path, entries)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][:-20] + b"\n"  # e3, torn at its end: id and parent are still there
    path.write_bytes(b"".join(lines))
    assert [entry.id for entry in read_live(path).entries] == ["e0", "e1", "e2", "e11"]


def test_a_parent_that_is_nowhere_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [*chain(2), say(5, "nowhere")])
    live = read_live(path)
    assert [entry.id for entry in live.entries] == ["e5"]
    assert "entry nowhere is named as a parent but is not there" in live.damage[0]


def test_the_model_in_force_is_known_also_when_its_change_was_summarised(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    change = ModelChangeEntry(id="m", parent_id=None, timestamp=AT, provider="anthropic", model_id="claude")
    compaction = CompactionEntry(
        id="c",
        parent_id="e1",
        timestamp=AT,
        summary="s",
        first_kept_entry_id="e1",
        tokens_before=9,
        details={"selfcompact": {"model": "anthropic:claude"}},
    )
    write(path, [change, say(0, "m"), say(1, "e0")])
    assert model_in_force(read_live(path).entries) == "anthropic:claude"
    write(path, [change, say(0, "m"), say(1, "e0"), compaction])
    assert [entry.id for entry in read_live(path).entries] == ["e1", "c"]
    assert model_in_force(read_live(path).entries) == "anthropic:claude"


def test_an_entry_that_is_not_there_cannot_be_a_leaf(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, chain(2))
    with pytest.raises(SessionFileError, match="has no entry e7"):
        read_live(path, leaf_id="e7")


def test_unknown_entries_and_fields_come_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    records: list[dict[str, Any]] = [
        {"type": "invented", "id": "a", "parentId": None, "timestamp": AT, "x": [1, None, {"y": "\ud800"}]},
        {"type": "message", "id": "b", "parentId": "a", "timestamp": AT, "mood": "good",
         "message": {"role": "assistant", "content": [{"type": "text", "text": "hi", "z": 1}, {"type": "odd", "q": 2}],
                     "usage": {"input": 1, "output": 2, "cost": {"total": 0.1}}, "stopReason": "stop", "timestamp": 1}},
        {"type": "label", "id": "c", "parentId": "b", "timestamp": AT, "targetId": "a", "label": None},
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(r) for r in [HEADER.to_json(), *records]) + "\n")
    _, entries, damage = read_session(path)
    assert damage == []
    for entry, record in zip(entries, records, strict=True):
        assert_holds(entry.to_json(), record)


def assert_holds(data: Any, record: Any) -> None:
    """Everything of the record is there as it was; defaults of known fields may have been added."""
    if isinstance(record, dict):
        for key, value in record.items():
            assert_holds(data[key], value)
    elif isinstance(record, list):
        assert len(data) == len(record)
        for mine, theirs in zip(data, record, strict=True):
            assert_holds(mine, theirs)
    else:
        assert data == record


def test_line_numbers_count_from_one(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a\nbb\n\nccc\n")
    assert [line_number(path, offset) for offset, _ in lines_forward(path)] == [1, 2, 4]


def test_a_header_of_any_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text('{"type":"session","id":"x","timestamp":"t","cwd":"/"}\n')
    assert read_header(path).version == 1


def test_the_order_of_unrelated_branches_does_not_matter(tmp_path: Path) -> None:
    """Records of the branches stand in the file in any order; the newest one says which branch is live."""
    path = tmp_path / "s.jsonl"
    sides: list[list[Entry]] = [
        [say(20 + n, f"e{19 + n}" if n else "e2") for n in range(3)],
        [say(40 + n, f"e{39 + n}" if n else "e1") for n in range(3)],
    ]
    main = chain(6)
    orders = set()
    for seed in range(20):
        branches: list[list[Entry]] = [main[3:5], *map(list, sides)]
        turns = [n for n, branch in enumerate(branches) for _ in branch]
        random.Random(seed).shuffle(turns)
        rest = [iter(branch) for branch in branches]
        mixed = [next(rest[turn]) for turn in turns]
        orders.add(tuple(entry.id for entry in mixed))
        write(path, [*main[:3], *mixed, main[5]])
        live = read_live(path)
        assert [entry.id for entry in live.entries] == [f"e{n}" for n in range(6)]
        assert live.damage == ()
        for side in sides:
            leaf = side[-1].id
            fork = int(side[0].id[1:]) // 20
            assert [e.id for e in read_live(path, leaf_id=leaf).entries] == [
                *(f"e{n}" for n in range(4 - fork)),
                *(entry.id for entry in side),
            ]
    assert len(orders) > 10
