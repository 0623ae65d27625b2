"""Script files: what may stand in them, and how wrong ones are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selfcompact.errors import AuthenticationFailed, ContextOverflow, ProviderUnavailable, ScriptError, ScriptExhausted
from selfcompact.messages import ThinkingContent, Usage, user
from selfcompact.models.protocol import ModelRequest
from selfcompact.models.script_file import load_script
from tests.requests_sent import complete

REQUEST = ModelRequest("system", (user("hello"),))


def script(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "script.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


async def test_a_whole_script_plays_in_order(tmp_path: Path) -> None:
    model = load_script(
        script(
            tmp_path,
            {
                "context_window": 32000,
                "steps": [
                    {"cell": "x = 1", "usage": {"input": 7, "output": 3}, "thinking": "hm"},
                    {"overflow": True},
                    {"fail": "down", "status": 500},
                    {"fail": "no key", "status": 401},
                    {"say": "done"},
                ],
                "summaries": ["## Goal\nx"],
            },
        )
    )
    assert model.context_window == 32000
    assert model.summarises
    first = await complete(model, REQUEST)
    assert first.usage == Usage(input=7, output=3)
    assert isinstance(first.content[0], ThinkingContent)
    assert [call.arguments for call in first.tool_calls] == [{"code": "x = 1"}]
    assert first.stop_reason == "toolUse"
    with pytest.raises(ContextOverflow):
        await complete(model, REQUEST)
    with pytest.raises(ProviderUnavailable, match="down"):
        await complete(model, REQUEST)
    with pytest.raises(AuthenticationFailed):
        await complete(model, REQUEST)
    last = await complete(model, REQUEST)
    assert last.stop_reason == "stop"
    assert last.usage is not None
    assert last.usage.input > 0
    with pytest.raises(ScriptExhausted):
        await complete(model, REQUEST)


def test_a_bare_list_is_the_steps(tmp_path: Path) -> None:
    model = load_script(script(tmp_path, [{"say": "hi"}]))
    assert not model.summarises


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("{", "is not JSON"),
        ("3", "should be an object with `steps`, or a list of steps"),
        ({}, "`steps`: field required"),
        ({"steps": [], "window": 3}, "`window` is not known here"),
        ({"steps": ["hi"]}, "`steps.0`"),
        ([{"say": "a"}, {"jump": 1}], r"step 2: has 'jump'; a step is one of `cell`, `say`, `overflow`, `fail`"),
        ([{"say": 3}], "step 1: `say`"),
        ([{"cell": "x", "sayy": "y"}], "step 1: `sayy` is not known here"),
        ([{"fail": "x", "status": 9999}], "step 1: `status`"),
        ([{"overflow": False}], "step 1: `overflow"),
        ([{"say": "x", "usage": {"input": -1}}], r"step 1: `usage\.input`"),
        ({"steps": [], "context_window": 0}, "`context_window`"),
    ],
)
def test_a_wrong_script_is_told_in_one_sentence_with_its_place(tmp_path: Path, data: Any, problem: str) -> None:
    with pytest.raises(ScriptError, match=problem) as caught:
        load_script(script(tmp_path, data))
    assert "\n" not in str(caught.value)
    assert "script.json" in str(caught.value)


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"nowhere\.json: cannot be read"):
        load_script(tmp_path / "nowhere.json")
