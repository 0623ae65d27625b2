"""A plan is asked for often and made once for each state of the context."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import selfcompact as sc
from selfcompact.compaction.planning import planner
from selfcompact.settings.compaction import CompactionSettings
from tests.session.memory_kernel import SUMMARY, memory_session


async def test_a_requested_compaction_plans_once_for_each_state_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell's question and the boundary are two states; turn end, decision, compaction and draft ask the same."""
    made: list[int] = []
    plan: Any = vars(planner)["plan"]

    def counted(ledger: Any, *arguments: Any, **options: Any) -> Any:
        made.append(ledger.version)
        return plan(ledger, *arguments, **options)

    monkeypatch.setattr(planner, "plan", counted)
    compaction = CompactionSettings(reserve_tokens=1_500, keep_recent_tokens=600)
    steps = [sc.cell("fill"), sc.cell("fill"), sc.cell("ask keep x;status;status"), sc.say("ok")]
    model = sc.ScriptedModel(steps, context_window=12_000)
    async with memory_session(
        tmp_path / "s.jsonl", model, summaries=itertools.repeat(SUMMARY), compaction=compaction
    ) as session:
        result = await session.prompt("go")
        for _ in range(10):
            session.status()
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert len(made) == len(set(made))
