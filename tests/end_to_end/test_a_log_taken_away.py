"""A log that is removed, replaced or cut under its session is noticed at the next boundary, and nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import selfcompact as sc
from selfcompact.models.scripted import Step

from .conftest import OpenSession
from .helpers import of_type


def removed(log: Path) -> str:
    log.unlink()
    return "had been removed"


def removed_with_its_folder(log: Path) -> str:
    shutil.rmtree(log.parent)
    return "had been removed"


def replaced(log: Path) -> str:
    log.unlink()
    log.write_text("mine")
    return f"{log.name}.replaced-1"


def replaced_by_a_link(log: Path) -> str:
    log.rename(log.with_name("elsewhere.jsonl"))
    log.symlink_to("/dev/null")
    return f"{log.name}.replaced-1"


@pytest.mark.parametrize("way", [removed, removed_with_its_folder, replaced, replaced_by_a_link])
async def test_a_log_that_is_gone_is_written_anew_and_told(
    opened: OpenSession, tmp_path: Path, way: Callable[[Path], str]
) -> None:
    log = tmp_path / "logs" / "s.jsonl"
    said: list[str] = []

    def take_away(_: object) -> Step:
        said.append(way(log))
        return sc.cell("x = 1")

    async with opened([sc.cell("x = 0"), take_away, sc.say("done")], session_file=log) as session:
        stream = session.events()
        result = await session.prompt("go")
        (warning,) = of_type(stream.pending(), "warning")
        history = session.history
    assert result.status == "done"
    assert said[0] in warning.message
    assert str(log) in warning.message
    async with opened([], session_file=log) as session:
        assert session.history == history
    if way is replaced:
        assert log.with_name(said[0]).read_text() == "mine"


async def test_a_log_that_is_cut_is_told_and_can_be_read_and_continued(opened: OpenSession, tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"

    def cut(_: object) -> Step:
        log.write_bytes(log.read_bytes()[:-30])
        return sc.say("done")

    async with opened([sc.cell("x = 0"), cut], session_file=log) as session:
        stream = session.events()
        result = await session.prompt("go")
        (warning,) = of_type(stream.pending(), "warning")
    assert result.status == "done"
    assert "cut" in warning.message
    async with opened([sc.say("ok")], session_file=log) as session:
        assert (await session.prompt("on")).status == "done"
