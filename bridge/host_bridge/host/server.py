"""The host's end of the bridge: a ROUTER socket per kernel in front of the shared dispatcher. Host only."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType

import anyio
import zmq

from host_bridge.host.dispatcher import Dispatcher, Limits, RequestRefused
from host_bridge.host.line import BridgeStats, Line
from host_bridge.wire.loop_socket import LoopSocket
from host_bridge.wire.protocol import MAX_FRAME_BYTES, Address

__all__ = ["BridgeServer", "BridgeStats", "Dispatcher", "Limits", "RequestRefused"]

_PENDING_MESSAGES = 256
"""What ZeroMQ may hold in each direction for one peer, so that a flood costs at most 64 MiB."""


class BridgeServer:
    """Answers one kernel generation on one endpoint, as an async context manager.

    Enter and leave it in the same task. It owns its socket and its handlers' tasks: leaving cancels the handlers that
    still run, closes the socket and removes the socket's file. An exception in a handler never ends it.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        endpoint: str,
        key: bytes,
        generation: int,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self.address = Address(endpoint, key, generation)
        self._dispatcher = dispatcher
        self._given_context = context
        self._tasks = anyio.create_task_group()
        self._line = Line(dispatcher, key=key, generation=generation, tasks=self._tasks)

    @property
    def line(self) -> Line:
        """What checks and answers this kernel's frames; other transports of the same kernel share it."""
        return self._line

    @property
    def stats(self) -> BridgeStats:
        """The counters of this server, living: they go on after it was closed."""
        return self._line.stats

    async def __aenter__(self) -> BridgeServer:
        self._context = self._given_context or zmq.Context()
        router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        try:
            router.setsockopt(zmq.LINGER, 0)
            router.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
            router.setsockopt(zmq.RCVHWM, _PENDING_MESSAGES)
            router.setsockopt(zmq.SNDHWM, _PENDING_MESSAGES)
            router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an answer that nobody takes is counted, not lost in silence
            router.bind(self.address.endpoint)
        except BaseException:
            router.close(linger=0)
            self._close_context()
            raise
        await self._tasks.__aenter__()
        self._line.start()
        self._socket = LoopSocket(router, self._on_message)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._tasks.cancel_scope.cancel()
        try:
            # The block's own exception goes on by itself; the group would wrap it into an exception group.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._close_context()
            if self.address.endpoint.startswith("ipc://"):
                _remove(self.address.endpoint[len("ipc://") :])

    def _on_message(self, parts: list[bytes]) -> None:
        peer = parts[0]
        # What is not a message of ours is not a frame either, and is counted as one that nobody signed.
        frame = parts[1] if len(parts) == 2 else b""
        self._line.receive(frame, lambda answer: self._socket.send((peer, answer)))

    def _close_context(self) -> None:
        if self._given_context is None:
            self._context.term()


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # ZeroMQ removes it itself, as long as it can
        Path(path).unlink()
