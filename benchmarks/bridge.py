"""A request from a cell to its host and back: by the bridge, by a comm on the same kernel, by two bare sockets; and
where the time goes that the bridge takes beyond the bare ones.

All ways take turns in one run, because a machine's speed changes while it works.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import anyio

from benchmarks.bridge_pairs import OnALoop, answer_bare, answer_on_a_loop, ask_bare, caller, pair
from benchmarks.bridge_parts import Anything, by_line, by_parts, echo
from benchmarks.measure import options, ratio, spread, table
from host_bridge.host.server import Dispatcher
from selfcompact.kernel import Kernel, KernelSettings, SandboxPolicy, open_kernel

PREPARE = """
import json, time
from host_bridge.kernel.comm import comm_request
from host_bridge.kernel.requests import host_request
async def timed(ask, count):
    took = []
    for _ in range(count):
        started = time.perf_counter()
        await ask()
        took.append(time.perf_counter() - started)
    print(json.dumps(took))
by_bridge = lambda: host_request("echo", {"n": 1})
by_comm = lambda: comm_request("echo", {"n": 1}, 10)
"""

WARM_UP = 50


async def _from_cell(kernel: Kernel, how: str, count: int) -> list[float]:
    result = await kernel.execute(f"await timed({how}, {count})")
    assert result.status == "ok", result.text
    took: list[float] = json.loads(result.text)
    return took


async def _measure(runs: int, rounds: int, count: int) -> Mapping[str, list[float]]:
    """For each way, the median of each run in seconds."""
    dispatcher = Dispatcher()
    dispatcher.register("echo", Anything, echo)
    settings = KernelSettings(output_head_bytes=1 << 20)
    found: dict[str, list[float]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        pair(f"ipc://{folder}/bare", answer_bare) as bare,
        pair(f"ipc://{folder}/loop", answer_on_a_loop) as loop,
    ):
        on_a_loop = OnALoop(loop)
        async with (
            open_kernel(settings, SandboxPolicy(), workspace=Path(folder), dispatcher=dispatcher) as kernel,
            caller(f"ipc://{folder}/plain", dispatcher) as plain,
        ):
            await kernel.execute(PREPARE)
            for run in range(-1, runs):  # the run before the first warms everything up
                times: dict[str, list[float]] = defaultdict(list)
                for _ in range(rounds if run >= 0 else 1):
                    each = count if run >= 0 else WARM_UP
                    times["bare"] += ask_bare(bare, each)
                    times["bridge"] += await _from_cell(kernel, "by_bridge", each)
                    times["comm"] += await _from_cell(kernel, "by_comm", each)
                    times["loop"] += await on_a_loop.ask(each)
                    times["plain"] += await plain.ask(each)
                    times["line"] += await by_line(dispatcher, each)
                    for name, took in (await by_parts(dispatcher, each)).items():
                        times[name] += took
                if run >= 0:
                    for name, took in times.items():
                        found[name].append(statistics.median(took))
        on_a_loop.pause()  # the pair is ended through the socket itself, which nothing else may read then
    return found


def main() -> None:
    """Print both tables."""
    chosen = options("bridge", rounds=5, count=200)
    found = anyio.run(_measure, chosen.runs, chosen.rounds, chosen.count)
    print(
        f"Medians of {chosen.runs} runs of {chosen.rounds} × {chosen.count} requests of each kind, in turns; lowest "
        "and highest in brackets.\n"
    )
    said = {"bridge": "bridge", "comm": "comm, same kernel", "bare": "two bare sockets, two processes"}
    table(("way", "ms"), [(text, spread(found[name], 3, 1e3)) for name, text in said.items()])
    added = [bridge - bare for bridge, bare in zip(found["bridge"], found["bare"], strict=True)]
    print(f"bridge / comm: {ratio(found['bridge'], found['comm'])} (at most 0.30)")
    print(f"bridge − bare: {spread(added, 3, 1e3)} ms\n")

    print("Where the added time goes; the lines with a `+` are measured by themselves in one process:\n")
    table(("part", "ms"), [(name, spread(took, 3, 1e3)) for name, took in _parts(found).items()])


def _parts(found: Mapping[str, list[float]]) -> Mapping[str, list[float]]:
    """What each part adds, run by run: the differences between neighbouring ways, and what is measured by itself."""

    def less(whole: str, *parts: str) -> list[float]:
        rows = zip(found[whole], *(found[part] for part in parts), strict=True)
        return [one - sum(others) for one, *others in rows]

    ends = {
        "+ kernel: request to JSON, signed": found["kernel packs"],
        "+ host: signature, JSON, fields": found["host unpacks"],
        "+ host: handler found, payload validated, handler run": found["host dispatches"],
        "+ host: hand-over to a worker task, limits, time-out": less(
            "line", "host unpacks", "host dispatches", "host packs"
        ),
        "+ host: answer to JSON, signed": found["host packs"],
        "+ kernel: signature, JSON, fields": found["kernel unpacks"],
    }
    known = [sum(values) for values in zip(*ends.values(), strict=True)]
    both = less("plain", "loop")
    return {
        "event loops at both ends instead of blocking sockets": less("loop", "bare"),
        **ends,
        "between two plain processes, the rest: futures, timers, cold caches": [
            one - other for one, other in zip(both, known, strict=True)
        ],
        "an IPython kernel in its sandbox instead of a plain process": less("bridge", "plain"),
    }
