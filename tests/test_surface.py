"""The public surface: what a newcomer finds, and that it works as written."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import subprocess
import sys
from importlib import metadata
from inspect import isclass
from pathlib import Path

import pytest

import selfcompact
import selfcompact.testing

LAZY = ("selfcompact", "selfcompact.kernel", "selfcompact.testing")
"""Packages whose names are imported when they are first used."""


@pytest.mark.parametrize("name", [*LAZY, "compact", "selfcompact.events", "selfcompact.log", "selfcompact.settings"])
def test_all_is_sorted_and_names_what_is_there(name: str) -> None:
    module = importlib.import_module(name)
    listed = list(module.__all__)
    assert listed == sorted(listed)
    assert all(hasattr(module, item) for item in listed)


def test_every_event_is_a_name_of_the_events_module() -> None:
    events = selfcompact.events
    assert {item for item, value in vars(events).items() if getattr(value, "__module__", "") == events.__name__} <= {
        *events.__all__,
        *(item for item in vars(events) if item.startswith("_")),
    }


@pytest.mark.parametrize("name", LAZY)
def test_what_a_type_checker_sees_of_a_package_is_what_it_gives(name: str) -> None:
    module = importlib.import_module(name)
    checked = names_for_checkers(Path(str(module.__file__)))
    assert sorted(checked) == list(module.__all__) == dir(module)
    for item, place in checked.items():
        home = importlib.import_module(place)
        assert getattr(module, item) is (getattr(home, item) if place != f"selfcompact.{item}" else home)


def names_for_checkers(path: Path) -> dict[str, str]:
    """What a file imports where type checkers look, and nobody else: each name, and the module it is from."""
    (block,) = (
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        alias.name: f"selfcompact.{alias.name}" if node.module == "selfcompact" else str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("name", LAZY)
def test_a_name_that_is_not_there_is_an_attribute_error_that_says_so(name: str) -> None:
    module = importlib.import_module(name)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'no_such_name'"):
        _ = module.no_such_name


def test_every_error_is_a_name_of_the_root_package() -> None:
    errors = {item for item, value in vars(selfcompact.errors).items() if isclass(value)}
    assert errors <= set(selfcompact.__all__)


def test_an_event_is_a_name_of_its_own_module_alone() -> None:
    assert not set(selfcompact.events.__all__) & set(selfcompact.__all__)


def test_a_word_means_one_thing_in_the_root_package_and_in_what_tests_get() -> None:
    assert not set(selfcompact.testing.__all__) & set(selfcompact.__all__)


def test_the_package_and_what_is_installed_have_one_version() -> None:
    assert selfcompact.__version__ == metadata.version("selfcompact")


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
