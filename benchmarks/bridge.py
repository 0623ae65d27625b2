"""A request from a cell to its host and back: by the bridge, by a comm on the same kernel, and by two bare sockets.

The three are measured in turns in one run, because a machine's speed changes while it works. Times are medians.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import zmq
from pydantic import BaseModel, ConfigDict

from host_bridge.host_end import Dispatcher
from selfcompact.kernel import Kernel, KernelSettings, SandboxPolicy, open_kernel

PREPARE = """
import json, time
from host_bridge.comm_client import comm_request
from host_bridge.kernel_end import host_request
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

BODY = json.dumps({"v": 1, "id": "0" * 32, "gen": 1, "type": "echo", "payload": {"n": 1}}).encode()


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


async def echo(payload: Anything) -> dict[str, Any]:
    return dict(payload.model_extra or {})


def answer_bare(endpoint: str) -> None:
    """The other process of the bare pair: a ROUTER that sends back what it gets."""
    context: zmq.Context[Any] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(endpoint)
    while True:
        parts = router.recv_multipart()
        router.send_multipart(parts)
        if parts[1] == b"stop":
            break
    context.destroy(linger=1000)


def ask_bare(dealer: zmq.Socket[bytes], count: int) -> list[float]:
    took = []
    for _ in range(count):
        started = time.perf_counter()
        dealer.send_multipart([b"s" * 32 + BODY])
        dealer.recv_multipart()
        took.append(time.perf_counter() - started)
    return took


async def from_cell(kernel: Kernel, how: str, count: int) -> list[float]:
    result = await kernel.execute(f"await timed({how}, {count})")
    assert result.status == "ok", result.text
    took: list[float] = json.loads(result.text)
    return took


async def measure(rounds: int, count: int) -> dict[str, list[float]]:
    """Times in seconds for each of the three ways."""
    dispatcher = Dispatcher()
    dispatcher.register("echo", Anything, echo)
    found: dict[str, list[float]] = {"bridge": [], "comm": [], "bare": []}
    settings = KernelSettings(output_head_bytes=1 << 20)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        endpoint = f"ipc://{folder}/bare"
        process = multiprocessing.get_context("spawn").Process(target=answer_bare, args=(endpoint,))
        process.start()
        context: zmq.Context[Any] = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.connect(endpoint)
        ask_bare(dealer, 100)
        async with open_kernel(settings, SandboxPolicy(), workspace=Path(folder), dispatcher=dispatcher) as kernel:
            await kernel.execute(PREPARE)
            await from_cell(kernel, "by_bridge", 20)
            await from_cell(kernel, "by_comm", 20)
            for _ in range(rounds):
                found["bare"] += ask_bare(dealer, count)
                found["bridge"] += await from_cell(kernel, "by_bridge", count)
                found["comm"] += await from_cell(kernel, "by_comm", count)
        dealer.send_multipart([b"stop"])
        dealer.recv_multipart()
        process.join()
        context.destroy(linger=0)
    return found


def main() -> None:
    """Print the medians and the two ratios that are promised."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks bridge")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=200, help="requests of each kind in a round")
    options = parser.parse_args(sys.argv[2:])
    found = anyio.run(measure, options.rounds, options.count)
    median = {name: statistics.median(took) for name, took in found.items()}
    print(f"{options.rounds} rounds of {options.count} requests each, in turns; times in ms\n")
    print("| way | median | 90 % |\n| --- | --- | --- |")
    for name, took in found.items():
        print(f"| {name} | {median[name] * 1e3:.3f} | {statistics.quantiles(took, n=10)[-1] * 1e3:.3f} |")
    print(f"\nbridge / comm: {median['bridge'] / median['comm']:.2f} (at most 0.50)")
    print(f"bridge / bare: {median['bridge'] / median['bare']:.2f} (at most 3.00)")
