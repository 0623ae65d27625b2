"""The import rules that keep the floors apart and the kernel side small."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.floors import FLOORS

ROOT = Path(__file__).parents[1]
SOURCES = ("bridge", "host", "kernel_skill")
STANDARD = frozenset(sys.stdlib_module_names)
HEIGHT = {name: height for height, names in enumerate(FLOORS) for name in names}

ALLOWED = {
    "bridge/host_bridge/wire": {"zmq", "host_bridge.wire"},
    "bridge/host_bridge/kernel": {"zmq", "IPython", "ipykernel", "comm", "host_bridge.wire", "host_bridge.kernel"},
    "kernel_skill/compact": {"IPython", "compact", "host_bridge.wire", "host_bridge.kernel"},
}
"""What else than the standard library the folders may import that run in any kernel; nobody installs anything there."""

PURE = (
    *(f"compaction/{name}" for name in ("planning", "style", "offline", "commit.py")),
    *(f"compaction/summary/{name}.py" for name in ("transcript", "windows", "literals")),
    *(f"session/{name}.py" for name in ("history", "boundary", "attempts", "status")),
    "text",
)
"""Functions from values to values."""


def files(*folders: str) -> list[Path]:
    found: list[Path] = []
    for folder in folders:
        path = ROOT / folder
        found += [path] if path.suffix else path.rglob("*.py")
    return sorted(found)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in the file; a submodule by its whole name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or ''}"
            yield from (
                f"{node.module}.{alias.name}" for alias in node.names if is_module(f"{node.module}.{alias.name}")
            )


def is_module(name: str) -> bool:
    path = name.replace(".", "/")
    return any((ROOT / root / f"{path}.py").exists() or (ROOT / root / path).is_dir() for root in SOURCES)


def place_of(module: str) -> str | None:
    """The row's name that a module belongs to; None: it is not ours."""
    parts = module.split(".")
    return next((name for n in range(len(parts), 0, -1) if (name := ".".join(parts[:n])) in HEIGHT), None)


@pytest.mark.parametrize("path", files(*SOURCES), ids=module_of)
def test_nothing_imports_what_stands_on_a_floor_above_it_or_beside_it(path: Path) -> None:
    own = place_of(module_of(path))
    assert own is not None or module_of(path) == "host_bridge", "give it a floor in tests/floors.py"
    for name in imported(path):
        other = place_of(name)
        if other is None or own is None or other == own:
            continue
        if name == "selfcompact" and own != "selfcompact.testing":
            continue  # a name of the root package is looked up where it stands; `is_module` finds submodules
        assert HEIGHT[other] < HEIGHT[own], f"{module_of(path)} imports {name}"


def test_the_page_about_the_architecture_shows_every_floor() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in page.splitlines() if line.startswith("| ") and line.count("|") == 4]
    shown = {name.strip(" `") for row in rows for name in row.split(",")}
    for name in HEIGHT:
        assert name.removeprefix("selfcompact.") in shown or name == "selfcompact.__main__", name


def test_nothing_imports_the_command_line() -> None:
    for path in files(*SOURCES):
        if "cli" not in path.parts and path.name != "__main__.py":
            assert not [name for name in imported(path) if name.startswith("selfcompact.cli")], path


@pytest.mark.parametrize("folder", sorted(ALLOWED))
def test_what_runs_in_any_kernel_imports_the_standard_library_and_pyzmq_only(folder: str) -> None:
    for path in files(folder):
        for name in imported(path):
            top = name.split(".")[0]
            fits = any(name == allowed or name.startswith(f"{allowed}.") for allowed in ALLOWED[folder])
            assert not top or top in STANDARD or fits, f"{path} imports {name}"


@pytest.mark.parametrize("path", files("kernel_skill", "bridge/host_bridge/wire", "bridge/host_bridge/kernel"), ids=str)
def test_the_kernel_side_is_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_the_bridge_and_the_kernel_side_do_not_know_the_product() -> None:
    for path in files("bridge", "kernel_skill"):
        assert not [name for name in imported(path) if name.split(".")[0] == "selfcompact"], path


@pytest.mark.parametrize("place", PURE)
def test_the_pure_parts_open_nothing(place: str) -> None:
    """No sockets, no processes, no event loop."""
    forbidden = {"zmq", "socket", "subprocess", "anyio", "asyncio", "jupyter_client", "sqlite3"}
    found = files(f"host/selfcompact/{place}")
    assert found
    for path in found:
        assert not forbidden.intersection(name.split(".")[0] for name in imported(path)), path


def test_the_provider_library_is_imported_only_by_its_adapter() -> None:
    for path in files("host"):
        if path.name not in ("providers.py", "provider_messages.py", "vendor.py"):
            assert not [name for name in imported(path) if name.startswith("pydantic_ai")], path


def test_no_file_has_more_than_400_lines_and_no_function_more_than_60() -> None:
    for path in files(*SOURCES):
        source = path.read_text()
        assert len(source.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{path}: {node.name}"
