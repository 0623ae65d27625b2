"""A cell and a start of our kernel, each beside the same work without us on the same kernel options.

`--parts 1` also measures what single settings of a plain kernel are worth.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio

from benchmarks.clients import NO_COLOURS, NO_DEBUGGER, NO_HISTORY, STOCK, STRIPPED, Client, Started, attached
from benchmarks.measure import median, options, ratio, spread, table, timed
from benchmarks.starting import KINDS, in_a_process
from host_bridge.host.server import Dispatcher
from selfcompact.kernel import Kernel, KernelSettings, SandboxPolicy, open_kernel
from selfcompact.kernel.content import reply_of

BATCH = 10
"""Cells of one way in a row. Short, so that all ways see the same machine, and so that no queue runs over."""

WARM_UP = 2
"""Batches of each way before anything is counted."""

KERNELS = 3
"""Kernels of each kind in a run of `--parts`."""

SETTLE_S = 0.05
"""For our client to read what another client's cells said; that is nobody's time."""

PARTS: Mapping[str, list[str]] = {
    "as it comes": STOCK,
    "no history database": [*STOCK, NO_HISTORY],
    "no colours": [*STOCK, NO_COLOURS],
    "no debugger": NO_DEBUGGER,
    "none of the three": STRIPPED,
}

Way = Callable[[], Awaitable[None]]


async def _execute(kernel: Kernel) -> None:
    result = await kernel.execute("1+1")
    assert result.text == "2", result


async def _reply(kernel: Kernel) -> None:
    """What no user calls: our channels, up to the reply and no further."""
    generation = kernel._current
    assert generation is not None
    content = {"code": "1+1", "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    reply = await generation.channels.ask("shell", "execute_request", {**content, "stop_on_error": False}, 30)
    assert reply is not None
    assert reply_of(reply).status == "ok"


async def _blocking(call: Callable[[], None]) -> None:
    call()


async def _in_turns(ways: Mapping[str, Way], clients: Sequence[Client], count: int) -> dict[str, float]:
    """The median of each way, in seconds. Fewer than a thousand cells: after that many results IPython flushes some."""
    times: dict[str, list[float]] = defaultdict(list)
    for turn in range(-WARM_UP, count // BATCH):
        for name, way in ways.items():
            for _ in range(BATCH):
                began = time.perf_counter()
                await way()
                if turn >= 0:
                    times[name].append(time.perf_counter() - began)
            for client in clients:
                client.drain()
            await anyio.sleep(SETTLE_S)
    return {name: statistics.median(took) for name, took in times.items()}


async def _two_clients(count: int) -> dict[str, float]:
    """Our client and the blocking one on one and the same running kernel."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_kernel(
            KernelSettings(), SandboxPolicy(), workspace=Path(folder), dispatcher=Dispatcher()
        ) as kernel:
            client = attached(kernel)
            ways: dict[str, Way] = {
                "ours": partial(_execute, kernel),
                "theirs": partial(_blocking, client.whole),
                "ours, reply": partial(_reply, kernel),
                "theirs, reply": partial(_blocking, client.reply),
            }
            found = await _in_turns(ways, [client], count)
            client.close()
    return found


async def _three_kernels(count: int) -> dict[str, float]:
    """Our kernel in its sandbox and without one, and a plain one with the same options and the blocking client."""
    plain = Started(STRIPPED)
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        async with (
            open_kernel(KernelSettings(), SandboxPolicy(), workspace=where, dispatcher=Dispatcher()) as boxed,
            open_kernel(KernelSettings(), SandboxPolicy(kind="none"), workspace=where, dispatcher=Dispatcher()) as free,
        ):
            ways: dict[str, Way] = {
                "ours": partial(_execute, boxed),
                "ours, no sandbox": partial(_execute, free),
                "same options": partial(_blocking, plain.whole),
            }
            found = await _in_turns(ways, [], count)
    plain.close()
    return found


