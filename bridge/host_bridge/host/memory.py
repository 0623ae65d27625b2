"""The bridge without sockets: the same dispatcher, checks and frames, inside one process.

For tests, and for hosts whose "kernel" is code of their own. Host only.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from host_bridge.host.dispatcher import Dispatcher
from host_bridge.host.line import BridgeStats, Line
from host_bridge.wire.errors import BridgeTimeout, BridgeUnavailable, HostRequestError
from host_bridge.wire.protocol import DEFAULT_TIMEOUT_S, Answer, Request, pack_request, unpack_answer

_KEY = b"memory"


class MemoryBridge:
    """What `host_bridge.kernel` is to a real kernel. Made by `memory_bridge`, usable until its block ends."""

    def __init__(self, line: Line, *, key: bytes, generation: int) -> None:
        self._line, self._key, self._generation = line, key, generation
        self.closed = False

    @property
    def stats(self) -> BridgeStats:
        """The counters of this line."""
        return self._line.stats

    async def host_request(
        self, request_type: str, payload: Mapping[str, Any], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, Any]:
        """Ask the host, through packed and signed frames; guarantees and errors as in `requests.host_request`."""
        if self.closed:
            raise BridgeUnavailable("the memory bridge is closed")
        request = Request(uuid.uuid4().hex, self._generation, request_type, payload)
        answers: list[Answer] = []
        arrived = anyio.Event()

        def take(frame: bytes) -> None:
            answers.append(unpack_answer(self._key, frame))
            arrived.set()

        self._line.receive(pack_request(self._key, request), take)
        with anyio.move_on_after(timeout_s):
            await arrived.wait()
        if not answers:
            raise BridgeTimeout(request_type, timeout_s)
        if not answers[0].ok:
            raise HostRequestError(answers[0].code, answers[0].message)
        return dict(answers[0].result)


@asynccontextmanager
async def memory_bridge(
    dispatcher: Dispatcher, *, key: bytes = _KEY, generation: int = 1
) -> AsyncIterator[MemoryBridge]:
    """Open a bridge to `dispatcher` in this process; leaving cancels the handlers that still run."""
    async with anyio.create_task_group() as tasks:
        line = Line(dispatcher, key=key, generation=generation, tasks=tasks)
        line.start()
        bridge = MemoryBridge(line, key=key, generation=generation)
        try:
            yield bridge
        finally:
            bridge.closed = True
            tasks.cancel_scope.cancel()
