"""The commands that work on session files: sessions, inspect, search, export, import, migrate."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import selfcompact as sc
from selfcompact.cli import cli
from selfcompact.errors import SelfcompactError
from selfcompact.log import read_live, read_session
from selfcompact.messages import AssistantMessage
from selfcompact.workspace import new_session_file
from tests.end_to_end.helpers import FILL

REAL = Path(__file__).parents[1] / "data/pi-v1-large.jsonl"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
async def session_file(tmp_path: Path) -> Path:
    """A session with a compaction, an error, and a cell that wrote a file."""
    workspace = tmp_path / "w"
    workspace.mkdir()
    path = new_session_file(workspace)
    model = sc.ScriptedModel(
        [
            sc.cell(FILL),
            sc.cell("1/0"),
            sc.cell("open('made.txt', 'w').write('x')"),
            sc.cell(FILL),
            sc.cell("await compact.run('keep `made.txt`')"),
            sc.cell("2 + 2", thinking="so", say="I add."),
            sc.say("done ``` with fences"),
        ]
    )
    settings = sc.Settings.model_validate({"compaction": {"keep_recent_tokens": 300}})
    async with sc.open_session(model, workspace=workspace, session_file=path, settings=settings) as session:
        session.set_name("a <small> session")
        await session.prompt("do & tell")
    return path


def test_inspect_counts_what_happened(session_file: Path) -> None:
    figures = json.loads(invoke("inspect", session_file, "--json").stdout)
    assert figures["name"] == "a <small> session"
    assert (figures["prompts"], figures["turns"], figures["cells"], figures["failed_cells"]) == (1, 7, 6, 1)
    (compaction,) = figures["compactions"]
    assert (compaction["reason"], compaction["after_turn"]) == ("requested", 5)
    assert compaction["tokens_before"] > compaction["tokens_after"]
    assert compaction["saved_percent"] > 0
    assert figures["modified_files"] == ["made.txt"]
    assert figures["live_total"] == sum(figures["live_tokens"].values())
    assert len(figures["context_tokens"]) == 7
    shown = invoke("inspect", session_file)
    assert shown.exit_code == 0
    assert "after turn 5, requested" in shown.stdout


def test_the_page_is_one_file_that_loads_nothing_and_escapes_what_was_said(session_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert invoke("inspect", session_file, "--html", page).exit_code == 0
    text = page.read_text()
    assert "a &lt;small&gt; session" in text
    assert "<small>" not in text
    assert "<polyline" in text
    assert text.count("stroke-dasharray") == 1
    assert not re.search(r"(src|href)=|https?://|@import|<script", text)


def test_the_tree_lists_every_entry(session_file: Path) -> None:
    shown = invoke("inspect", session_file, "--tree").stdout
    for entry in read_session(session_file)[1]:
        assert entry.id in shown


def test_search_finds_what_the_summary_replaced(session_file: Path) -> None:
    hits = [
        json.loads(line) for line in invoke("search", session_file, "ZeroDivisionError", "--json").stdout.splitlines()
    ]
    assert hits[0]["kind"] == "toolResult"
    assert "ZeroDivisionError" in invoke("search", session_file, "ZeroDivisionError").stdout


def test_sessions_lists_files_with_size_tokens_and_name(session_file: Path) -> None:
    rows = [json.loads(line) for line in invoke("sessions", "--all", "--json").stdout.splitlines()]
    (row,) = rows
    assert row["file"] == str(session_file)
    assert row["name"] == "a <small> session"
    assert int(row["tokens"].replace(",", "")) > 100


@pytest.mark.parametrize("form", ["openai", "anthropic", "markdown", "pi"])
def test_an_export_says_what_it_lost_and_never_overwrites(session_file: Path, tmp_path: Path, form: str) -> None:
    target = tmp_path / "out"
    done = invoke("export", session_file, "--to", form, "-o", target)
    assert done.exit_code == 0
    content = target.read_text()
    assert "I add." in content
    again = invoke("export", session_file, "--to", form, "-o", target)
    assert isinstance(again.exception, SelfcompactError)
    assert target.read_text() == content
    if form == "openai":
        assert "1 × thinking" in done.stderr
        roles = [message["role"] for message in json.loads(content)["messages"]]
        assert set(roles) == {"user", "assistant", "tool"}
    if form == "anthropic":
        assert "1 × thinking without a signature" in done.stderr
        messages = json.loads(content)["messages"]
        assert all(a["role"] != b["role"] for a, b in itertools.pairwise(messages))
    if form == "markdown":
        assert "````" not in content or "``` with fences" in content
    if form == "pi":
        assert target.read_bytes() == session_file.read_bytes()


def test_a_whole_export_holds_what_was_summarised(session_file: Path) -> None:
    live = json.loads(invoke("export", session_file, "--to", "openai").stdout)["messages"]
    whole = json.loads(invoke("export", session_file, "--to", "openai", "--whole").stdout)["messages"]
    assert len(whole) == 14
    assert len(live) < len(whole)
    assert "1/0" in json.dumps(whole)


def test_chat_messages_come_back_after_an_import(session_file: Path, tmp_path: Path) -> None:
    chat = tmp_path / "chat.json"
    invoke("export", session_file, "--to", "openai", "--whole", "-o", chat)
    data = json.loads(chat.read_text())
    data["messages"].insert(0, {"role": "system", "content": "be good"})
    chat.write_text(json.dumps(data))
    target = tmp_path / "imported.jsonl"
    done = invoke("import", chat, "--from", "openai", "-o", target)
    assert done.exit_code == 0
    assert "1 × system messages" in done.stderr
    again = json.loads(invoke("export", target, "--to", "openai").stdout)
    assert again["messages"] == data["messages"][1:]
    entries = read_live(target).entries
    assert isinstance(getattr(entries[1], "message", None), AssistantMessage)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not JSON"),
        ("{}", "should hold a list of chat messages"),
        ('[{"role": "wizard"}]', "message 1: the role 'wizard'"),
        ('[{"role": "user", "content": 3}]', "message 1: content should be text"),
        ('[{"role": "user", "content": "x"}, 3]', "message 2: should be an object with a role"),
        ('[{"role": "assistant", "tool_calls": [{}]}]', "message 1: a tool call should have a function"),
    ],
)
def test_a_wrong_conversation_is_told_with_the_number_of_its_message(
    tmp_path: Path, content: str, problem: str
) -> None:
    source = tmp_path / "chat.json"
    source.write_text(content)
    done = invoke("import", source, "--from", "openai", "-o", tmp_path / "out.jsonl")
    assert isinstance(done.exception, SelfcompactError)
    assert problem in str(done.exception)
    assert not (tmp_path / "out.jsonl").exists()


def test_an_old_session_is_migrated_into_a_new_file(tmp_path: Path) -> None:
    target = tmp_path / "v3.jsonl"
    assert invoke("migrate", REAL, "-o", target).exit_code == 0
    figures = json.loads(invoke("inspect", target, "--json").stdout)
    assert figures["entries"] == 1018
    assert figures["damage"] == []
    assert figures["turns"] > 400
    assert "packages/coding-agent/src/main.ts" in figures["modified_files"] + figures["read_files"]
