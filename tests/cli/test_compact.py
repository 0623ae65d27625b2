"""`selfcompact compact`: any session file, each style; the input is never changed unless that is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from selfcompact.cli import cli
from selfcompact.entries import CompactionEntry, Entry, MessageEntry
from selfcompact.errors import SelfcompactError
from selfcompact.log import read_live, read_session
from selfcompact.messages import AssistantMessage, TextContent
from tests.log.test_reading import AT, say, write

REAL = Path(__file__).parents[1] / "data/pi-v1-large.jsonl"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compact", *map(str, arguments)])


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "s.jsonl"
    entries: list[Entry] = []
    for number in range(60):
        parent = f"e{number - 1}" if number else None
        if number % 10 == 0:
            entries.append(say(number, parent, f"message {number}: do it"))
        else:
            text = f"message {number}: " + "some words " * 100
            answer = AssistantMessage(content=(TextContent(text=text),), timestamp=1)
            entries.append(MessageEntry(id=f"e{number}", parent_id=parent, timestamp=AT, message=answer))
    write(path, entries)
    return path


@pytest.mark.parametrize("style", ["sections", "kimi", "handoff"])
def test_a_copy_gets_the_compaction_and_the_input_stays(session: Path, tmp_path: Path, style: str) -> None:
    before, output = session.read_bytes(), tmp_path / "out.jsonl"
    done = invoke(session, "--style", style, "--keep-recent", 1000, "-o", output, "--instructions", "keep `message 7`")
    assert done.exit_code == 0, done.output
    assert session.read_bytes() == before
    newest = read_live(output).entries[-1]
    assert isinstance(newest, CompactionEntry)
    assert "message 7" in newest.summary
    assert newest.custom_instructions == "keep `message 7`"
    assert "→" in done.stdout
    assert style in done.stdout


def test_a_dry_run_and_a_run_without_a_target_write_nothing(session: Path) -> None:
    before = session.read_bytes()
    plan = invoke(session, "--keep-recent", 1000, "--dry-run")
    assert plan.exit_code == 0
    assert "summary" not in plan.stdout.split("style")[1]
    shown = invoke(session, "--keep-recent", 1000)
    assert "nowhere" in shown.stdout
    assert session.read_bytes() == before
    assert [path.name for path in session.parent.iterdir()] == ["s.jsonl"]


def test_in_place_appends_one_record(session: Path) -> None:
    before = session.read_bytes()
    assert invoke(session, "--keep-recent", 1000, "--in-place").exit_code == 0
    assert session.read_bytes().startswith(before)
    assert len(read_session(session)[1]) == 61
    again = invoke(session, "--keep-recent", 1000, "--in-place")
    assert "already compacted" in again.stdout


def test_a_real_session_of_version_1_is_compacted_into_a_new_file(tmp_path: Path) -> None:
    copy, output = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    shutil.copy(REAL, copy)
    before = copy.read_bytes()
    done = invoke(copy, "-o", output)
    assert done.exit_code == 0, done.output
    assert copy.read_bytes() == before
    live = read_live(output).entries
    assert isinstance(live[-1], CompactionEntry)
    assert len(live) < 300
    refused = invoke(copy, "--in-place")
    assert isinstance(refused.exception, SelfcompactError)
    assert "older version" in str(refused.exception)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--style", "haiku"], "haiku"),
        (["--in-place", "-o", "x.jsonl"], "exclude each other"),
        (["--offline", "-m", "openai:gpt-5"], "exclude each other"),
    ],
)
def test_wrong_use_is_told(session: Path, arguments: list[str], problem: str) -> None:
    done = invoke(session, *arguments)
    assert isinstance(done.exception, SelfcompactError)
    assert problem in str(done.exception)
