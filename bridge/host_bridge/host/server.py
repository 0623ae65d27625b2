"""The host's end of the bridge: a socket per kernel in front of the shared dispatcher. Host only."""

from __future__ import annotations

from types import TracebackType

import anyio

from host_bridge.host.connection import Connection, Listener, TimeShare
from host_bridge.host.dispatcher import Dispatcher, Limits, RequestRefused
from host_bridge.host.line import BridgeStats, Line
from host_bridge.host.zmtp import Bounds, PassedOver
from host_bridge.wire.protocol import MAX_FRAME_BYTES, Address

__all__ = ["BridgeServer", "BridgeStats", "Dispatcher", "Limits", "RequestRefused"]

MAX_PEERS = 256
"""Sockets of one kernel: one for each event loop and each thread that asks. Further ones are refused."""

_IPC = "ipc://"


class BridgeServer:
    """Answers one kernel generation on one endpoint, as an async context manager.

    Enter and leave it in the same task. It owns its socket and its handlers' tasks: leaving cancels the handlers that
    still run, closes the socket and removes the socket's file. An exception in a handler never ends it. `share` is the
    allowance of the loop's time that this kernel's flood would use up.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        endpoint: str,
        key: bytes,
        generation: int,
        share: TimeShare | None = None,
    ) -> None:
        self.address = Address(endpoint, key, generation)
        self._dispatcher = dispatcher
        self._share = share or TimeShare()
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
        # Another message than one frame of a request is counted as one that nobody signed, and not kept.
        self._listener = Listener(
            self.address.endpoint.removeprefix(_IPC),
            Bounds(MAX_FRAME_BYTES, frames=1),
            self._share,
            self._on_message,
            self._on_passed_over,
            peers=MAX_PEERS,
        )
        await self._tasks.__aenter__()
        self._line.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self._tasks.cancel_scope.cancel()
        # The block's own exception goes on by itself; the group would wrap it into an exception group.
        await self._tasks.__aexit__(None, None, None)

    def _on_message(self, peer: Connection, parts: list[bytes]) -> None:
        self._line.receive(parts[0], lambda answer: peer.send((answer,)))

    def _on_passed_over(self, _peer: Connection, _note: PassedOver) -> None:
        self._line.receive(b"", lambda _answer: False)
