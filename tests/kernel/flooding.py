"""A host beside a kernel that floods it: `python -m tests.kernel.flooding NAME` prints what that cost, as JSON.

A process of its own, so that its memory is the host's alone: `grown_mib` is the growth of the peak of every process of
the host together (this one and its threads; the kernel and the sandbox are not the host's). `late_s` is how much later
than its limit a cell ended, or an abort was obeyed. `sibling` is the median of 100 `compact.status()` of another
session of this process while the flood goes on, in units of the median without one.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

import selfcompact as sc
from host_bridge.host.dispatcher import Dispatcher
from selfcompact.kernel import Kernel, KernelSettings, open_kernel
from selfcompact.sandbox.policy import SandboxPolicy

LIMIT_S = 3.0

_LOUD = """
import time, zmq, json, hmac, hashlib, uuid
kernel = get_ipython().kernel
from jupyter_client.session import Session
loud = Session(key=kernel.session.key)
parent = kernel.get_parent()
iopub = kernel.iopub_thread.socket
iopub.setsockopt(zmq.SNDHWM, 100_000)
def said(kind, raw, frames=()):
    header = json.dumps({"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "s", "username": "u",
                         "date": "2026-01-01T00:00:00Z", "version": "5.3"}).encode()
    parts = [header, json.dumps({"msg_id": parent["header"]["msg_id"]}).encode(), b"{}", raw]
    mac = hmac.new(kernel.session.key, digestmod=hashlib.sha256)
    for part in parts: mac.update(part)
    iopub.send_multipart([b"stream", b"<IDS|MSG>", mac.hexdigest().encode(), *parts, *frames], copy=False)
"""

_BRIDGE = """
import os, time, zmq
context = zmq.Context()
def socket():
    made = context.socket(zmq.DEALER); made.linger = 0; made.connect(os.environ["HOST_BRIDGE_ENDPOINT"]); return made
"""

FLOODS = {
    "one message of sixty frames": _LOUD + "big = b'x' * (31 << 20)\nsaid('stream', b'{}', [big] * 60)\ntime.sleep(60)",
    "a thousand messages": _LOUD
    + "big = b'x' * (31 << 20)\nfor n in range(1000): said('stream', b'{}', [big])\ntime.sleep(60)",
    "the largest messages that are read": _LOUD
    + "big = json.dumps({'data': {'text/plain': '\\U0001f600' + 'x' * 7_000_000}}, ensure_ascii=False).encode()\n"
    "while True:\n    said('display_data', big); time.sleep(0.01)",
    "thirty megabytes of empty lists": _LOUD
    + 'big = b\'{"data": {"text/plain": "x", "k": [\' + b\'[],\' * 10_000_000 + b\'1]}}\'\n'
    "while True:\n    said('display_data', big); time.sleep(0.05)",
    "seven megabytes of empty lists": _LOUD
    + 'big = b\'{"data": {"text/plain": "x", "k": [\' + b\'[],\' * 2_400_000 + b\'1]}}\'\n'
    "while True:\n    said('display_data', big); time.sleep(0.01)",
    "a megabyte of lists in each message": _LOUD + "big = b'{\"text\": \"x\", \"k\": [' + b'[],' * 340_000 + b'1]}'\n"
    "while True:\n    said('stream', big)",
    "twenty thousand displays": "for n in range(20_000): display(n)\nimport time; time.sleep(60)",
    "small messages without end": _LOUD + "while True: said('stream', b'{\"text\": \"x\"}')",
    "unsigned messages on the bridge": _BRIDGE + "peer = socket()\nwhile True:\n"
    "    try: peer.send(b'n' * 200_000, zmq.NOBLOCK)\n    except zmq.Again: time.sleep(0.001)",
    "a bridge message of three thousand frames": _BRIDGE
    + "peer = socket()\nframe = b'x' * 500_000\nwhile True:\n    peer.send_multipart([frame] * 3000, copy=False)",
    "three hundred peers on the bridge": _BRIDGE + "peers = [socket() for _ in range(300)]\nwhile True:\n"
    "    for peer in peers:\n"
    "        try: peer.send(b'n' * 250_000, zmq.NOBLOCK | zmq.SNDMORE)\n        except zmq.Again: pass",
}

_ASK = """
import asyncio, statistics, time
times = []
for _ in range({count}):
    begin = time.perf_counter()
    await compact.status()
    times.append(time.perf_counter() - begin)
    await asyncio.sleep(0.01)
print(statistics.median(times))
"""


def peak_mib(*, anew: bool = False) -> float:
    """The most memory this process has had since this was asked `anew`."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    text = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


async def sibling_median(kernel: Kernel, count: int = 100) -> float:
    result = await kernel.execute(_ASK.format(count=count))
    return float(result.text.split()[-1])


async def flooded(name: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as logs:
        other = sc.open_session(sc.ScriptedModel([]), workspace=Path(folder), session_file=Path(logs) / "s.jsonl")
        policy = SandboxPolicy(memory=None)
        settings = KernelSettings(cell_timeout_s=LIMIT_S)
        async with (
            other as session,
            open_kernel(settings, policy, workspace=Path(folder), dispatcher=Dispatcher()) as kernel,
        ):
            sibling = session.kernel
            await sibling_median(sibling, 20)
            alone = statistics.median([await sibling_median(sibling) for _ in range(3)])
            before = peak_mib(anew=True)
            begin = time.monotonic()
            beside: list[float] = []

            async def ask() -> None:
                beside.append(await sibling_median(sibling))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                result = await kernel.execute(FLOODS[name])
                late = time.monotonic() - begin - LIMIT_S
            if result.status == "error":
                raise SystemExit(f"{name}: {result.text[-1000:]}")
            begin = time.monotonic()
            with anyio.move_on_after(1.0):
                await kernel.execute(FLOODS[name])
            abort = time.monotonic() - begin - 1.0
            after = await kernel.execute("6 * 7")
            return {
                "grown_mib": round(peak_mib() - before, 1),
                "late_s": round(late, 2),
                "abort_late_s": round(abort, 2),
                "sibling": round(beside[0] / alone, 2),
                "sibling_ms": round(beside[0] * 1e3, 2),
                "after": after.text[-60:],  # type: ignore[dict-item]
                "generation": kernel.generation,
                "status": result.status,  # type: ignore[dict-item]
            }


if __name__ == "__main__":
    for chosen in sys.argv[1:] or FLOODS:
        sys.stdout.write(json.dumps({"flood": chosen, **anyio.run(flooded, chosen)}) + "\n")
