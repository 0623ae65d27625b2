"""What an import costs, as whole processes beside a bare interpreter: `python -m benchmarks weight [--starts 20]`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import options, ratio, spread, table

SELFCOMPACT = str(Path(sys.executable).parent / "selfcompact")


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


STARTS: Mapping[str, Sequence[str]] = {
    "a bare interpreter": program("pass"),
    "`import selfcompact.errors`": program("import selfcompact.errors"),
    "`import selfcompact`": program("import selfcompact"),
    "`import click`, for comparison": program("import click"),
    "`selfcompact --version`": [SELFCOMPACT, "--version"],
    "`selfcompact --help`": [SELFCOMPACT, "--help"],
    "`selfcompact.open_session`, imported": program("from selfcompact import open_session"),
}

PYTEST = program("import pytest")
PLUGIN = program("import pytest, selfcompact.testing.plugin")


def started(argv: Sequence[str]) -> float:
    """Seconds of one process, from before its start until it has ended."""
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def in_turns(kinds: Mapping[str, Sequence[str]], count: int) -> dict[str, float]:
    """The median start of each kind, one of each after the other so that all meet the same moods of the machine."""
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(count):
        for kind, argv in kinds.items():
            took[kind].append(started(argv))
    return {kind: statistics.median(values) for kind, values in took.items()}


def main() -> None:
    """Print both tables."""
    chosen = options("weight", starts=20)
    in_turns({**STARTS, "plugin": PLUGIN}, 1)  # the first of all compiles, and fills the disk's cache
    runs = [in_turns(STARTS, chosen.starts) for _ in range(chosen.runs)]
    found = {kind: [run[kind] for run in runs] for kind in STARTS}
    bare = found["a bare interpreter"]
    heads = ("process", "ms", "of a bare interpreter's")
    table(heads, [(kind, spread(took, 1, 1000), ratio(took, bare)) for kind, took in found.items()])

    pairs = [in_turns({"without": PYTEST, "with": PLUGIN}, chosen.starts) for _ in range(chosen.runs)]
    added = spread([pair["with"] - pair["without"] for pair in pairs], 1, 1000)
    print(f"- the unused pytest plugin adds {added} ms to `import pytest` (at most 20)")


if __name__ == "__main__":
    main()
