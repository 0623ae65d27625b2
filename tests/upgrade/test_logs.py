"""Logs of every release are opened, continued, listed, searched, copied and exported by the code of today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import selfcompact as sc
from selfcompact.cli import cli
from selfcompact.messages import text_of
from selfcompact.session.history import validate_history
from selfcompact.workspace import sessions_folder
from tests.end_to_end.helpers import outputs
from tests.upgrade.build import KEEP, NEEDLE, as_json, copied
from tests.upgrade.conftest import DATA

LOGS = sorted(str(path.relative_to(DATA)) for path in DATA.glob("*/sessions/*.jsonl"))
ONE_AND_THE_REST = [*LOGS[:1], *(pytest.param(log, marks=pytest.mark.slow) for log in LOGS[1:])]


def expected_of(log: str) -> dict[str, Any]:
    path = DATA / log
    found = json.loads((path.parents[1] / "expected" / f"{path.stem}.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def assert_holds(found: Any, wanted: Any) -> None:
    """Everything that is wanted is there as it was; objects may have got more keys."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found
            assert_holds(found[key], value)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_holds(one, other)
    else:
        assert found == wanted


def assert_history(history: tuple[sc.Message, ...], wanted: list[dict[str, Any]]) -> None:
    """The history that the release would have sent; of a summary its text, in whatever words stand round it."""
    assert len(history) == len(wanted)
    for message, was in zip(history, wanted, strict=True):
        if "holds" in was:
            assert message.role == was["role"]
            assert was["holds"] in text_of(message)
        else:
            assert_holds(as_json(message), was)
    assert validate_history(history) == []


def invoke(*arguments: object) -> Result:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize("log", ONE_AND_THE_REST)
async def test_a_session_goes_on_with_the_history_it_had(log: str, workspace: Path, tmp_path: Path) -> None:
    wanted, path = expected_of(log), copied(DATA / log, tmp_path / "old")
    before = path.read_bytes()
    whole = before[: before.rindex(b"\n") + 1]
    model = sc.ScriptedModel([sc.cell("6 * 7"), sc.say("Here again.")], context_window=32_000)
    async with sc.open_session(model, workspace=workspace, session_file=path) as session:
        assert_history(session.history, wanted["history"])
        result = await session.prompt("Go on.")
        tree = await session.tree()
        assert tree.name == wanted["name"]
        assert wanted["labels"].items() <= {node.id: node.label for node in tree.nodes.values()}.items()
    assert (result.status, result.text) == ("done", "Here again.")
    count = len(wanted["history"])
    assert_history(model.requests[0].messages[:count], wanted["history"])
    assert text_of(model.requests[0].messages[-1]) == "Go on."
    assert path.read_bytes().startswith(whole)
    set_aside = sorted(path.parent.glob("*.torn-*"))
    assert [file.read_bytes() for file in set_aside] == ([] if whole == before else [before[len(whole) :]])


@pytest.mark.parametrize("log", ONE_AND_THE_REST)
async def test_a_session_of_then_is_compacted_rewound_and_forked(log: str, workspace: Path, tmp_path: Path) -> None:
    wanted, path = expected_of(log), copied(DATA / log, tmp_path / "old")
    model = sc.ScriptedModel([sc.cell("print('word ' * 4000)"), sc.say("So much.")], context_window=32_000)
    settings = sc.Settings.model_validate({"compaction": {"keepRecentTokens": 300, "reserveTokens": 4000}})
    async with sc.open_session(model, workspace=workspace, session_file=path, settings=settings) as session:
        before = session.history
        leaf = (await session.tree()).leaf_id
        assert leaf is not None
        await session.prompt("Print something.")
        assert (await session.compact("keep `rows`")).status == "completed"
        fork = await session.fork(tmp_path / "fork.jsonl", leaf)
        await session.rewind(leaf)
        assert session.history == before
    async with sc.open_session(sc.ScriptedModel([]), workspace=workspace, session_file=fork) as session:
        assert_history(session.history, wanted["history"])


@pytest.mark.parametrize("log", LOGS)
def test_the_commands_that_read_sessions_read_it_and_leave_it_as_it_is(
    log: str, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, path = expected_of(log), copied(DATA / log, sessions_folder(workspace))
    before = path.read_bytes()
    monkeypatch.chdir(workspace)
    (row,) = [json.loads(line) for line in invoke("sessions", "--json").stdout.splitlines()]
    assert (row["file"], row["name"]) == (str(path), wanted["name"] or "")
    figures = json.loads(invoke("inspect", path, "--json").stdout)
    assert_holds(figures, {key: wanted[key] for key in ("name", "prompts", "turns", "cells")})
    assert [compaction["reason"] for compaction in figures["compactions"]] == wanted["compactions"]
    assert "Go on" in invoke("inspect", path, "--tree").stdout or not wanted["compactions"]
    invoke("inspect", path, "--html", tmp_path / "page.html")
    planned = invoke("compact", path, "--dry-run", "--keep-recent", 50).stdout
    assert "Plan" in planned or "nothing to do" in planned
    for form in ("pi", "openai", "anthropic", "markdown"):
        for extent in ((), ("--whole",)):
            target = tmp_path / f"{form}{len(extent)}"
            invoke("export", path, "--to", form, *extent, "-o", target)
            assert target.stat().st_size > 100
    assert path.read_bytes() == before


def test_what_was_said_before_the_first_of_its_compactions_is_found(release: Path, tmp_path: Path) -> None:
    path = copied(release / "sessions/long.jsonl", tmp_path)
    assert NEEDLE not in json.dumps(expected_of(f"{release.name}/sessions/long.jsonl")["history"])
    assert NEEDLE in invoke("search", path, "harbour light").stdout


async def test_variables_that_were_kept_beside_the_log_come_back(
    release: Path, workspace: Path, tmp_path: Path
) -> None:
    path = copied(release / "sessions/kept.jsonl", tmp_path)
    model = sc.ScriptedModel([sc.cell("treasure"), sc.say("There.")])
    async with sc.open_session(model, workspace=workspace, session_file=path, settings=KEEP) as session:
        result = await session.prompt("Where is it?")
    assert outputs(result) == ["{'rows': [3, 1, 4], 'name': 'näh'}"]


def test_images_that_lie_beside_the_log_are_put_back(release: Path, tmp_path: Path) -> None:
    path = copied(release / "sessions/long.jsonl", tmp_path)
    exported = tmp_path / "whole.jsonl"
    invoke("export", path, "--to", "pi", "--whole", "-o", exported)
    text = exported.read_text(encoding="utf-8")
    assert path.read_text(encoding="utf-8").count("selfcompactBlob") == 2
    assert "selfcompactBlob" not in text
    assert text.count("iVBORw0KGgo") == 3
