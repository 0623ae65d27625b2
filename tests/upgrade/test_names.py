"""The names of a release are names for good: more may come, none goes. A renamed key turns this red."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.upgrade.build import records, write_long, write_provider
from tests.upgrade.names import Names, names_of_code, names_of_records


def gone(release: Path, present: Names) -> dict[str, list[str]]:
    """The names of the release that are there no more, by their group."""
    names = json.loads((release / "names.json").read_text(encoding="utf-8"))
    return {group: lost for group, now in present.items() if (lost := sorted(set(names[group]) - set(now)))}


def test_settings_variables_events_commands_and_what_hooks_read_keep_their_names(release: Path) -> None:
    present = names_of_code()
    assert all(present.values())
    assert gone(release, present) == {}


@pytest.mark.slow
async def test_what_is_written_into_logs_today_has_every_key_it_had(
    release: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    await write_long(tmp_path / "long.jsonl", workspace)
    await write_provider(tmp_path / "provider.jsonl", workspace)
    present = names_of_records([*records(tmp_path / "long.jsonl"), *records(tmp_path / "provider.jsonl")])
    assert gone(release, present) == {}
    names = json.loads((release / "names.json").read_text(encoding="utf-8"))
    assert set(names) == {*names_of_code(), *present}


def test_a_name_that_is_gone_is_told_and_one_that_came_is_not(release: Path) -> None:
    present = names_of_code()
    present["settings"] = [*present["settings"], "compaction.somethingNew"]
    present["settings"].remove("compaction.reserveTokens")
    assert gone(release, present) == {"settings": ["compaction.reserveTokens"]}
