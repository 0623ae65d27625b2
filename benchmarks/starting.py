"""Starts of a kernel in a process of its own: `python -m benchmarks.starting KIND` prints the seconds of the first and
of the second one. What a process finds out once, such as which sandbox works here, only the first one pays for."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import anyio

from benchmarks.clients import STOCK, STRIPPED, Started
from host_bridge.host.server import Dispatcher
from selfcompact.kernel import KernelSettings, SandboxPolicy, open_kernel


def in_a_process(kind: str) -> tuple[float, float]:
    """The first and the second start of this kind, in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.starting", kind], capture_output=True, text=True, check=True
    )
    first, second = json.loads(done.stdout)
    return float(first), float(second)


def _ours(sandbox: Literal["bwrap", "none"]) -> float:
    async def ready_s() -> float:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            async with open_kernel(
                KernelSettings(), SandboxPolicy(kind=sandbox), workspace=Path(folder), dispatcher=Dispatcher()
            ):
                return time.perf_counter() - began

    return anyio.run(ready_s)


def _theirs(argv: list[str]) -> float:
    started = Started(argv)
    started.close()
    return started.start_s


KINDS: Mapping[str, Callable[[], float]] = {
    "ours": lambda: _ours("bwrap"),
    "ours, no sandbox": lambda: _ours("none"),
    "same options": lambda: _theirs(STRIPPED),
    "stock": lambda: _theirs(STOCK),
}

if __name__ == "__main__":
    print(json.dumps([KINDS[sys.argv[1]]() for _ in range(2)]))
