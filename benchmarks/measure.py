"""What every measurement shares: three runs of each, and their median with the lowest and the highest beside it.

A median of one run says nothing of the machine's mood; three runs, in turns with what they are compared to, show it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence

RUNS = 3
"""How often a benchmark repeats everything by itself."""


def options(name: str, **numbers: int) -> argparse.Namespace:
    """The command line of one benchmark: `--runs`, and an option for each of the numbers."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}")
    for option, default in {"runs": RUNS, **numbers}.items():
        parser.add_argument(f"--{option}", type=int, default=default, help=f"default: {default}")
    return parser.parse_args(sys.argv[2:])


def timed(call: Callable[[], object], count: int) -> list[float]:
    """Seconds of each of `count` calls."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return took


def median(call: Callable[[], object], count: int) -> float:
    """The median time of a call, in seconds."""
    return statistics.median(timed(call, count))


def spread(values: Iterable[float], digits: int, scale: float = 1.0) -> str:
    """The runs' median, and in brackets the lowest and the highest; 5.74 (5.51–6.02). One run has no brackets."""
    scaled = [value * scale for value in values]
    middle = f"{statistics.median(scaled):,.{digits}f}"
    return middle if len(scaled) == 1 else f"{middle} ({min(scaled):,.{digits}f}–{max(scaled):,.{digits}f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """What ours is of theirs, run by run."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)], 2)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown: the first column is text, the others are figures."""
    print(f"| {' | '.join(heads)} |")
    print(f"| --- |{' ---: |' * (len(heads) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
    print()
