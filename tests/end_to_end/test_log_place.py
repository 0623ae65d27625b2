"""A session's log never lies where its cells can write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import selfcompact as sc
from selfcompact.cli import cli
from selfcompact.workspace import sessions_folder

Placed = Callable[[Path, Path], Path]


def linked(workspace: Path, outside: Path) -> Path:
    (workspace / "logs").symlink_to(outside)
    return workspace / "logs" / "s.jsonl"


def leading_in(workspace: Path, outside: Path) -> Path:
    (outside / "in").symlink_to(workspace)
    return outside / "in" / "s.jsonl"


def file_link(workspace: Path, outside: Path) -> Path:
    (outside / "s.jsonl").symlink_to(workspace / "real.jsonl")
    return outside / "s.jsonl"


REFUSED: dict[str, Placed] = {
    "in the workspace": lambda workspace, _: workspace / "s.jsonl",
    "in a folder of it": lambda workspace, _: workspace / "deep" / "er" / "s.jsonl",
    "by a link out of the workspace": linked,
    "by a link into the workspace": leading_in,
    "a link to a file in the workspace": file_link,
    "in the settings' folder": lambda workspace, _: workspace / ".selfcompact" / "s.jsonl",
    "with dots": lambda workspace, outside: outside / ".." / workspace.name / "s.jsonl",
}


@pytest.mark.parametrize("place", REFUSED)
async def test_a_log_that_cells_could_write_is_refused_with_the_path_to_use(tmp_path: Path, place: str) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    path = REFUSED[place](workspace, outside)
    with pytest.raises(sc.SessionFileError, match="lies where cells can write") as error:
        async with sc.open_session(sc.ScriptedModel([]), workspace=workspace, session_file=path):
            pass
    assert str(sessions_folder(workspace) / "s.jsonl") in str(error.value)
    assert not path.exists()


async def test_what_sandbox_write_names_counts_and_a_workspace_that_is_read_only_does_not(tmp_path: Path) -> None:
    workspace, shared = tmp_path / "workspace", tmp_path / "shared"
    workspace.mkdir()
    shared.mkdir()
    settings = sc.Settings(sandbox=sc.SandboxPolicy(write=(shared,)))
    with pytest.raises(sc.SessionFileError, match="lies where cells can write"):
        async with sc.open_session(
            sc.ScriptedModel([]), workspace=workspace, session_file=shared / "s.jsonl", settings=settings
        ):
            pass
    settings = sc.Settings(sandbox=sc.SandboxPolicy(profile="read-only"))
    async with sc.open_session(
        sc.ScriptedModel([sc.say("ok")]), workspace=workspace, session_file=workspace / "s.jsonl", settings=settings
    ) as session:
        assert (await session.prompt("go")).status == "done"


async def test_a_workspace_that_holds_the_data_directory_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(sc.SessionFileError, match="set XDG_DATA_HOME to a folder outside it"):
        async with sc.open_session(sc.ScriptedModel([]), workspace=tmp_path):
            pass


async def test_a_log_that_lies_there_is_moved_with_what_belongs_to_it_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, secret = tmp_path / "workspace", tmp_path / "secret"
    workspace.mkdir()
    secret.write_text("mine")
    async with sc.open_session(
        sc.ScriptedModel([sc.say("first")]), workspace=workspace, session_file=f"{workspace}.jsonl"
    ) as session:
        await session.prompt("go")
    old = workspace / "s.jsonl"
    before = session.session_file.read_bytes()
    old.write_bytes(before)
    blobs, good, planted = workspace / "s.jsonl.blobs", "a" * 64, "b" * 64
    blobs.mkdir()
    (blobs / good).write_bytes(b"image")
    (blobs / planted).symlink_to(secret)
    (workspace / "s.jsonl.variables").write_bytes(b"kept")
    monkeypatch.chdir(workspace)
    done = CliRunner().invoke(cli, ["move", "s.jsonl"])
    assert done.exit_code == 0, (done.output, done.exception)
    target = sessions_folder(workspace) / "s.jsonl"
    assert str(target) in done.stdout
    assert "cells could write" in done.stderr
    assert target.read_bytes() == before
    assert [path.name for path in (sessions_folder(workspace) / "s.jsonl.blobs").iterdir()] == [good]
    assert (sessions_folder(workspace) / "s.jsonl.variables").read_bytes() == b"kept"
    assert list(workspace.iterdir()) == []
    assert secret.read_text() == "mine"
    async with sc.open_session(sc.ScriptedModel([sc.say("ok")]), workspace=workspace, session_file=target) as session:
        assert len(session.history) == 2


def test_a_move_onto_something_that_exists_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = {"type": "session", "version": 3, "id": "a", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/"}
    (tmp_path / "s.jsonl").write_text(json.dumps(header) + "\n")
    (tmp_path / "t.jsonl").write_text("mine")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["move", "s.jsonl", "-o", "t.jsonl"])
    assert "already exists" in str(done.exception)
    assert (tmp_path / "s.jsonl").exists()
    assert (tmp_path / "t.jsonl").read_text() == "mine"
