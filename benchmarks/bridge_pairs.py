"""Two processes that talk over a socket, in three ways: blocking, on event loops, and as the bridge's two ends do, but
without kernel and sandbox. What the bridge adds to the first is told by the steps between them."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import anyio
import anyio.to_thread
import zmq

from benchmarks.bridge_parts import BODY, KEY
from host_bridge.host.server import BridgeServer, Dispatcher
from host_bridge.wire.loop_socket import LoopSocket
from host_bridge.wire.protocol import sign

FRAME = sign(KEY, BODY) + BODY
STOP = b"stop"


def answer_bare(endpoint: str) -> None:
    """The other process of a bare pair: a ROUTER that sends back what it gets."""
    context: zmq.Context[Any] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(endpoint)
    while True:
        parts = router.recv_multipart()
        router.send_multipart(parts)
        if parts[1] == STOP:
            break
    context.destroy(linger=1000)


def answer_on_a_loop(endpoint: str) -> None:
    """The same on an event loop, through the socket that the bridge uses."""

    async def serve() -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router = context.socket(zmq.ROUTER)
        router.bind(endpoint)
        over = anyio.Event()

        def answer(parts: list[bytes]) -> None:
            socket.send(parts)
            if parts[1] == STOP:
                over.set()

        socket = LoopSocket(router, answer)
        await over.wait()
        await anyio.sleep(0.1)  # for the answer to leave
        socket.close()
        context.destroy(linger=0)

    anyio.run(serve)


@contextmanager
def pair(endpoint: str, answer: Callable[[str], None]) -> Iterator[zmq.Socket[bytes]]:
    """A DEALER whose other end is in another process."""
    process = multiprocessing.get_context("spawn").Process(target=answer, args=(endpoint,))
    process.start()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(endpoint)
    try:
        yield dealer
        dealer.send_multipart([STOP])
        dealer.recv_multipart()
    finally:
        process.join()
        context.destroy(linger=0)


def ask_bare(dealer: zmq.Socket[bytes], count: int) -> list[float]:
    """Seconds of each of `count` frames sent and received back."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        dealer.send_multipart([FRAME])
        dealer.recv_multipart()
        took.append(time.perf_counter() - began)
    return took


class OnALoop:
    """The asking end on an event loop. It reads the socket until `pause`."""

    def __init__(self, dealer: zmq.Socket[bytes]) -> None:
        self._arrived = anyio.Event()
        self._fd = int(dealer.getsockopt(zmq.FD))
        self._socket = LoopSocket(dealer, lambda _parts: self._arrived.set())

    async def ask(self, count: int) -> list[float]:
        """Seconds of each of `count` frames sent and received back."""
        took = []
        for _ in range(count):
            self._arrived = anyio.Event()
            began = time.perf_counter()
            self._socket.send((FRAME,))
            await self._arrived.wait()
            took.append(time.perf_counter() - began)
        return took

    def pause(self) -> None:
        """Leave the socket to others."""
        asyncio.get_running_loop().remove_reader(self._fd)


class Caller:
    """The kernel's end of the bridge in a plain process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def ask(self, count: int) -> list[float]:
        """Seconds of each of `count` requests, as the other process sees them."""
        self._connection.send(count)
        took: list[float] = await anyio.to_thread.run_sync(self._connection.recv)
        return took


def _call(connection: Connection, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    from host_bridge.kernel.requests import host_request

    async def timed(count: int) -> list[float]:
        took = []
        for _ in range(count):
            began = time.perf_counter()
            await host_request("echo", {"n": 1})
            took.append(time.perf_counter() - began)
        return took

    async def serve() -> None:
        while count := connection.recv():
            connection.send(await timed(count))

    anyio.run(serve)


@asynccontextmanager
async def caller(endpoint: str, dispatcher: Dispatcher) -> AsyncIterator[Caller]:
    """A plain process that asks this dispatcher over a bridge of its own."""
    ours, theirs = multiprocessing.Pipe()
    async with BridgeServer(dispatcher, endpoint=endpoint, key=KEY, generation=1) as server:
        process = multiprocessing.get_context("spawn").Process(
            target=_call, args=(theirs, server.address.to_environment())
        )
        process.start()
        try:
            yield Caller(ours)
        finally:
            ours.send(0)
            await anyio.to_thread.run_sync(process.join)
