"""What an interpreter needs on disk, asked from the interpreter itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from selfcompact.errors import KernelStartError

ASK_TIMEOUT_S = 20.0
"""An interpreter answers in milliseconds; a cold network disk may take seconds."""

_ASK = """
import importlib.util, json, sys
print(json.dumps({
    "executable": sys.executable, "version": sys.version_info[:3],
    "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix],
    "path": [p for p in sys.path if p], "ipykernel": importlib.util.find_spec("ipykernel") is not None,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that can run a kernel, and the paths it needs to be readable."""

    executable: Path
    version: tuple[int, ...]
    needs: tuple[Path, ...]
    prefixes: tuple[Path, ...] = ()
    """Where the program lies and the links that lead to it: what has to stay as it is for it to be the same program."""


def inspect_interpreter(executable: Path | None = None) -> Interpreter:
    """Ask an interpreter where its parts are; None means the one this program runs in.

    Blocks for some 20 ms at the first call for an interpreter; later calls remember, until the file changes.

    Raises:
        KernelStartError: it cannot be run, is older than 3.9, or has no ipykernel.
    """
    path = Path(executable or sys.executable).expanduser().absolute()
    try:
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        raise KernelStartError(
            "interpreter", f"{path} cannot be used ({error.strerror}); set kernel.python to a Python"
        ) from None
    return _inspect(path, stamp)


@lru_cache(maxsize=16)
def _inspect(path: Path, _stamp: int) -> Interpreter:
    try:
        # Isolated, as the kernel will run: what the caller's variables add to the path is not part of it.
        done = subprocess.run(
            [str(path), "-I", "-c", _ASK], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True
        )
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        tail = getattr(error, "stderr", "") or ""
        raise KernelStartError(
            "interpreter", f"{path} is not a Python that runs ({error}); set kernel.python", tail[-2000:]
        ) from None
    version = tuple(answer["version"])
    if version < (3, 9):
        raise KernelStartError("interpreter", f"{path} is Python {version[0]}.{version[1]}; 3.9 or newer is needed")
    if not answer["ipykernel"]:
        raise KernelStartError(
            "interpreter", f"{path} has no ipykernel; install it with: {path} -m pip install ipykernel"
        )
    # A shim is a script that looks up the interpreter; what it needs for that is not in the sandbox.
    executable = Path(answer["executable"] or path)
    prefixes = _links(executable)
    found = [*answer["prefixes"], *answer["path"], *prefixes]
    return Interpreter(executable, version, _existing(found), tuple(Path(prefix) for prefix in prefixes))


def _links(path: Path) -> list[str]:
    """The prefixes that the executable's symbolic links lead through: a virtual environment's python is one."""
    prefixes = []
    for _ in range(40):  # the kernel's own limit for chains of links
        prefixes.append(str(path.parent.parent))
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    return prefixes


def _existing(found: list[str]) -> tuple[Path, ...]:
    """Existing paths once each, with their real places, without what lies inside another one, and never `/`."""
    paths: set[Path] = set()
    for text in found:
        path = Path(text)
        if path.exists():
            paths |= {path.absolute(), path.resolve()}
    paths.discard(Path("/"))
    return tuple(sorted(path for path in paths if not any(parent in paths for parent in path.parents)))
