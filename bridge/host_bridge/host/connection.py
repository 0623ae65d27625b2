"""ZMTP over Unix sockets on the event loop: what a peer may send at a time, and how much of the loop it may take.

Nothing of a peer waits in our memory but the message that is being read, so a peer that floods is slowed by its own
socket. Reading and handling take turns with everything else on the loop, and one kernel's connections share one
allowance of the loop's time, so that a flood of one costs the others little. Host only.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from host_bridge.host import zmtp

CHUNK_BYTES = 256 * 1024
"""What is read at once, if it is there."""

SLICE_S = 0.0005
"""How long messages are handled before everything else on the loop has its turn."""

MAX_WAITING_BYTES = 32 * 1024 * 1024
"""What may wait for a peer that does not read; a message beyond it is refused."""

RECONNECT_S = (0.01, 0.2)
"""After a connection was lost, how soon it is made again: first, and at most."""

SocketType = Literal["DEALER", "SUB", "ROUTER"]

OnMessage = Callable[["Connection", list[bytes]], None]
OnPassedOver = Callable[["Connection", zmtp.PassedOver], None]


class TimeShare:
    """An allowance of the loop's time: so much at once, and beyond it a share of the time that passes.

    Whoever handles messages of one kernel charges what it took, and waits when the allowance is used up.
    """

    def __init__(self, *, burst_s: float = 0.1, share: float = 0.5) -> None:
        self._burst_s, self._share = burst_s, share
        self._credit_s, self._seen = burst_s, time.monotonic()

    def charge(self, spent_s: float) -> None:
        """Take the time that was spent."""
        self._refill()
        self._credit_s -= spent_s

    def wait_s(self) -> float:
        """How long to wait before the next message is handled; nearly always 0."""
        if self._credit_s >= 0:
            return 0.0
        self._refill()
        return max(0.0, -self._credit_s / self._share)

    def _refill(self) -> None:
        now = time.monotonic()
        self._credit_s = min(self._burst_s, self._credit_s + (now - self._seen) * self._share)
        self._seen = now


class Connection:
    """One end of a ZMTP connection. The loop's thread owns it; `close` may be called at any time, and twice.

    `on_message` gets each message within the bounds. It must not raise; it may call `hold`, and no further message
    comes until `release`.
    """

    def __init__(
        self,
        peer: socket.socket,
        kind: SocketType,
        bounds: zmtp.Bounds,
        share: TimeShare,
        on_message: OnMessage,
        on_passed_over: OnPassedOver,
        on_closed: Callable[[Connection], None] = lambda _connection: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, self._kind, self._share = peer, kind, share
        self._on_message, self._on_passed_over, self._on_closed = on_message, on_passed_over, on_closed
        self._reader = zmtp.Reader(bounds)
        self._later: asyncio.Handle | None = None
        self._reading = self._held = self._shaken = self._writing = False
        self._before: list[bytes] = []
        self._waiting = bytearray()
        self.closed = False
        peer.setblocking(False)
        self._read_on()
        self._write(zmtp.GREETING)

    def send(self, parts: Sequence[bytes]) -> bool:
        """Send without blocking. False when it was not taken: the peer is gone, or does not read."""
        if self.closed:
            return False
        data = zmtp.message(parts)
        if not self._shaken:  # a peer may take a message before its own word for a broken handshake
            self._before.append(data)
            return len(self._before) < 1000
        return self._write(data)

    def hold(self) -> None:
        """Hand out nothing more until `release`."""
        self._held = True
        self._read_off()

    def release(self, spent_s: float = 0.0) -> None:
        """Go on; `spent_s` is charged to the allowance."""
        self._held = False
        self._share.charge(spent_s)
        if not self.closed:
            self._come_back()

    def close(self) -> None:
        """Stop reading and close the socket; what was not read or sent is dropped."""
        if self.closed:
            return
        self.closed = True
        if self._later is not None:
            self._later.cancel()
        with contextlib.suppress(RuntimeError):  # the loop was closed before us, and took its readers along
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._on_closed(self)

    def _read_on(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def _read_off(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    def _readable(self) -> None:
        try:
            data = self._socket.recv(CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._reader.feed(data)
        self._handle()

    def _come_back(self) -> None:
        """Handle what was read and not handed out, after everybody else's turn and when the allowance is there."""
        self._read_off()
        if self._later is None:
            wait_s = self._share.wait_s()
            self._later = self._loop.call_later(wait_s, self._handle) if wait_s else self._loop.call_soon(self._handle)

    def _handle(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._share.wait_s():
            self._come_back()
            return
        begin = time.perf_counter()
        try:
            while not (self.closed or self._held):
                item = self._reader.take()
                if item is None:
                    self._read_on()
                    break
                self._take(item)
                if time.perf_counter() - begin > SLICE_S:
                    self._come_back()
                    break
        except zmtp.Malformed:
            self.close()
        self._share.charge(time.perf_counter() - begin)

    def _take(self, item: list[bytes] | zmtp.Command | zmtp.PassedOver) -> None:
        if isinstance(item, list):
            if self._shaken:
                self._on_message(self, item)
        elif isinstance(item, zmtp.PassedOver):
            self._on_passed_over(self, item)
        elif item.name == b"READY" and not self._shaken:
            self._shaken = True
            first = [zmtp.message([zmtp.SUBSCRIBE_ALL])] if self._kind == "SUB" else []
            self._write(b"".join([*first, *self._before]))
            self._before.clear()
        elif item.name == b"PING":
            self._write(zmtp.pong(item))
        elif item.name == b"ERROR":
            self.close()

    def _write(self, data: bytes) -> bool:
        if data is zmtp.GREETING:
            data += zmtp.ready(self._kind.encode())
        if self._waiting:
            if len(self._waiting) + len(data) > MAX_WAITING_BYTES:
                return False
            self._waiting += data
            return True
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._loop.call_soon(self.close)
            return False
        if sent < len(data):
            self._waiting += memoryview(data)[sent:]
            self._loop.add_writer(self._socket.fileno(), self._writable)
        return True

    def _writable(self) -> None:
        try:
            sent = self._socket.send(memoryview(self._waiting)[:CHUNK_BYTES])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        del self._waiting[:sent]
        if not self._waiting:
            self._loop.remove_writer(self._socket.fileno())


class Client:
    """A connection to an endpoint that is made again whenever it is lost, until `close`."""

    def __init__(
        self,
        path: str,
        kind: SocketType,
        bounds: zmtp.Bounds,
        share: TimeShare,
        on_message: OnMessage,
        on_passed_over: OnPassedOver,
    ) -> None:
        self._path = path
        self._make: Callable[[socket.socket], Connection] = lambda peer: Connection(
            peer, kind, bounds, share, on_message, on_passed_over, self._lost
        )
        self._loop = asyncio.get_running_loop()
        self._wait_s = RECONNECT_S[0]
        self._again: asyncio.Handle | None = None
        self._connection: Connection | None = None
        self._closed = False
        self._connect()

    def send(self, parts: Sequence[bytes]) -> bool:
        """As `Connection.send`; False while there is no connection."""
        return self._connection is not None and self._connection.send(parts)

    def close(self) -> None:
        """End the connection for good. May be called twice."""
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        if self._connection is not None:
            self._connection.close()

    def _connect(self) -> None:
        self._again = None
        peer = socket.socket(socket.AF_UNIX)
        peer.setblocking(False)  # a Unix socket connects at once or not at all
        try:
            peer.connect(self._path)
        except OSError:
            peer.close()
            self._lost(None)
        else:
            self._connection = self._make(peer)

    def _lost(self, _connection: Connection | None) -> None:
        self._connection = None
        if not self._closed and self._again is None:
            self._again = self._loop.call_later(self._wait_s, self._connect)
            self._wait_s = min(self._wait_s * 2, RECONNECT_S[1])


class Listener:
    """A socket file that takes connections. Its file is made with the listener and removed with it.

    Raises:
        OSError: the file cannot be made there.
    """

    def __init__(
        self,
        path: str,
        bounds: zmtp.Bounds,
        share: TimeShare,
        on_message: OnMessage,
        on_passed_over: OnPassedOver,
        *,
        peers: int,
    ) -> None:
        self._path, self._peers = path, peers
        self._make: Callable[[socket.socket], Connection] = lambda peer: Connection(
            peer, "ROUTER", bounds, share, on_message, on_passed_over, self._connections.discard
        )
        self._connections: set[Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        try:
            self._socket.bind(path)
            self._socket.listen(128)
        except BaseException:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Close every connection and remove the file. May be called twice."""
        if self._socket.fileno() < 0:
            return
        with contextlib.suppress(RuntimeError):
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for connection in list(self._connections):
            connection.close()
        with contextlib.suppress(OSError):
            Path(self._path).unlink()

    def _accept(self) -> None:
        try:
            peer, _ = self._socket.accept()
        except OSError:
            return
        if len(self._connections) >= self._peers:
            peer.close()
        else:
            self._connections.add(self._make(peer))