def _repeated(measure: Callable[[int], Awaitable[dict[str, float]]], runs: int, count: int) -> dict[str, list[float]]:
    """What each run found, on kernels of its own."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        for name, took in anyio.run(measure, count).items():
            found[name].append(took)
    return found


def _cells(runs: int, count: int) -> None:
    same = _repeated(_two_clients, runs, count)
    print("`1+1` on one and the same running kernel, in its sandbox:\n")
    rows = []
    for work, ours, theirs in (
        ("output collected, until idle", "ours", "theirs"),
        ("reply only, output not read", "ours, reply", "theirs, reply"),
    ):
        rows.append((work, spread(same[ours], 2, 1e3), spread(same[theirs], 2, 1e3), ratio(same[ours], same[theirs])))
    table(("work", "our client, ms", "blocking client, ms", "ours / blocking"), rows)

    others = _repeated(_three_kernels, runs, count)
    print("`1+1` on three kernels with the same options, output collected, until idle:\n")
    said = {
        "ours": "ours: sandbox, our client",
        "ours, no sandbox": "ours with `sandbox.kind` none, our client",
        "same options": "plain ipykernel, no sandbox, blocking client",
    }
    table(
        ("kernel", "ms", "ours / this"),
        [(said[name], spread(others[name], 2, 1e3), _beside(others, name)) for name in said],
    )


def _starts(runs: int, count: int) -> None:
    first: dict[str, list[float]] = defaultdict(list)
    second: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        times: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for _ in range(count):
            for kind in KINDS:
                times[kind].append(in_a_process(kind))
        for kind, took in times.items():
            first[kind].append(statistics.median(one for one, _ in took))
            second[kind].append(statistics.median(two for _, two in took))
    said = {
        "ours": "ours: looking for sandbox and interpreter, sandbox, bridge, kernel, until it answers",
        "ours, no sandbox": "ours with `sandbox.kind` none: the same without a sandbox",
        "same options": "plain ipykernel, same options: kernel, `wait_for_ready`, which waits for 0.2 s of silence",
        "stock": "stock ipykernel, its own options (history, colours, debugger): as the row above",
    }
    print(f"Ready, imports of the host not counted; {count} new processes of each kind in a run, two starts in each:\n")
    table(
        ("start, and what is in it", "first, ms", "ours / this", "second, ms", "ours / this"),
        [
            (
                said[kind],
                spread(first[kind], 0, 1e3),
                _beside(first, kind),
                spread(second[kind], 0, 1e3),
                _beside(second, kind),
            )
            for kind in KINDS
        ],
    )


def _beside(found: Mapping[str, list[float]], name: str) -> str:
    return "–" if name == "ours" else ratio(found["ours"], found[name])


def _parts(runs: int, count: int) -> None:
    start: dict[str, list[float]] = defaultdict(list)
    cell: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        starts: dict[str, list[float]] = defaultdict(list)
        cells: dict[str, list[float]] = defaultdict(list)
        for _ in range(KERNELS):
            for name, argv in PARTS.items():
                plain = Started(argv)
                starts[name].append(plain.start_s)
                median(plain.whole, BATCH)
                cells[name] += timed(plain.whole, count // KERNELS)
                plain.close()
        for name in PARTS:
            start[name].append(statistics.median(starts[name]))
            cell[name].append(statistics.median(cells[name]))
    print("What single settings of a plain kernel without a sandbox are worth; output collected, until idle:\n")
    rows = [(name, spread(start[name], 0, 1e3), spread(cell[name], 2, 1e3)) for name in PARTS]
    table(("a plain kernel", "ready, ms", "1+1, ms"), rows)


def main() -> None:
    """Print the tables."""
    chosen = options("kernel", cells=100, starts=4, parts=0)
    print(f"Medians of {chosen.runs} runs, each with all ways in turns; lowest and highest in brackets.\n")
    _cells(chosen.runs, chosen.cells)
    _starts(chosen.runs, chosen.starts)
    if chosen.parts:
        _parts(chosen.runs, chosen.cells)
