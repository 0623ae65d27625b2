"""Connections on the loop, with libzmq at the other end: what is kept, what is slowed, and who else gets a turn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import zmq

from host_bridge.host import zmtp
from host_bridge.host.connection import Client, Connection, Listener, TimeShare
from host_bridge.host.zmtp import Bounds, PassedOver

BOUNDS = Bounds(message_bytes=1 << 20, frames=8)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(5):
        while not condition():
            await anyio.sleep(0.002)


class Heard:
    """What a connection said."""

    def __init__(self) -> None:
        self.messages: list[list[bytes]] = []
        self.passed_over: list[PassedOver] = []

    def message(self, _connection: Connection, parts: list[bytes]) -> None:
        self.messages.append(parts)

    def over(self, _connection: Connection, note: PassedOver) -> None:
        self.passed_over.append(note)


@asynccontextmanager
async def listening(path: Path, heard: Heard, *, peers: int = 4) -> AsyncIterator[Listener]:
    listener = Listener(str(path), BOUNDS, TimeShare(), heard.message, heard.over, peers=peers)
    try:
        yield listener
    finally:
        listener.close()


class Foreign:
    """Sockets of the library that everybody else uses."""

    def __init__(self) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._sockets: list[Any] = []

    def socket(self, kind: int) -> Any:
        self._sockets.append(self._context.socket(kind))
        return self._sockets[-1]

    def close(self) -> None:
        for made in self._sockets:
            made.close(linger=0)
        self._context.term()


@pytest.fixture
def context() -> Any:
    made = Foreign()
    yield made
    made.close()


async def test_a_client_is_heard_by_a_router_and_hears_a_publisher(socket_path: Path, context: Any) -> None:
    heard = Heard()
    router, publisher = context.socket(zmq.ROUTER), context.socket(zmq.PUB)
    router.bind(f"ipc://{socket_path}")
    publisher.bind(f"ipc://{socket_path}-p")
    clients = [
        Client(str(socket_path), "DEALER", BOUNDS, TimeShare(), heard.message, heard.over),
        Client(f"{socket_path}-p", "SUB", BOUNDS, TimeShare(), heard.message, heard.over),
    ]
    try:
        clients[0].send([b"one", b"two" * 1000])
        await until(lambda: bool(router.poll(0)))
        peer, *parts = router.recv_multipart()
        assert parts == [b"one", b"two" * 1000]
        router.send_multipart([peer, b"answer", b"", b"x" * 900_000])
        await until(lambda: bool(heard.messages))
        while len(heard.messages) < 2:
            publisher.send_multipart([b"topic", b"said"])
            await anyio.sleep(0.002)
        assert heard.messages[:2] == [[b"answer", b"", b"x" * 900_000], [b"topic", b"said"]]
    finally:
        for client in clients:
            client.close()


async def test_a_message_over_the_bounds_is_passed_over_and_the_next_one_is_heard(
    socket_path: Path, context: Any
) -> None:
    heard = Heard()
    async with listening(socket_path, heard):
        dealer = context.socket(zmq.DEALER)
        dealer.connect(f"ipc://{socket_path}")
        dealer.send_multipart([b"x" * 500_000] * 40)
        dealer.send_multipart([b""] * 9)
        dealer.send(b"after")
        await until(lambda: bool(heard.messages))
    assert heard.messages == [[b"after"]]
    assert heard.passed_over == [PassedOver(40, 20_000_000), PassedOver(9, 0)]


async def test_a_lost_connection_is_made_again(socket_path: Path, context: Any) -> None:
    heard = Heard()
    client = Client(str(socket_path), "DEALER", BOUNDS, TimeShare(), heard.message, heard.over)
    try:
        for _ in range(2):
            router = context.socket(zmq.ROUTER)
            router.bind(f"ipc://{socket_path}")
            await until(lambda: client.send([b"hello"]))
            await until(partial(router.poll, 0))
            assert router.recv_multipart()[1:] == [b"hello"]
            router.close(linger=0)
            await until(lambda: not client.send([b"lost"]))
    finally:
        client.close()


async def test_more_peers_than_may_be_are_refused_and_the_others_stay(socket_path: Path, context: Any) -> None:
    heard = Heard()
    async with listening(socket_path, heard, peers=2):
        first = context.socket(zmq.DEALER)
        first.connect(f"ipc://{socket_path}")
        first.send(b"first")
        await until(lambda: len(heard.messages) == 1)
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                peer = stack.enter_context(socket.socket(socket.AF_UNIX))
                peer.connect(str(socket_path))
            refused = 0
            peer.setblocking(False)
            with anyio.fail_after(5):
                while not refused:
                    with contextlib.suppress(BlockingIOError):
                        refused = peer.recv(1) == b""
                    await anyio.sleep(0.002)
            first.send(b"still here")
            await until(lambda: len(heard.messages) == 2)


async def test_a_peer_that_breaks_the_protocol_is_cut_off_alone(socket_path: Path, context: Any) -> None:
    heard = Heard()
    async with listening(socket_path, heard):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(socket_path))
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            dealer = context.socket(zmq.DEALER)
            dealer.connect(f"ipc://{socket_path}")
            dealer.send(b"whole")
            await until(lambda: heard.messages == [[b"whole"]])
            peer.settimeout(5)
            data = await anyio.to_thread.run_sync(lambda: b"".join(iter(lambda: peer.recv(4096), b"")))
            assert data.startswith(b"\xff")


async def test_a_peer_that_does_not_read_is_refused_and_holds_nobody_up(socket_path: Path, context: Any) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(socket_path))
    listener.listen()
    heard = Heard()
    client = Client(str(socket_path), "DEALER", BOUNDS, TimeShare(), heard.message, heard.over)
    peer, _ = listener.accept()
    try:
        peer.sendall(zmtp.GREETING + zmtp.ready(b"ROUTER"))
        await anyio.sleep(0.05)
        taken = 0
        while client.send([b"x" * 1_000_000]) and taken < 100:
            taken += 1
        assert 25 < taken < 40
    finally:
        client.close()
        peer.close()
        listener.close()


async def test_a_flood_leaves_the_loop_its_share(socket_path: Path, context: Any) -> None:
    """Whoever else is on the loop waits a slice for its turn, and the flood gets its share of the time and no more."""
    busy = 0.0

    def work(_connection: Connection, _parts: list[bytes]) -> None:
        nonlocal busy
        begin = time.perf_counter()
        while time.perf_counter() - begin < 0.002:
            pass
        busy += 0.002

    heard = Heard()
    share = TimeShare(burst_s=0.01, share=0.25)
    listener = Listener(str(socket_path), BOUNDS, share, work, heard.over, peers=4)
    try:
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.SNDHWM, 0)
        dealer.connect(f"ipc://{socket_path}")
        for _ in range(5000):
            dealer.send(b"x")
        await until(lambda: busy > 0)
        begin, before = time.perf_counter(), busy
        while time.perf_counter() - begin < 0.5:
            await asyncio.sleep(0)
        assert (busy - before) / (time.perf_counter() - begin) < 0.35
    finally:
        listener.close()
