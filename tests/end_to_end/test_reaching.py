"""The watch over the tests of this folder sees what it is there to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfcompact.errors import ScriptError, SettingsError
from selfcompact.models.script_file import load_script
from selfcompact.settings.load import load_settings


def test_a_module_that_opens_a_file_of_the_workspace_by_itself_is_seen(workspace: Path, reached: list[str]) -> None:
    (workspace / "script.json").write_text("no JSON")
    assert reached == []  # the test's own writing is no fault
    with pytest.raises(ScriptError):
        load_script(workspace / "script.json")
    assert reached == [f"models/script_file.py: open {workspace / 'script.json'}"]
    reached.clear()


def test_the_module_for_such_places_may(workspace: Path, reached: list[str]) -> None:
    place = workspace / ".selfcompact" / "settings.json"
    place.parent.mkdir()
    place.write_text("no JSON")
    with pytest.raises(SettingsError):
        load_settings(workspace)
    assert reached == []
