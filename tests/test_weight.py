"""What is imported when, as lists of modules. How long it takes is measured in `benchmarks/weight.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from selfcompact.cli import COMMANDS, cli

HEAVY = frozenset(
    {"IPython", "anyio", "host_bridge", "httpx2", "jupyter_client", "prompt_toolkit", "pydantic", "pydantic_ai", "rich"}
    | {"starlette", "uvicorn", "zmq"}
)
"""What a light part of the product must not bring along."""


def modules_after(program: str) -> set[str]:
    """What a new interpreter has imported when it has run a program, and had not before."""
    code = f"import sys; before = set(sys.modules)\n{program}\nprint(*sorted(set(sys.modules) - before), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def tops(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] in ("selfcompact", "host_bridge", "compact")}


def test_importing_the_package_imports_nothing_else() -> None:
    assert modules_after("import selfcompact") == {"selfcompact"}


@pytest.mark.parametrize("package", ["kernel", "testing"])
def test_importing_a_folder_whose_parts_are_heavy_imports_none_of_them(package: str) -> None:
    assert modules_after(f"import selfcompact.{package}") == {"selfcompact", f"selfcompact.{package}"}


@pytest.mark.parametrize(
    "module",
    ["errors", "events", "messages", "entries", "log", "kernel.result", "kernel.wire", "testing.replies"],
)
def test_a_module_that_only_holds_values_imports_no_kernel_no_model_and_no_screen(module: str) -> None:
    assert not tops(modules_after(f"import selfcompact.{module}")) & HEAVY


def test_an_error_can_be_caught_for_the_price_of_its_own_file() -> None:
    assert ours(modules_after("from selfcompact.errors import SelfcompactError")) == {
        "selfcompact",
        "selfcompact.errors",
    }


@pytest.mark.parametrize("module", ["convert", "settings.retry", "settings.kernel", "sandbox.policy"])
def test_what_reads_settings_needs_their_library_and_no_other(module: str) -> None:
    assert tops(modules_after(f"import selfcompact.{module}")) & HEAVY == {"pydantic"}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["no-such-command"]])
def test_the_command_line_by_itself_imports_no_command(arguments: list[str]) -> None:
    program = f"""
import contextlib, io
sys.argv = ["selfcompact", *{arguments!r}]
from selfcompact.cli import main
silent = io.StringIO()
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
    main()
"""
    assert ours(modules_after(program)) == {
        "selfcompact",
        "selfcompact.cli",
        "selfcompact.cli.ending",
        "selfcompact.errors",
    }


@pytest.mark.parametrize("command", ["export", "inspect", "search", "settings", "skill"])
def test_a_command_that_only_reads_files_imports_no_kernel_and_no_loop(command: str) -> None:
    module = COMMANDS[command][0].partition(":")[0]
    assert not tops(modules_after(f"import selfcompact.cli.{module}")) & (HEAVY - {"pydantic", "rich"})


def test_the_list_of_commands_says_what_each_command_says_of_itself() -> None:
    with click.Context(cli) as context:
        commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    assert {name: command.get_short_help_str(limit=200) for name, command in commands.items() if command} == {
        name: sentence for name, (_, sentence) in COMMANDS.items()
    }


COLLECT = """
import json, pathlib, sys
def pytest_unconfigure():
    pathlib.Path("modules.json").write_text(json.dumps(sorted(sys.modules)))
"""


def test_the_pytest_plugin_imports_nothing_of_the_product_until_a_fixture_is_used(tmp_path: Path) -> None:
    """Pytest loads it in every project of an environment that has selfcompact."""
    (tmp_path / "conftest.py").write_text(COLLECT)
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    found = []
    for without in (["-p", "no:selfcompact"], []):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *without, str(tmp_path)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        found.append(set(json.loads((tmp_path / "modules.json").read_text(encoding="utf-8"))))
    bare, loaded = found
    assert not ours(bare)
    added = {name for name in loaded - bare if name.partition(".")[0] not in sys.stdlib_module_names}
    assert added == {"selfcompact", "selfcompact.testing", "selfcompact.testing.plugin"}
