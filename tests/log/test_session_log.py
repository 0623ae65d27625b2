"""The session log: one record a line, nothing lost, nothing glued."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcompact.entries import CompactionEntry, Entry, MessageEntry, UnknownEntry, now_iso
from selfcompact.errors import SessionFileError
from selfcompact.log import SessionLog, live_path, read_session
from selfcompact.log.lines import encode_json, encode_line
from selfcompact.messages import text_of, user


def entry(number: int, text: str = "") -> MessageEntry:
    parent = f"{number - 1:08x}" if number else None
    return MessageEntry(id=f"{number:08x}", parent_id=parent, timestamp=now_iso(), message=user(text or f"m{number}"))


def write(path: Path, entries: list[Entry]) -> None:
    with SessionLog.open(path, cwd=path.parent) as log:
        for item in entries:
            log.append(item)


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    entries: list[Entry] = [entry(n) for n in range(5)]
    write(path, entries)
    with SessionLog.open(path, cwd=tmp_path) as log:
        assert list(log.entries) == entries
        assert log.header.version == 3
        assert log.header.cwd == str(tmp_path)


@given(st.text(alphabet=st.characters(exclude_categories=()), min_size=1))
@settings(max_examples=200)
def test_any_text_survives_the_file(text: str) -> None:
    """Unpaired surrogates, NUL, U+2028, carriage returns: one record stays one line and the same text."""
    line = encode_line(entry(0, text))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    data = json.loads(line)
    assert data["message"]["content"][0]["text"] == text


def test_truncating_at_any_byte_loses_at_most_the_torn_record(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [entry(n, "näh \u2028 \ud800" * n) for n in range(3)])
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    for size in range(ends[0], len(whole) + 1):
        cut = tmp_path / f"cut-{size}.jsonl"
        cut.write_bytes(whole[:size])
        complete = sum(end <= size for end in ends) - 1
        with SessionLog.open(cut, cwd=tmp_path) as log:
            whole_but_for_the_newline = size + 1 in ends
            assert len(log.entries) == complete + whole_but_for_the_newline
            log.append(entry(len(log.entries), "after the crash"))
        _, entries, damage = read_session(cut)
        assert damage == []
        newest = entries[-1]
        assert isinstance(newest, MessageEntry)
        assert text_of(newest.message) == "after the crash"
        for leftover in tmp_path.glob(f"cut-{size}*"):
            leftover.unlink()


def test_a_torn_line_is_kept_beside_the_log(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [entry(0)])
    with path.open("ab") as file:
        file.write(b'{"type":"message","id":"0000')
    with SessionLog.open(path, cwd=tmp_path):
        pass
    (aside,) = tmp_path.glob("s.jsonl.torn-*")
    assert aside.read_bytes() == b'{"type":"message","id":"0000'


def test_damage_in_the_middle_is_reported_with_its_line_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [entry(0), entry(1)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1], b"\0\0\0\0\n", lines[2]]))
    with SessionLog.open(path, cwd=tmp_path) as log:
        assert len(log.entries) == 2
        assert len(log.damage) == 1
        assert "line 3" in log.damage[0]


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with SessionLog.open(path, cwd=tmp_path), pytest.raises(SessionFileError, match="another session"):
        SessionLog.open(path, cwd=tmp_path)


@pytest.mark.parametrize("content", [b"just some notes\nof mine", b"{}\n", b'{"type":"message","id":"1"}\n', b"[1]\n"])
def test_a_file_that_is_no_session_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(SessionFileError, match=r"notes\.txt, line 1: is not a session header"):
        SessionLog.open(path, cwd=tmp_path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_entries_of_unknown_types_keep_their_fields() -> None:
    from selfcompact.entries import decode_entry

    data = {"type": "invented", "id": "1", "parentId": None, "timestamp": "t", "anything": {"a": [1, None]}}
    found = decode_entry(data)
    assert isinstance(found, UnknownEntry)
    assert found.to_json() == data


def test_the_live_path_begins_at_the_first_kept_entry_and_follows_one_branch() -> None:
    """Entries of a branch that was left are not part of it."""
    entries: list[Entry] = [entry(n) for n in range(4)]
    entries.append(
        MessageEntry(id="left", parent_id="00000001", timestamp=now_iso(), message=user("a branch that was left"))
    )
    entries.append(
        CompactionEntry(
            id="c",
            parent_id="00000003",
            timestamp=now_iso(),
            summary="s",
            first_kept_entry_id="00000002",
            tokens_before=9,
        )
    )
    entries.append(MessageEntry(id="new", parent_id="c", timestamp=now_iso(), message=user("new")))
    assert [item.id for item in live_path(entries)] == ["00000002", "00000003", "c", "new"]


def test_a_record_is_compact_utf8_and_ascii_only_where_it_must_be() -> None:
    assert encode_json({"a": "ä\u2028", "b": [1, None]}) == '{"a":"ä\u2028","b":[1,null]}\n'.encode()
    assert encode_json({"a": "ä\ud800", "b": [1]}) == b'{"a":"\\u00e4\\ud800","b":[1]}\n'
