"""What one request costs at either end of the bridge, measured part by part in one process, without sockets."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import anyio
from pydantic import BaseModel, ConfigDict

from host_bridge.host.line import Line
from host_bridge.host.server import Dispatcher
from host_bridge.wire.protocol import Answer, Request, pack_answer, pack_request, unpack_answer, unpack_request

KEY = b"k" * 32
REQUEST = Request("0" * 32, 1, "echo", {"n": 1})
BODY = pack_request(KEY, REQUEST)[32:]


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


async def echo(payload: Anything) -> dict[str, Any]:
    """The handler: gives back what it got."""
    return dict(payload.model_extra or {})


async def by_parts(dispatcher: Dispatcher, count: int) -> Mapping[str, list[float]]:
    """Seconds of each step of `count` requests, from the kernel's end to the host's and back."""
    found: dict[str, list[float]] = defaultdict(list)
    began = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal began
        now = time.perf_counter()
        if name:
            found[name].append(now - began)
        began = time.perf_counter()

    for number in range(count):
        lap("")
        frame = pack_request(KEY, Request(f"{number:032x}", 1, "echo", {"n": 1}))
        lap("kernel packs")
        request = unpack_request(KEY, frame)
        lap("host unpacks")
        result = await dispatcher.prepare(request.type, request.payload).run()
        lap("host dispatches")
        answer = pack_answer(KEY, Answer(request.id, 1, result))
        lap("host packs")
        unpack_answer(KEY, answer)
        lap("kernel unpacks")
    return found


async def by_line(dispatcher: Dispatcher, count: int) -> list[float]:
    """Seconds from a frame that arrived at the host to the frame that answers it, `count` times."""
    took: list[float] = []
    async with anyio.create_task_group() as tasks:
        line = Line(dispatcher, key=KEY, generation=1, tasks=tasks)
        line.start()
        for number in range(count):
            frame = pack_request(KEY, Request(f"{number:032x}", 1, "echo", {"n": 1}))
            answered = anyio.Event()
            began = time.perf_counter()
            line.receive(frame, lambda _frame, answered=answered: answered.set())  # type: ignore[misc] # bound now
            await answered.wait()
            took.append(time.perf_counter() - began)
        tasks.cancel_scope.cancel()
    return took
