"""Settings files of every release mean what they meant, in every place and in both spellings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from selfcompact.cli import cli
from selfcompact.settings.load import PRIME_FILE, PROJECT_FILE, user_settings_file

from .names import environment_name

MODEL = "anthropic:claude-sonnet-4-5"

LIMITS = {"compaction.reserveTokens", "compaction.keepRecentTokens"}
SWITCHES = {"compaction.enabled", "compaction.agentCallable"}
"""What is taken from a file that cells could have written: limits, and switches that are off there. Releases before
took more; a cell could change the operator's policy with it."""

LATER = {"onFailure"}
"""Keys of objects in lists that no earlier release had; they have their defaults."""


def listed(workspace: Path) -> dict[str, dict[str, Any]]:
    done = CliRunner().invoke(cli, ["settings", "--workspace", str(workspace), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout, object_hook=_as_then)
    assert isinstance(found, dict)
    return found


def _as_then(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if "argv" not in found or key not in LATER}


def values(workspace: Path) -> dict[str, Any]:
    return {key: row["value"] for key, row in listed(workspace).items()}


def expected(release: Path) -> dict[str, Any]:
    found = json.loads((release / "settings/expected.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.write_bytes(source.read_bytes())


def test_the_files_hold_every_key_that_the_release_had_with_a_value_that_is_not_the_default(
    release: Path, workspace: Path
) -> None:
    names = json.loads((release / "names.json").read_text(encoding="utf-8"))
    wanted = expected(release)
    assert {key.replace(MODEL, "NAME") for key in wanted} == set(names["settings"])
    assert [key for key, value in values(workspace).items() if key in wanted and wanted[key] == value] == []


@pytest.mark.parametrize("form", ["camel", "snake"])
@pytest.mark.parametrize("place", ["project", "user"])
def test_every_key_of_a_file_has_its_value(release: Path, workspace: Path, form: str, place: str) -> None:
    put(release / f"settings/{form}.json", workspace / PROJECT_FILE if place == "project" else user_settings_file())
    rows = listed(workspace)
    wanted = expected(release)
    assert {key: rows[key]["value"] for key in wanted} == wanted
    file = str(workspace / PROJECT_FILE if place == "project" else user_settings_file())
    assert {rows[key]["origin"] for key in wanted} == {file}


@pytest.mark.parametrize("form", ["camel", "snake"])
def test_the_files_of_prime_give_their_compaction_settings(release: Path, workspace: Path, form: str) -> None:
    put(release / f"settings/prime-{form}.json", Path.home() / PRIME_FILE)
    wanted = {key: value for key, value in expected(release).items() if key.startswith("compaction.")}
    assert wanted.items() <= values(workspace).items()


@pytest.mark.parametrize("form", ["camel", "snake"])
def test_a_file_of_prime_in_the_workspace_sets_limits_and_switches_off_and_nothing_else(
    release: Path, workspace: Path, form: str
) -> None:
    put(release / f"settings/prime-{form}.json", workspace / PRIME_FILE)
    rows, wanted = listed(workspace), expected(release)
    taken = LIMITS | {key for key in SWITCHES if wanted[key] is False}
    assert {key: rows[key]["value"] for key in taken} == {key: wanted[key] for key in taken}
    assert {key for key in rows if rows[key]["origin"] == str(workspace / PRIME_FILE)} == taken


def test_every_setting_can_come_from_its_variable(
    release: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {key: value for key, value in expected(release).items() if not key.startswith("models.")}
    for key, value in wanted.items():
        monkeypatch.setenv(environment_name(key), value if isinstance(value, str) else json.dumps(value))
    assert wanted.items() <= values(workspace).items()


def test_every_setting_can_be_set_by_its_name(release: Path, workspace: Path) -> None:
    wanted = expected(release)
    for key, value in wanted.items():
        text = value if isinstance(value, str) else json.dumps(value)
        done = CliRunner().invoke(cli, ["settings", "--workspace", str(workspace), "set", key, text])
        assert done.exit_code == 0, (key, done.output)
    assert wanted.items() <= values(workspace).items()
