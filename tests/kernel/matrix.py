"""Run the kernel tests against every supported ipykernel: `python -m tests.kernel.matrix [DIRECTORY]`.

Each version lives in an environment of its own that holds that ipykernel and nothing else, which also proves that the
kernel's side needs no installing. The environments are kept in DIRECTORY and made once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST_PYTHON = "3.9"


@dataclass(frozen=True)
class Environment:
    """One environment: its name, the interpreter it is made with, and what is installed into it."""

    name: str
    base: Path
    requirement: str


def environments() -> Iterator[Environment]:
    """The versions that are promised: the oldest, one with a defect of its own, the newest, and the oldest Python."""
    here = Path(sys.executable)
    yield Environment("ipykernel-6.29.5", here, "ipykernel==6.29.5")
    yield Environment("ipykernel-7.0.1", here, "ipykernel==7.0.1")
    yield Environment("ipykernel-newest", here, "ipykernel")
    oldest = find_python(OLDEST_PYTHON)
    if oldest is None:
        say(f"skipped: no Python {OLDEST_PYTHON} was found (on PATH, or installed by pyenv or uv)")
    else:
        yield Environment(f"python-{OLDEST_PYTHON}", oldest, "ipykernel")


def say(text: str) -> None:
    """To the terminal, before what the next program prints there."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def find_python(version: str) -> Path | None:
    """An interpreter of this version that works, on PATH or where version managers put theirs."""
    candidates = [found] if (found := shutil.which(f"python{version}")) else []
    for root in (Path.home() / ".pyenv/versions", Path.home() / ".local/share/uv/python"):
        candidates += [str(path) for path in sorted(root.glob(f"*{version}.*/bin/python{version}"))]
    for candidate in candidates:
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return Path(candidate)
    return None


def prepare(environment: Environment, directory: Path) -> Path:
    """Make an environment unless it is there, and return its interpreter."""
    folder = directory / environment.name
    python = folder / "bin" / "python"
    done = folder / ".complete"
    if not done.exists():
        subprocess.run([str(environment.base), "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, environment.requirement], check=True)
        done.touch()
    return python


def main() -> int:
    """Test every environment; the exit code is 0 when all of them pass."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ".venv/kernels").absolute()
    failed = []
    for environment in environments():
        python = prepare(environment, directory)
        say(f"\n== {environment.name} ({environment.base})")
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "tests/kernel", *sys.argv[2:]]
        done = subprocess.run(command, env={**os.environ, "KERNEL_UNDER_TEST": str(python)}, check=False)
        if done.returncode:
            failed.append(environment.name)
    say(f"\nfailed: {', '.join(failed)}" if failed else "\nall versions pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
