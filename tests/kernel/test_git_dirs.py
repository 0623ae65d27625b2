"""A git worktree and a submodule as workspaces: git works in cells, and no cell can have another folder mounted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from host_bridge.host.dispatcher import Dispatcher
from selfcompact.kernel import KernelSettings, SandboxPolicy, open_kernel
from selfcompact.sandbox.git_dirs import git_directory

Kind = Callable[[Path], tuple[Path, Path]]


def git(folder: Path, *arguments: str) -> str:
    given = ["-c", "user.name=Agent", "-c", "user.email=agent@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *given, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "file").write_text("text")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "first words")
    return folder


def worktree(tmp_path: Path) -> tuple[Path, Path]:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    return tmp_path / "tree", main / ".git"


def submodule(tmp_path: Path) -> tuple[Path, Path]:
    repository(tmp_path / "part")
    whole = repository(tmp_path / "whole")
    git(whole, "submodule", "--quiet", "add", str(tmp_path / "part"), "part")
    return whole / "part", whole / ".git/modules/part"


LOOK = "!git status --short; git log --format=%s; touch {place}/planted && echo written"


@pytest.mark.parametrize("kind", [worktree, submodule])
async def test_git_reads_in_it_and_nothing_of_the_real_directory_can_be_written(tmp_path: Path, kind: Kind) -> None:
    workspace, real = kind(tmp_path)
    (workspace / "new").write_text("x")
    async with open_kernel(KernelSettings(), SandboxPolicy(), workspace=workspace, dispatcher=Dispatcher()) as kernel:
        result = await kernel.execute(LOOK.format(place=real))
    assert "?? new" in result.text
    assert "first words" in result.text
    assert "written" not in result.text
    assert not (real / "planted").exists()


def test_a_file_that_names_a_directory_which_does_not_name_it_back_is_not_believed(tmp_path: Path) -> None:
    workspace, real = worktree(tmp_path)
    assert git_directory(workspace) == real
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").write_text((workspace / ".git").read_text())
    assert git_directory(other) is None
    for text in (f"gitdir: {Path.home()}", "gitdir: /", "gitdir:", "gitdir: " + "x" * 9000, "\0", f"gitdir: {real}"):
        (other / ".git").write_text(text)
        assert git_directory(other) is None, text
    (other / ".git").unlink()
    (other / ".git").symlink_to(workspace / ".git")
    assert git_directory(other) is None
    assert git_directory(tmp_path / "main") is None
