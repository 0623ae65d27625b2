"""Hook programs of every release read the keys they read, and their answers mean what they meant."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import selfcompact as sc
from tests.end_to_end.helpers import fill
from tests.upgrade.build import SETTINGS


async def compacted(release: Path, workspace: Path, tmp_path: Path, answer: str) -> tuple[sc.CompactionOutcome, str]:
    """The outcome of a compaction that a cell asks for, and the context afterwards, with the release's programs."""
    hooks = {
        "beforeCompact": [
            {"argv": [sys.executable, str(release / "hooks/before.py"), str(tmp_path / "before.json"), answer]}
        ],
        "afterCompact": [{"argv": [sys.executable, str(release / "hooks/after.py"), str(tmp_path / "after.json")]}],
    }
    settings = sc.Settings.model_validate({"compaction": {**SETTINGS, "hooks": hooks}})
    model = sc.ScriptedModel([*fill(), sc.cell("await compact.run('keep `x`')"), sc.say("ok")], context_window=32_000)
    async with sc.open_session(
        model, workspace=workspace, session_file=tmp_path / "s.jsonl", settings=settings
    ) as session:
        stream = session.events()
        result = await session.prompt("go")
        assert [event for event in stream.pending() if event.type == "warning"] == []
    (outcome,) = result.compactions
    return outcome, str(model.requests[-1].messages)


def read(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


async def test_both_programs_are_told_every_key_they_were_told(release: Path, workspace: Path, tmp_path: Path) -> None:
    outcome, context = await compacted(release, workspace, tmp_path, "go")
    assert outcome.result is not None
    names = read(release / "names.json")
    before, after = read(tmp_path / "before.json"), read(tmp_path / "after.json")
    assert set(names["before_compact"]) <= set(before)
    assert set(names["after_compact"]) <= set(after)
    assert (before["reason"], before["trigger"], before["instructions"]) == ("requested", "agent", "keep `x`")
    assert (before["sessionFile"], before["model"]) == (str(tmp_path / "s.jsonl"), "scripted:script")
    assert before["tokensBefore"] == after["tokensBefore"] > after["tokensAfter"]
    assert before["messagesToSummarise"] > 0
    assert "The program saw" in context
    assert "tokens saved" in context


@pytest.mark.parametrize(("answer", "status"), [("cancel", "vetoed"), ("veto", "vetoed"), ("supply", "completed")])
async def test_each_answer_has_its_effect(
    release: Path, workspace: Path, tmp_path: Path, answer: str, status: str
) -> None:
    outcome, context = await compacted(release, workspace, tmp_path, answer)
    assert outcome.status == status
    if status == "vetoed":
        assert "not requested by agent" in (outcome.message or "")
        assert not (tmp_path / "after.json").exists()
    assert ("Written by the operator's program." in context) == (answer == "supply")
