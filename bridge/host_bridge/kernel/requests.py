"""What runs in the kernel: ask the host something and wait for its answer.

Each event loop has a socket of its own, watched by that loop; a thread without a loop has one of its own, polled. So
requests work from the main cell, background tasks and threads alike, no socket crosses a thread, and none of the
kernel's own channels is needed: those carry the cell's output, and lose messages when a cell prints a lot.

A kernel whose environment names no bridge uses a comm instead. Runs in any kernel: Python 3.9, standard library, pyzmq.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

import zmq

from host_bridge.kernel.comm import available, comm_request, comm_request_blocking
from host_bridge.wire.errors import BadSignature, BridgeTimeout, BridgeUnavailable, FrameError, HostRequestError
from host_bridge.wire.loop_socket import LoopSocket
from host_bridge.wire.protocol import (
    CANCEL,
    DEFAULT_TIMEOUT_S,
    ENV_ENDPOINT,
    MAX_FRAME_BYTES,
    Address,
    Answer,
    Request,
    pack_request,
    unpack_answer,
)


async def host_request(
    request_type: str, payload: Mapping[str, Any], *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> dict[str, Any]:
    """Ask the host, and return what it answers.

    Never waits longer than `timeout_s` seconds. When the waiting task is cancelled, the host is told to stop working
    on the request. Works under any event loop; outside asyncio it blocks its thread.

    Raises:
        BridgeUnavailable: no host listens; BridgeTimeout: none answered in time.
        HostRequestError: the host answered with an error, whose `code` says which.
        FrameError: the payload is not JSON or too long; nothing was sent.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return host_request_blocking(request_type, payload, timeout_s=timeout_s)
    if _by_comm():
        return await comm_request(request_type, payload, timeout_s)
    return await _ends.for_loop(loop).request(request_type, payload, timeout_s)


def host_request_blocking(
    request_type: str, payload: Mapping[str, Any], *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> dict[str, Any]:
    """The same for code that cannot await, such as a plain thread: blocks the calling thread until the answer.

    Raises:
        The errors of `host_request`.
    """
    if _by_comm():
        return comm_request_blocking(request_type, payload, timeout_s)
    return _ends.for_thread().request(request_type, payload, timeout_s)


def _by_comm() -> bool:
    """Whether the environment names no bridge, and this is a kernel that can open comms."""
    return not os.environ.get(ENV_ENDPOINT) and available()


class _LoopEnd:
    """The socket of one event loop. That loop's thread owns everything in here."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: zmq.Context[Any], address: Address) -> None:
        self._loop, self._address = loop, address
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._socket = LoopSocket(_connected(context, address), self._on_message)

    def close(self) -> None:
        self._socket.close()

    async def request(self, request_type: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        request = Request(os.urandom(16).hex(), self._address.generation, request_type, payload)
        frame = pack_request(self._address.key, request)
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[request.id] = future
        timer = self._loop.call_later(timeout_s, _time_out, future, request_type, timeout_s)
        answered = False
        try:
            if not self._socket.send((frame,)):
                raise BridgeUnavailable("it takes no more requests")
            answer = await future
            answered = True
        finally:
            timer.cancel()
            self._waiting.pop(request.id, None)
            if not answered:
                self._socket.send((_cancel(self._address, request.id),))
        return _result(answer)

    def _on_message(self, parts: list[bytes]) -> None:
        answer = _answer(self._address, parts)
        future = self._waiting.get(answer.id) if answer else None
        if answer is not None and future is not None and not future.done():
            future.set_result(answer)


class _ThreadEnd:
    """The socket of one thread that has no event loop. That thread owns everything in here."""

    def __init__(self, context: zmq.Context[Any], address: Address) -> None:
        self._address = address
        self._socket = _connected(context, address)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            self._socket.close(linger=0)

    def request(self, request_type: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        request = Request(os.urandom(16).hex(), self._address.generation, request_type, payload)
        frame = pack_request(self._address.key, request)
        deadline = time.monotonic() + timeout_s
        answered = False
        try:
            try:
                self._socket.send(frame, zmq.NOBLOCK)
            except zmq.Again:
                raise BridgeUnavailable("it takes no more requests") from None
            while (left_s := deadline - time.monotonic()) > 0:
                if self._socket.poll(max(1, int(left_s * 1000))):
                    answer = _answer(self._address, self._socket.recv_multipart())
                    if answer is not None and answer.id == request.id:
                        answered = True
                        return _result(answer)
            raise BridgeTimeout(request_type, timeout_s)
        finally:
            if not answered:
                with contextlib.suppress(zmq.ZMQError):
                    self._socket.send(_cancel(self._address, request.id), zmq.NOBLOCK)


class _Ends:
    """The sockets of this process: made at first use, made anew in a forked child, closed with their loop or thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buried: list[Any] = []
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._context: zmq.Context[Any] | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopEnd] = weakref.WeakKeyDictionary()
        self._threads = threading.local()

    def for_loop(self, loop: asyncio.AbstractEventLoop) -> _LoopEnd:
        end = self._loops.get(loop)
        if end is not None and self._pid == os.getpid():
            return end
        context, address = self._open()
        end = self._loops.get(loop)
        if end is None:
            end = _LoopEnd(loop, context, address)
            self._loops[loop] = end
            weakref.finalize(loop, end.close)
        return end

    def for_thread(self) -> _ThreadEnd:
        context, address = self._open()
        end: _ThreadEnd | None = getattr(self._threads, "end", None)
        if end is None:
            end = self._threads.end = _ThreadEnd(context, address)
        return end

    def close(self) -> None:
        """Close what this thread can reach. A kernel never needs it; tests do, which outlive many addresses."""
        for end in list(self._loops.values()):
            end.close()
        self._threads = threading.local()
        if self._context is not None:
            self._context.destroy(linger=0)
        self._reset()

    def _open(self) -> tuple[zmq.Context[Any], Address]:
        address = Address.from_environment()
        with self._lock:
            if self._pid != os.getpid():
                # A forked child must not touch, not even close, what belongs to its parent.
                self._buried.append((self._context, self._loops, self._threads))
                self._reset()
            if self._context is None:
                self._context = zmq.Context()
            return self._context, address


_ends = _Ends()


def _connected(context: zmq.Context[Any], address: Address) -> zmq.Socket[bytes]:
    _probe(address.endpoint)
    dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 0)
    dealer.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    dealer.connect(address.endpoint)
    return dealer


def _probe(endpoint: str) -> None:
    """Say at once that nobody listens: ZeroMQ itself would go on trying in silence."""
    if not endpoint.startswith("ipc://"):
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(endpoint[len("ipc://") :])
        except OSError as error:
            raise BridgeUnavailable(f"nothing listens at {endpoint} ({error.strerror or error})") from None


def _time_out(future: asyncio.Future[Answer], request_type: str, timeout_s: float) -> None:
    if not future.done():
        future.set_exception(BridgeTimeout(request_type, timeout_s))


def _cancel(address: Address, request_id: str) -> bytes:
    request = Request(os.urandom(16).hex(), address.generation, CANCEL, {"id": request_id})
    return pack_request(address.key, request)


def _answer(address: Address, parts: list[bytes]) -> Answer | None:
    """The answer in these bytes; None when it is none, or one for an older kernel."""
    try:
        answer = unpack_answer(address.key, parts[0] if len(parts) == 1 else b"")
    except (BadSignature, FrameError):
        return None
    return answer if answer.generation == address.generation else None


def _result(answer: Answer) -> dict[str, Any]:
    if not answer.ok:
        raise HostRequestError(answer.code, answer.message)
    return dict(answer.result)
