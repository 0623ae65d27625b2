"""The skill as a folder that other hosts install."""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from skills_ref import validate

from selfcompact.errors import UsageError
from selfcompact.skills import export_skill, skill_metadata, system_prompt


def test_the_exported_folder_passes_the_reference_validator(tmp_path: Path) -> None:
    folder = export_skill(tmp_path)
    assert folder == tmp_path / "compact"
    assert validate(folder) == []
    assert {path.name for path in folder.iterdir()} == {"SKILL.md", "pyproject.toml", "src"}


def run_with(source: Path, program: str) -> str:
    """What a program prints in an interpreter that has the standard library, pyzmq and these sources, and not us."""
    places = [str(source), sysconfig.get_path("platlib")]  # as plain folders: lines of `.pth` files do not count
    begin = f"import sys; sys.path += {places!r}; sys.modules['selfcompact'] = sys.modules['pydantic'] = None\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", begin + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_exported_module_imports_without_the_host(tmp_path: Path) -> None:
    source = export_skill(tmp_path) / "src"
    files = sorted(path.relative_to(source) for path in source.rglob("*.py"))
    names = [".".join(path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts) for path in files]
    assert {"compact", "host_bridge.wire.protocol", "host_bridge.kernel.requests"} <= set(names)
    assert {path.name for path in source.iterdir()} == {"compact", "host_bridge"}
    assert {path.name for path in (source / "host_bridge").iterdir() if path.is_dir()} == {"kernel", "wire"}
    printed = run_with(source, f"for name in {names!r}: __import__(name); print(sys.modules[name].__file__)")
    assert [Path(line) for line in printed.splitlines()] == [source / path for path in files]


def test_nothing_is_exported_that_the_skill_does_not_use(tmp_path: Path) -> None:
    source = export_skill(tmp_path) / "src"
    printed = run_with(source, "import compact; print(*(getattr(m, '__file__', '') for m in sys.modules.values()))")
    used = {Path(name) for name in printed.split() if name.startswith(str(source))}
    assert set(source.rglob("*.py")) == used


CALLS = """
import asyncio
import compact

def raised(call):
    try:
        asyncio.run(call())
    except Exception as error:
        return type(error).__name__, isinstance(error, RuntimeError)

async def run(): await compact.run("keep it")
async def status(): await compact.status()
async def recall(): await compact.recall("words")
async def entry(): await compact.entry("no such id")
async def long(): await compact.run("x" * 1_000_000)
print([raised(call) for call in (run, status, recall, entry, long)])
"""

FOREIGN = """
import types

class Kernel:
    control_handlers, iopub_socket = {}, None
    comm_manager = types.SimpleNamespace(comm_msg=None, comm_close=None)
    def __init__(self): self.session = self
    def get_parent(self): return {}
    def send(self, socket, kind, content, **_):
        if kind == "comm_open":
            message = {"content": {"comm_id": content["comm_id"], "data": ANSWER}}
            self.control_handlers["comm_msg"](None, None, message)

shell = types.SimpleNamespace(kernel=Kernel(), events=types.SimpleNamespace(register=lambda *_: None))
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
"""


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({"status": "error"}, ["HostRequestError"] * 5),
        ({"status": "error", "error": "no such request"}, ["HostRequestError"] * 5),
        ({"status": "error", "error": {"code": "busy", "message": "later"}}, ["HostRequestError"] * 5),
        ({"status": "error", "error": {"code": "unknown_type", "message": "?"}}, ["RuntimeError"] * 5),
        ({"status": "ok", "entry": None}, [None, None, "HostRequestError", "EntryNotFound", None]),
    ],
)
def test_every_error_of_a_call_in_a_foreign_host_is_a_runtime_error(
    tmp_path: Path, answer: dict[str, Any], names: list[str | None]
) -> None:
    printed = run_with(export_skill(tmp_path) / "src", f"ANSWER = {answer!r}\n{FOREIGN}\n{CALLS}")
    assert ast.literal_eval(printed) == [name and (name, True) for name in names]


def test_without_any_host_a_call_raises_a_runtime_error_too(tmp_path: Path) -> None:
    printed = run_with(export_skill(tmp_path) / "src", CALLS)
    assert ast.literal_eval(printed) == [("BridgeUnavailable", True)] * 5


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
