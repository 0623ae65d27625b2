"""This checkout beside another one: `python -m benchmarks versions /path/to/other/.venv/bin/python`.

Both are run in turns in new processes: a start, `1+1`, a question of a cell to its host, a print of 100 MB. A ratio is
that of a pair of neighbours, and the table shows the median of the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.measure import ratio, spread, table

CELLS, ASKS = 300, 300
MEASURES = {
    "start": "start, ms",
    "cell": "`1+1`, ms",
    "ask": "a question to the host, ms",
    "print": "100 MB printed, ms",
}

_ASK = """
import statistics, time
from host_bridge.kernel.requests import host_request
times = []
for _ in range({count}):
    begin = time.perf_counter()
    await host_request("echo", {{}})
    times.append(time.perf_counter() - begin)
print(statistics.median(times))
"""


async def measured() -> dict[str, float]:
    """One kernel's figures, in seconds."""
    from pydantic import BaseModel

    from host_bridge.host.dispatcher import Dispatcher
    from selfcompact.kernel import KernelSettings, SandboxPolicy, open_kernel

    class Nothing(BaseModel):
        pass

    async def echo(_payload: Nothing) -> dict[str, str]:
        return {}

    dispatcher = Dispatcher()
    dispatcher.register("echo", Nothing, echo)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):  # the first start of a process looks at the machine; the second is the one that repeats
            begin = time.perf_counter()
            async with open_kernel(
                KernelSettings(), SandboxPolicy(), workspace=Path(folder), dispatcher=dispatcher
            ) as kernel:
                found["start"] = time.perf_counter() - begin
                cells = []
                for _ in range(CELLS):
                    begin = time.perf_counter()
                    await kernel.execute("1+1")
                    cells.append(time.perf_counter() - begin)
                found["cell"] = statistics.median(cells[20:])
                result = await kernel.execute(_ASK.format(count=ASKS))
                found["ask"] = float(result.text.split()[-1])
                begin = time.perf_counter()
                await kernel.execute("print('x' * 100_000_000)")
                found["print"] = time.perf_counter() - begin
    return found


def main() -> None:
    """Run both in turns and print the table."""
    options = argparse.ArgumentParser(prog="python -m benchmarks versions")
    options.add_argument("other", help="the interpreter of the other checkout")
    options.add_argument("--pairs", type=int, default=9, help="default: 9")
    chosen = options.parse_args(sys.argv[2:])
    ours: dict[str, list[float]] = defaultdict(list)
    theirs: dict[str, list[float]] = defaultdict(list)
    for _ in range(chosen.pairs):
        for python, figures in ((sys.executable, ours), (chosen.other, theirs)):
            for name, seconds in _run(python).items():
                figures[name].append(seconds)
    table(
        ["", "this", "other", "this / other"],
        [
            [title, spread(ours[name], 2, 1e3), spread(theirs[name], 2, 1e3), ratio(ours[name], theirs[name])]
            for name, title in MEASURES.items()
        ],
    )


def _run(python: str) -> dict[str, float]:
    """The figures of one checkout, whose interpreter imports that checkout's product, from a new process."""
    code = f"import runpy, anyio, json; print(json.dumps(anyio.run(runpy.run_path({__file__!r})['measured'])))"
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
