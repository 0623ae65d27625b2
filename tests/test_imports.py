"""The import rules that keep the kernel side small and the layers apart."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STANDARD = frozenset(sys.stdlib_module_names)
KERNEL_SIDE = [
    "bridge/host_bridge/__init__.py",
    "bridge/host_bridge/comm_client.py",
    "bridge/host_bridge/errors.py",
    "bridge/host_bridge/kernel_end.py",
    "bridge/host_bridge/loop_socket.py",
    "bridge/host_bridge/protocol.py",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "kernel_skill").rglob("*.py")),
]


INSIDE = [str(path.relative_to(ROOT)) for path in (ROOT / "bridge/host_bridge/inside").rglob("*.py")]
"""What the host runs in the kernel's process; it extends ipykernel, so it may import what that brings."""


def imported(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or ''}"


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("name", KERNEL_SIDE)
def test_the_kernel_side_imports_the_standard_library_and_pyzmq_only(name: str) -> None:
    allowed = {"zmq", "host_bridge", "compact", "IPython"}
    if name.endswith(("protocol.py", "errors.py")):
        allowed = {"host_bridge"}
    for module in imported(ROOT / name):
        top = module.split(".")[0]
        assert not top or top in STANDARD | allowed, f"{name} imports {module}"
        assert not module.startswith(("host_bridge.host_end", "host_bridge.comm_end")), f"{name} imports {module}"


@pytest.mark.parametrize("name", [*KERNEL_SIDE, *INSIDE])
def test_the_kernel_side_is_python_3_9(name: str) -> None:
    ast.parse((ROOT / name).read_text(), feature_version=(3, 9))


def test_nothing_imports_the_command_line() -> None:
    for path in [*sources("host"), *sources("bridge"), *sources("kernel_skill")]:
        if "cli" not in path.parts and path.name != "__main__.py":
            assert not [name for name in imported(path) if name.startswith("selfcompact.cli")], path


def test_the_bridge_and_the_skill_do_not_know_the_host() -> None:
    for path in [*sources("bridge"), *sources("kernel_skill")]:
        assert not [name for name in imported(path) if name.split(".")[0] == "selfcompact"], path


def test_the_pure_parts_open_nothing() -> None:
    """The engine is functions from values to values: no sockets, no processes, no event loop."""
    forbidden = {"zmq", "socket", "subprocess", "anyio", "asyncio", "jupyter_client", "sqlite3"}
    pure = [
        "budget",
        "cut",
        "plan",
        "transcript",
        "contract",
        "tokens",
        "files",
        "windows",
        "offline",
        "commit",
        "ledger",
    ]
    paths = [ROOT / f"host/selfcompact/compaction/{name}.py" for name in pure]
    paths += [ROOT / "host/selfcompact/session/history.py", ROOT / "host/selfcompact/session/boundary.py"]
    for path in paths:
        assert not forbidden.intersection(name.split(".")[0] for name in imported(path)), path


def test_the_provider_library_is_imported_only_by_its_adapter() -> None:
    for path in sources("host"):
        if path.name not in ("providers.py", "provider_messages.py", "vendor.py"):
            assert not [name for name in imported(path) if name.startswith("pydantic_ai")], path
