"""`selfcompact settings`: list, set, unset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from selfcompact.cli import cli
from selfcompact.errors import SettingsError
from selfcompact.settings import user_settings_file


def settings(workspace: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["settings", "--workspace", str(workspace), *arguments])


def listed(workspace: Path) -> dict[str, dict[str, object]]:
    found = json.loads(settings(workspace, "--json").stdout)
    assert isinstance(found, dict)
    return found


def test_every_setting_is_listed_with_its_value_and_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFCOMPACT_KERNEL__CELL_TIMEOUT_S", "5")
    assert settings(tmp_path, "set", "compaction.reserveTokens", "9000").exit_code == 0
    assert settings(tmp_path, "set", "--user", "compaction.keepRecentTokens", "7000").exit_code == 0
    found = listed(tmp_path)
    assert found["compaction.enabled"] == {"value": True, "origin": "default", "applies": "live"}
    assert found["compaction.reserveTokens"] == {
        "value": 9000,
        "origin": str(tmp_path / ".selfcompact/settings.json"),
        "applies": "live",
    }
    assert found["compaction.keepRecentTokens"] == {
        "value": 7000,
        "origin": str(user_settings_file()),
        "applies": "live",
    }
    variable = "environment variable SELFCOMPACT_KERNEL__CELL_TIMEOUT_S"
    assert found["kernel.cellTimeoutS"] == {"value": 5.0, "origin": variable, "applies": "at open"}


def test_setting_keeps_what_else_is_in_the_file_and_unsetting_takes_one_key(tmp_path: Path) -> None:
    path = tmp_path / ".selfcompact/settings.json"
    path.parent.mkdir()
    path.write_text('{"compaction": {"keep_recent_tokens": 7}, "sandbox": {"network": true}}')
    assert settings(tmp_path, "set", "compaction.keepRecentTokens", "8").exit_code == 0
    assert json.loads(path.read_text()) == {"compaction": {"keep_recent_tokens": 8}, "sandbox": {"network": True}}
    assert settings(tmp_path, "unset", "compaction.keepRecentTokens").exit_code == 0
    assert json.loads(path.read_text()) == {"sandbox": {"network": True}}
    assert [item.name for item in path.parent.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["set", "compaction.agentCallable", "yes"], r"settings\.json: compaction\.agentCallable: .*bool"),
        (["set", "compaction.agentCallable", "1"], r"compaction\.agentCallable: .*bool"),
        (
            ["set", "compaction.agentCalable", "true"],
            r"settings: compaction\.agentCalable: .*did you mean agentCallable",
        ),
        (["set", "compaction", "3"], "is a group of settings"),
        (["unset", "nothing"], "nothing: is not a setting"),
    ],
)
def test_a_wrong_key_or_value_is_told_and_nothing_is_written(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    done = settings(tmp_path, *arguments)
    assert isinstance(done.exception, SettingsError)
    with pytest.raises(SettingsError, match=problem):
        raise done.exception
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / ".selfcompact/settings.json"
    path.parent.mkdir()
    path.write_text("{broken")
    done = settings(tmp_path, "set", "compaction.enabled", "false")
    assert isinstance(done.exception, SettingsError)
    assert path.read_text() == "{broken"


def test_what_holds_for_a_model_can_be_set_listed_and_unset(tmp_path: Path) -> None:
    assert settings(tmp_path, "set", "models.openai:gpt-4.1.contextWindow", "1000").exit_code == 0
    path = tmp_path / ".selfcompact/settings.json"
    assert json.loads(path.read_text()) == {"models": {"openai:gpt-4.1": {"contextWindow": 1000}}}
    assert listed(tmp_path)["models.openai:gpt-4.1.contextWindow"] == {
        "value": 1000,
        "origin": str(path),
        "applies": "at open",
    }
    assert settings(tmp_path, "unset", "models.openai:gpt-4.1").exit_code == 0
    assert json.loads(path.read_text()) == {}
