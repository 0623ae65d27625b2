"""A test of an agent, as a project that uses selfcompact writes it: a real kernel, a scripted model.

pytest examples/test_my_agent.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

import selfcompact as sc


@pytest.mark.asyncio
async def test_my_agent_keeps_its_variable_over_a_compaction(tmp_path: Path) -> None:
    model = sc.ScriptedModel(
        [
            sc.cell("found = {'answer': 42}\nprint('noise ' * 3000)"),
            sc.cell("print('more noise ' * 3000)"),
            sc.cell("await compact.run('keep `found`')"),
            sc.cell("print(found['answer'])"),
            sc.say("The answer is 42."),
        ],
        context_window=60_000,
    )
    settings = sc.Settings.model_validate({"compaction": {"keepRecentTokens": 500}})
    async with sc.open_session(
        model, workspace=tmp_path, session_file=tmp_path.with_suffix(".jsonl"), settings=settings
    ) as session:
        result = await session.prompt("What is the answer?")
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert result.text == "The answer is 42."
