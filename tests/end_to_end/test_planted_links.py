"""What a cell planted beside a log or in the place of a prompt is neither followed, removed nor waited for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from selfcompact.cli import cli
from selfcompact.compaction.style.loading import style_of
from selfcompact.errors import SettingsError
from selfcompact.log.fork import fork_session
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.workspace import sessions_folder

HEADER = {"type": "session", "version": 3, "id": "a", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/"}
MESSAGE = {
    "type": "message",
    "id": "m1",
    "parentId": None,
    "timestamp": "2026-01-01T00:00:01Z",
    "message": {"role": "user", "content": "hello", "timestamp": 1},
}


def planted(folder: Path) -> tuple[Path, Path]:
    """A log whose images' folder is a link to the user's documents, one of which is named as an image is."""
    log, documents = folder / "s.jsonl", folder.parent / "documents"
    documents.mkdir()
    for name in ("thesis.txt", "a" * 64):
        (documents / name).write_text("mine")
    log.write_text(f"{json.dumps(HEADER)}\n{json.dumps(MESSAGE)}\n")
    (folder / "s.jsonl.blobs").symlink_to(documents)
    return log, documents


@pytest.fixture
def in_workspace(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(workspace)
    return workspace


def test_a_move_removes_and_takes_along_nothing_that_a_planted_folder_of_images_leads_to(in_workspace: Path) -> None:
    log, documents = planted(in_workspace)
    done = CliRunner().invoke(cli, ["move", log.name])
    assert done.exit_code == 0, (done.output, done.exception)
    assert {path.name: path.read_text() for path in documents.iterdir()} == {"thesis.txt": "mine", "a" * 64: "mine"}
    target = sessions_folder(in_workspace) / log.name
    assert target.exists()
    assert not log.exists()
    assert not list(target.with_name(f"{log.name}.blobs").glob("*"))


def test_a_move_leaves_what_is_none_of_its_images_where_it_is(in_workspace: Path) -> None:
    log = in_workspace / "s.jsonl"
    log.write_text(json.dumps(HEADER) + "\n")
    images = in_workspace / "s.jsonl.blobs"
    (images / ("c" * 64)).mkdir(parents=True)
    (images / "notes.txt").write_text("mine")
    (images / ("b" * 64)).write_bytes(b"image")
    done = CliRunner().invoke(cli, ["move", log.name])
    assert done.exit_code == 0, (done.output, done.exception)
    assert sorted(path.name for path in images.iterdir()) == ["c" * 64, "notes.txt"]
    assert (images / "notes.txt").read_text() == "mine"


def test_a_fork_does_not_fail_by_a_planted_folder_of_images(workspace: Path, tmp_path: Path) -> None:
    log, documents = planted(workspace)
    fork_session(log, tmp_path / "fork.jsonl", "m1")
    assert not list((tmp_path / "fork.jsonl.blobs").glob("*"))
    assert (documents / ("a" * 64)).read_text() == "mine"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("odd", ["a pipe", "a device without an end", "too long"])
def test_a_prompt_or_a_style_that_is_no_small_file_is_refused_at_once(workspace: Path, odd: str) -> None:
    def put(path: Path) -> Path:
        if odd == "a pipe":
            os.mkfifo(path)
        elif odd == "too long":
            path.write_text("x" * (1024 * 1024 + 1))
        else:
            path.symlink_to("/dev/zero")
        return path

    with pytest.raises(SettingsError, match=r"prompt\.md.*cannot be read"):
        style_of(CompactionSettings(prompt_file=str(put(workspace / "prompt.md"))))
    (workspace / "mine").mkdir()
    (workspace / "mine" / "style.toml").write_text('form = "sections"\n')
    put(workspace / "mine" / "first.md")
    with pytest.raises(SettingsError, match=r"first\.md.*cannot be read"):
        style_of(CompactionSettings(style="mine", style_folders=(str(workspace),)))
