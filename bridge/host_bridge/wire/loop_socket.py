"""A ZeroMQ socket on an asyncio loop, with one reader for the socket's whole life.

`zmq.asyncio` wraps every receive in a future and a poll; here the loop watches the socket's file descriptor and calls
back with each message, which halves the cost of a round trip and leaves nothing to cancel: waiters wait on their own
futures and never touch the socket. Runs inside the kernel too: Python 3.9, standard library and pyzmq.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import zmq

# Plain numbers: arithmetic on the library's enumerations costs as much as sending.
_EVENTS = int(zmq.EVENTS)
_NOBLOCK = int(zmq.NOBLOCK)
_NOBLOCK_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_POLLIN = int(zmq.POLLIN)

MESSAGES_PER_TURN = 64
"""How many messages are handed out before other tasks of the loop get their turn, so that a flood starves nobody."""


class LoopSocket:
    """Hands every message of `socket` to `on_message`, on the loop that was running when this was made.

    The loop's thread owns the socket: call `send` and `close` there only. `close` closes the socket as well and may
    be called twice. `on_message` must not raise and must not block; it may call `close`.
    """

    def __init__(self, socket: zmq.Socket[bytes], on_message: Callable[[list[bytes]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket
        self._on_message = on_message
        self._soon: asyncio.Handle | None = None
        # ZeroMQ's descriptor tells of changes, not of states: after every use the events must be looked at again.
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self._look_again()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._socket.closed

    def send(self, parts: Sequence[bytes]) -> bool:
        """Send without blocking. False when the message was not taken: nobody reads, or the peer is gone."""
        if self._socket.closed:
            return False
        try:
            for part in parts[:-1]:
                self._socket.send(part, _NOBLOCK_MORE)
            self._socket.send(parts[-1], _NOBLOCK)
        except zmq.ZMQError:
            return False
        finally:
            self._look_again()
        return True

    def close(self) -> None:
        """Stop reading and close the socket; what was not read or sent is discarded."""
        if self._socket.closed:
            return
        if self._soon is not None:
            self._soon.cancel()
        with contextlib.suppress(RuntimeError):  # the loop was closed before us, and took its readers along
            self._loop.remove_reader(self._fd)
        self._socket.close(linger=0)

    def _look_again(self) -> None:
        """Come back soon if there is something to read that the descriptor will not tell of any more."""
        if self._soon is None and self._readable():
            self._soon = self._loop.call_soon(self._drain)

    def _readable(self) -> bool:
        try:
            return bool(int(self._socket.getsockopt(_EVENTS)) & _POLLIN)
        except zmq.ZMQError:  # it was closed, by a message's receiver for instance
            return False

    def _drain(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._socket.closed:
            return
        for _ in range(MESSAGES_PER_TURN):
            try:
                parts = self._socket.recv_multipart(_NOBLOCK)
            except zmq.Again:
                return
            except zmq.ZMQError:
                # The context was terminated under us: there is nothing left to read.
                self._loop.remove_reader(self._fd)
                return
            self._on_message(parts)
            if not self._readable():
                return
        self._look_again()
