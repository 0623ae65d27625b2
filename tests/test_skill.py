"""The skill as a folder that other hosts install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from skills_ref import validate

from selfcompact.errors import UsageError
from selfcompact.skills import export_skill, skill_metadata, system_prompt


def test_the_exported_folder_passes_the_reference_validator(tmp_path: Path) -> None:
    folder = export_skill(tmp_path)
    assert folder == tmp_path / "compact"
    assert validate(folder) == []
    assert {path.name for path in folder.iterdir()} == {"SKILL.md", "pyproject.toml", "src"}


def test_the_exported_packages_import_without_the_host(tmp_path: Path) -> None:
    source = export_skill(tmp_path) / "src"
    code = (
        "import sys; sys.modules['selfcompact'] = None; sys.modules['pydantic'] = None; import compact; "
        "print(compact.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(source)!r}); {code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(source)


def test_an_existing_folder_is_never_overwritten(tmp_path: Path) -> None:
    export_skill(tmp_path)
    with pytest.raises(UsageError, match="already exists"):
        export_skill(tmp_path)


def test_the_system_prompt_lists_the_skill_only_where_cells_may_call_it() -> None:
    skill = skill_metadata()
    assert skill.name == "compact"
    assert skill.description in system_prompt(agent_callable=True)
    assert "compact.run" not in system_prompt(agent_callable=False)
    assert "{" not in system_prompt(agent_callable=True)
