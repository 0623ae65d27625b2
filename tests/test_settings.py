"""Settings: every source, their order, and how wrong ones are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from selfcompact.errors import SettingsError
from selfcompact.settings import LoadedSettings, load_settings


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    folders = {name: tmp_path / name for name in ("workspace", "home")}
    for folder in folders.values():
        folder.mkdir()
    return {**folders, "user": tmp_path / "user.json"}


def load(places: dict[str, Path], *overrides: str, env: dict[str, str] | None = None) -> LoadedSettings:
    return load_settings(
        places["workspace"], overrides=overrides, env=env or {}, user_file=places["user"], home=places["home"]
    )


def put(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))


def test_the_defaults_are_those_of_the_field(places: dict[str, Path]) -> None:
    compaction = load(places).settings.compaction
    assert compaction.enabled is True
    assert compaction.reserve_tokens == 16384
    assert compaction.keep_recent_tokens == 20000
    assert compaction.agent_callable is True
    assert compaction.agent_floor_percent == 0


def test_stronger_sources_win_key_by_key(places: dict[str, Path]) -> None:
    prime = Path(".prime/agent/settings.json")
    sources: list[tuple[Path, int]] = [
        (places["home"] / prime, 1001),
        (places["workspace"] / prime, 1002),
        (places["user"], 1003),
        (places["workspace"] / ".selfcompact/settings.json", 1004),
    ]
    for path, value in sources:
        put(path, {"compaction": {"keepRecentTokens": value, "enabled": False}})
        loaded = load(places)
        assert loaded.settings.compaction.keep_recent_tokens == value
        assert loaded.origins["compaction.keep_recent_tokens"] == str(path)
    env = {"SELFCOMPACT_COMPACTION__KEEP_RECENT_TOKENS": "1005", "PATH": "/bin"}
    assert load(places, env=env).settings.compaction.keep_recent_tokens == 1005
    loaded = load(places, "compaction.keepRecentTokens=1006", "compaction.keep_recent_tokens=1007", env=env)
    assert loaded.settings.compaction.keep_recent_tokens == 1007
    assert loaded.settings.compaction.enabled is False


def test_keys_of_another_programs_file_that_are_not_ours_are_left_alone(places: dict[str, Path]) -> None:
    put(places["home"] / ".prime/agent/settings.json", {"theme": "dark", "compaction": {"x": 1, "reserveTokens": 7}})
    assert load(places).settings.compaction.reserve_tokens == 7


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "should hold one JSON object"),
        ({"compactoin": {}}, "compactoin: is not a setting; did you mean compaction?"),
        ({"compaction": {"keepRecent": 3}}, "compaction.keepRecent: is not a setting"),
        ({"compaction": {"enabled": "yes"}}, 'compaction.enabled: .*bool.*not "yes"'),
        ({"compaction": {"agentCallable": 1}}, "compaction.agentCallable: .*bool.*not 1"),
        ({"compaction": {"reserveTokens": 0}}, "compaction.reserveTokens: .*greater than or equal to 1"),
        ({"compaction": {"reserveTokens": "many"}}, "compaction.reserveTokens: .*integer"),
        ({"compaction": 3}, "compaction: "),
        ({"sandbox": {"kind": "docker"}}, "sandbox.kind: "),
    ],
)
def test_a_wrong_file_is_told_with_file_and_key(places: dict[str, Path], data: object, problem: str) -> None:
    put(places["user"], data)
    with pytest.raises(SettingsError, match=problem) as caught:
        load(places)
    assert str(places["user"]) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("override", ["compaction.keepRecentTokens", "=3", "nothing.here=1", "compaction.enabled=ja"])
def test_a_wrong_option_names_the_option(places: dict[str, Path], override: str) -> None:
    with pytest.raises(SettingsError, match="--set"):
        load(places, override)


def test_a_wrong_variable_names_the_variable(places: dict[str, Path]) -> None:
    with pytest.raises(SettingsError, match="environment variable SELFCOMPACT_COMPACTION__ENABLED"):
        load(places, env={"SELFCOMPACT_COMPACTION__ENABLED": "perhaps"})


def test_what_holds_for_a_model_merges_key_by_key_and_keeps_the_name_as_it_is(places: dict[str, Path]) -> None:
    put(places["user"], {"models": {"openai:gpt-4.1-mini": {"contextWindow": 5, "keyVariable": "MY_KEY"}}})
    put(places["workspace"] / ".selfcompact/settings.json", {"models": {"openai:gpt-4.1-mini": {"context_window": 6}}})
    loaded = load(places, "models.openai:gpt-4.1-mini.maxOutputTokens=7", 'models.ollama:qwen3={"contextWindow": 9}')
    found = loaded.settings.models["openai:gpt-4.1-mini"]
    assert (found.context_window, found.max_output_tokens, found.key_variable) == (6, 7, "MY_KEY")
    assert loaded.settings.models["ollama:qwen3"].context_window == 9
    assert loaded.origins["models.openai:gpt-4.1-mini.max_output_tokens"] == "--set"


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ({"m:1.5": {"contextWindow": 0}}, r"user\.json: models\.m:1\.5\.contextWindow: .*greater than"),
        ({"m:1.5": {"window": 0}}, r"user\.json: models\.m:1\.5\.window: is not a setting; known here: baseUrl"),
        ({"m:1.5": 3}, r"user\.json: models\.m:1\.5: should be an object with some of baseUrl, contextWindow"),
        (3, r"user\.json: models"),
    ],
)
def test_a_wrong_entry_for_a_model_is_named(places: dict[str, Path], models: object, problem: str) -> None:
    put(places["user"], {"models": models})
    with pytest.raises(SettingsError, match=problem):
        load(places)
