"""Where bubblewrap is looked for: never where a cell could have put it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from host_bridge.host.dispatcher import Dispatcher
from selfcompact.kernel import KernelSettings, SandboxPolicy, open_kernel
from selfcompact.sandbox.bubblewrap import find_bwrap

WITHOUT_PATH = "/nowhere"


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bubblewrap that is found when nothing is on PATH."""
    monkeypatch.setenv("PATH", WITHOUT_PATH)
    return find_bwrap().path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def put(folder: Path, real: Path) -> Path:
    """A program `bwrap` in a folder that does what the real one does."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "bwrap"
    program.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    program.chmod(0o755)
    return program


def test_an_absolute_entry_of_path_that_no_cell_can_write_is_used(
    real: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = put(tmp_path / "bin", real)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_bwrap([workspace]).path == program


@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin", "../workspace/bin"])
def test_a_relative_entry_of_path_is_skipped(
    real: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    put(workspace, real)
    put(workspace / "bin", real)
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", os.pathsep.join([entry, WITHOUT_PATH]))
    assert find_bwrap().path == real


@pytest.mark.parametrize("inside", [".", "bin", ".venv/bin"])
def test_an_entry_in_a_place_that_cells_can_write_is_skipped(
    real: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    put(workspace / inside, real)
    behind = put(tmp_path / "bin", real)
    monkeypatch.setenv("PATH", str(workspace / inside))
    assert find_bwrap([tmp_path / "elsewhere", workspace]).path == real
    monkeypatch.setenv("PATH", os.pathsep.join([str(workspace / inside), str(tmp_path / "bin")]))
    assert find_bwrap([workspace]).path == behind


@pytest.mark.parametrize(
    "way", ["link to it", "program behind a link", "link of a link", "link in it", "linked workspace"]
)
def test_a_symbolic_link_is_no_way_round(
    real: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    outside = put(tmp_path / "outside", real).parent
    entry, writable = tmp_path / "entry", workspace
    if way == "link to it":
        put(workspace / "bin", real)
        entry.symlink_to(workspace / "bin")
    elif way == "program behind a link":
        entry.mkdir()
        (entry / "bwrap").symlink_to(put(workspace, real))
    elif way == "link of a link":  # what it names today lies outside, and a cell can name something else
        (workspace / "bin").symlink_to(outside)
        (tmp_path / "first").symlink_to(workspace)
        entry.symlink_to("first/bin")
    elif way == "link in it":
        entry = workspace / "bin"
        entry.symlink_to(outside)
    else:
        entry = put(workspace / "bin", real).parent
        writable = tmp_path / "linked"
        writable.symlink_to(workspace)
    monkeypatch.setenv("PATH", str(entry))
    assert find_bwrap([tmp_path / "elsewhere"]).path == entry / "bwrap"
    assert find_bwrap([writable]).path == real


async def test_a_kernel_is_started_by_none_that_its_cells_can_write(
    real: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, mark = tmp_path / "shared", tmp_path / "mark"
    for folder in (workspace / "bin", shared / "bin"):
        program = put(folder, real)
        program.write_text(program.read_text().replace("exec", f"touch {mark}\nexec"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(workspace / "bin"), str(shared / "bin")]))
    policy = SandboxPolicy(write=(shared,))
    async with open_kernel(KernelSettings(), policy, workspace=workspace, dispatcher=Dispatcher()) as kernel:
        assert kernel.sandbox.detail.endswith(f" at {real}")
        assert (await kernel.execute("6 * 7")).text == "42"
    assert not mark.exists()
