"""The public surface: what a newcomer finds, and that it works as written."""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import selfcompact


@pytest.mark.parametrize("name", ["selfcompact", "compact", "selfcompact.kernel"])
def test_all_is_sorted_and_names_what_is_there(name: str) -> None:
    module = importlib.import_module(name)
    listed = list(module.__all__)
    assert listed == sorted(listed)
    assert all(hasattr(module, item) for item in listed)
    public = {
        item
        for item, value in vars(module).items()
        if not item.startswith("_") and (getattr(value, "__module__", None) or "").split(".")[0] == name.split(".")[0]
    }
    assert public <= set(listed)


def test_the_program_in_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    programs = [text for text in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "asyncio.run" in text]
    path = tmp_path / "program.py"
    path.write_text(programs[0])
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, compactions = done.stdout.splitlines()
    assert said == "rows has 5000 squares; the last is 24990001."
    assert compactions.startswith("['completed']")


def test_the_program_in_the_module_docstring_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert selfcompact.__doc__ is not None
    (program,) = re.findall(r"```python\n(.*?)```", selfcompact.__doc__, re.DOTALL)
    path = tmp_path / "program.py"
    path.write_text(program)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    runpy.run_path(str(path))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "done The sum of the squares is 285."
    assert re.fullmatch(r"[\d]+ tokens in context", printed[1])
