"""Our kernel in its sandbox beside jupyter_client's own client and an unsandboxed kernel: `1+1`, and a start.

Both are measured in turns in one run. `--parts` measures what single settings of a plain kernel cost.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from host_bridge.host_end import Dispatcher
from selfcompact.kernel import KernelSettings, SandboxPolicy, open_kernel

PLAIN = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
NO_DEBUGGER = [
    sys.executable,
    "-c",
    "import sys; sys.modules['debugpy'] = None; from ipykernel.kernelapp import launch_new_instance as f; f()",
    "-f",
    "{connection_file}",
]
PARTS: Mapping[str, list[str]] = {
    "as it comes": PLAIN,
    "no history database": [*PLAIN, "--HistoryManager.enabled=False"],
    "no colours": [*PLAIN, "--InteractiveShell.colors=nocolor"],
    "no debugger": NO_DEBUGGER,
    "none of the three": [*NO_DEBUGGER, "--HistoryManager.enabled=False", "--InteractiveShell.colors=nocolor"],
}


class Plain:
    """A kernel without a sandbox, with jupyter_client's blocking client."""

    def __init__(self, argv: list[str]) -> None:
        started = time.perf_counter()
        self._manager = KernelManager()
        self._manager._kernel_spec = KernelSpec(argv=argv, display_name="plain", language="python")
        self._manager.start_kernel()
        self.client: BlockingKernelClient = self._manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.start_s = time.perf_counter() - started

    def one(self) -> None:
        """One cell, until its reply: what this client offers of least effort."""
        reply = self.client.execute("1+1", reply=True, timeout=10)
        assert reply["content"]["status"] == "ok"

    def whole(self) -> None:
        """One cell with its output, until the kernel is idle: what our client does as well."""
        self.client.execute_interactive("1+1", output_hook=lambda _message: None, timeout=10)

    def close(self) -> None:
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def timed(action: Callable[[], None], count: int) -> list[float]:
    took = []
    for _ in range(count):
        started = time.perf_counter()
        action()
        took.append(time.perf_counter() - started)
    return took


async def cells(rounds: int, count: int) -> dict[str, list[float]]:
    """Seconds for `1+1` in each of three ways."""
    found: dict[str, list[float]] = {"ours": [], "reply only": [], "reply and idle": []}
    plain = Plain(PLAIN)
    with tempfile.TemporaryDirectory() as folder:
        async with open_kernel(
            KernelSettings(), SandboxPolicy(), workspace=Path(folder), dispatcher=Dispatcher()
        ) as kernel:
            for _ in range(20):
                await kernel.execute("1+1")
                plain.whole()
            for _ in range(rounds):
                for _ in range(count):
                    started = time.perf_counter()
                    result = await kernel.execute("1+1")
                    found["ours"].append(time.perf_counter() - started)
                    assert result.text == "2"
                found["reply only"] += timed(plain.one, count)
                found["reply and idle"] += timed(plain.whole, count)
    plain.close()
    return found


async def starts(rounds: int) -> dict[str, list[float]]:
    """Seconds until a kernel is ready: ours in the sandbox, and a plain one."""
    found: dict[str, list[float]] = {"ours": [], "plain": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            started = time.perf_counter()
            async with open_kernel(KernelSettings(), SandboxPolicy(), workspace=Path(folder), dispatcher=Dispatcher()):
                ours = time.perf_counter() - started
            plain = Plain(PLAIN)
            plain.close()
            if number:  # the first start fills the disk's cache
                found["ours"].append(ours)
                found["plain"].append(plain.start_s)
    return found


def parts(rounds: int, count: int) -> None:
    """What single settings of a plain kernel cost."""
    start: dict[str, list[float]] = {name: [] for name in PARTS}
    cell: dict[str, list[float]] = {name: [] for name in PARTS}
    for _ in range(rounds):
        for name, argv in PARTS.items():
            plain = Plain(argv)
            start[name].append(plain.start_s)
            timed(plain.one, 20)
            cell[name] += timed(plain.one, count)
            plain.close()
    print("\n| a plain kernel, unsandboxed | ready, ms | 1+1, ms |\n| --- | --- | --- |")
    for name in PARTS:
        print(f"| {name} | {statistics.median(start[name]) * 1e3:.0f} | {statistics.median(cell[name]) * 1e3:.2f} |")


def main() -> None:
    """Print the medians and the two ratios that are promised."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks kernel")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=100, help="cells of each kind in a round")
    parser.add_argument("--parts", action="store_true", help="also: what single settings cost")
    options = parser.parse_args(sys.argv[2:])
    found = anyio.run(cells, options.rounds, options.count)
    print("| 1+1 | median, ms | 90 %, ms |\n| --- | --- | --- |")
    median = {name: statistics.median(took) for name, took in found.items()}
    for name, took in found.items():
        print(f"| {name} | {median[name] * 1e3:.2f} | {statistics.quantiles(took, n=10)[-1] * 1e3:.2f} |")
    print(f"\nours / reply only: {median['ours'] / median['reply only']:.2f} (at most 1.10)")
    print(f"ours / reply and idle: {median['ours'] / median['reply and idle']:.2f}\n")
    ready = {name: statistics.median(took) for name, took in anyio.run(starts, options.rounds).items()}
    print("| ready | median, ms |\n| --- | --- |")
    for name, took_s in ready.items():
        print(f"| {name} | {took_s * 1e3:.0f} |")
    print(f"\nours / plain: {ready['ours'] / ready['plain']:.2f} (at most 1.15)")
    if options.parts:
        parts(options.rounds, options.count)
