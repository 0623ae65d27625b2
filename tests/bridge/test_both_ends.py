"""Requests through real sockets, from loops and threads, and everything that may go wrong with them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import zmq

from host_bridge.host.server import Dispatcher, RequestRefused
from host_bridge.kernel import requests as kernel_end
from host_bridge.kernel.requests import host_request, host_request_blocking
from host_bridge.wire.errors import BridgeTimeout, BridgeUnavailable, FrameError, HostRequestError
from host_bridge.wire.protocol import ErrorCode, sign, unpack_answer

from .conftest import KEY, Anything, Serve, Text

pytestmark = pytest.mark.usefixtures("_fresh_ends")


@pytest.fixture
def _fresh_ends(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each test its own sockets; the kernel's process has one address for life, a test run has many."""
    ends = kernel_end._Ends()
    monkeypatch.setattr(kernel_end, "_ends", ends)
    yield
    ends.close()


class Raw:
    """A peer that speaks to the server without our kernel end."""

    def __init__(self, path: Path) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.connect(f"ipc://{path}")

    async def ask(self, frame: bytes) -> bytes:
        self.socket.send(frame)
        return await self.receive()

    async def receive(self) -> bytes:
        with anyio.fail_after(5):
            while not self.socket.poll(0):
                await anyio.sleep(0.005)
        return bytes(self.socket.recv())

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def raw(socket_path: Path) -> Any:
    peer = Raw(socket_path)
    yield peer
    peer.close()


def packed(**change: Any) -> bytes:
    body = {"v": 1, "id": "one", "gen": 1, "type": "echo", "payload": {"a": 1}, **change}
    data = json.dumps(body).encode()
    return sign(KEY, data) + data


async def test_a_request_is_answered(serve: Serve) -> None:
    async with serve():
        assert await host_request("echo", {"a": [1, "ü", None]}) == {"a": [1, "ü", None]}


async def test_fifty_at_once_get_each_their_own_answer(serve: Serve) -> None:
    async with serve() as server:
        answers = await asyncio.gather(*(host_request("echo", {"n": n}) for n in range(50)))
        assert [answer["n"] for answer in answers] == list(range(50))
        assert server.stats.answered == server.stats.received == 50


async def test_threads_with_and_without_a_loop_get_their_own_answers(serve: Serve) -> None:
    found: dict[int, object] = {}

    def with_loop(n: int) -> None:
        found[n] = asyncio.run(host_request("echo", {"n": n}))["n"]

    def without_loop(n: int) -> None:
        found[n] = host_request_blocking("echo", {"n": n})["n"]

    async with serve():
        threads = [threading.Thread(target=(with_loop, without_loop)[n % 2], args=(n,)) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert found == {n: n for n in range(10)}


async def test_no_host_named_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOST_BRIDGE_ENDPOINT", raising=False)
    with pytest.raises(BridgeUnavailable, match="carry on without it"):
        await host_request("echo", {})


async def test_a_dead_host_is_an_error_at_once(serve: Serve) -> None:
    async with serve():
        pass
    started = time.monotonic()
    with pytest.raises(BridgeUnavailable, match="nothing listens"):
        await host_request("echo", {})
    with pytest.raises(BridgeUnavailable, match="nothing listens"):
        await asyncio.to_thread(host_request_blocking, "echo", {})
    assert time.monotonic() - started < 1


async def test_a_host_that_dies_later_is_a_time_out_within_the_limit(serve: Serve) -> None:
    async with serve():
        await host_request("echo", {})
    with pytest.raises(BridgeTimeout, match=r"within 0.2 s"):
        await host_request("echo", {}, timeout_s=0.2)


async def test_a_host_that_does_not_answer_is_a_time_out_within_the_limit(serve: Serve, dispatcher: Dispatcher) -> None:
    async def hang(_payload: Anything) -> dict[str, object]:
        await anyio.sleep_forever()
        raise AssertionError

    dispatcher.register("hang", Anything, hang)
    async with serve() as server:
        with pytest.raises(BridgeTimeout):
            await host_request("hang", {}, timeout_s=0.2)
        with pytest.raises(BridgeTimeout):
            await asyncio.to_thread(host_request_blocking, "hang", {}, timeout_s=0.2)
        await until(lambda: server.stats.cancelled == 2)


async def test_cancelling_the_caller_cancels_the_handler(serve: Serve, dispatcher: Dispatcher) -> None:
    started, cancelled = anyio.Event(), anyio.Event()

    async def hang(_payload: Anything) -> dict[str, object]:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError

    dispatcher.register("hang", Anything, hang)
    async with serve() as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host_request, "hang", {})
            await started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(2):
            await cancelled.wait()
        await until(lambda: server.stats.cancelled == 1)


async def test_a_payload_that_cannot_be_sent_is_refused_before_it_is_sent(serve: Serve) -> None:
    async with serve() as server:
        for payload in ({"a": object()}, {"a": "x" * 300_000}):
            with pytest.raises(FrameError):
                await host_request("echo", payload)
        assert server.stats.received == 0


async def test_an_unregistered_type_is_refused_and_can_be_switched(serve: Serve, dispatcher: Dispatcher) -> None:
    async with serve() as server:
        await host_request("echo", {})
        dispatcher.unregister("echo")
        with pytest.raises(HostRequestError) as caught:
            await host_request("echo", {})
        assert (caught.value.code, server.stats.unknown_type) == (ErrorCode.UNKNOWN_TYPE, 1)


async def test_a_payload_of_the_wrong_shape_is_refused_by_name(serve: Serve, dispatcher: Dispatcher) -> None:
    async def never(_payload: Text) -> dict[str, object]:
        raise AssertionError

    dispatcher.register("text", Text, never)
    async with serve() as server:
        for payload in ({"text": 3}, {}, {"text": "a", "more": 1}):
            with pytest.raises(HostRequestError, match="text") as caught:
                await host_request("text", payload)
            assert caught.value.code == ErrorCode.BAD_PAYLOAD
        assert server.stats.bad_payload == 3


class Circle:
    """Something that is not JSON."""


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (Circle(), ErrorCode.BAD_RESULT),
        ({"a": Circle()}, ErrorCode.BAD_RESULT),
        (None, ErrorCode.BAD_RESULT),
        ({"a": "x" * 300_000}, ErrorCode.TOO_LARGE),
        (ValueError("a secret of the host"), ErrorCode.HANDLER_FAILED),
        (TimeoutError("its own"), ErrorCode.HANDLER_FAILED),
        (RequestRefused("mine", "not today"), "mine"),
    ],
)
async def test_whatever_a_handler_does_becomes_an_answer_and_the_server_lives_on(
    serve: Serve, dispatcher: Dispatcher, result: object, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_payload: Anything) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    dispatcher.register("odd", Anything, handler)
    async with serve() as server:
        with pytest.raises(HostRequestError) as caught:
            await host_request("odd", {})
        assert caught.value.code == code
        assert "secret" not in str(caught.value)
        assert await host_request("echo", {"still": "there"}) == {"still": "there"}
        assert server.stats.errors == 1


async def test_a_handler_that_takes_too_long_is_stopped(serve: Serve, dispatcher: Dispatcher) -> None:
    async def slow(_payload: Anything) -> dict[str, object]:
        await anyio.sleep_forever()
        raise AssertionError

    dispatcher.register("slow", Anything, slow, timeout_s=0.1)
    async with serve() as server:
        with pytest.raises(HostRequestError, match=r"over 0.1 s") as caught:
            await host_request("slow", {})
        assert (caught.value.code, server.stats.timeouts) == (ErrorCode.TIMEOUT, 1)


async def test_what_is_not_signed_is_dropped_counted_and_not_answered(serve: Serve, raw: Raw) -> None:
    async with serve() as server:
        good = packed()
        for bad in ([b""], [good[32:]], [good[:-1]], [good[:32], good[32:]], [good, b""], [b"x" * 5000]):
            raw.socket.send_multipart(bad)
        assert unpack_answer(KEY, await raw.ask(packed(id="good"))).id == "good"
        assert (server.stats.bad_signature, server.stats.answered) == (6, 1)


async def test_a_megabyte_of_noise_is_passed_over_and_counted_and_stops_nobody(serve: Serve, raw: Raw) -> None:
    async with serve() as server:
        raw.socket.send(b"n" * (1 << 20))
        raw.socket.send_multipart([b"n"] * 3000)
        assert unpack_answer(KEY, await raw.ask(packed())).result == {"a": 1}
        assert await host_request("echo", {"a": 1}) == {"a": 1}
        assert server.stats.bad_signature == 2


@pytest.mark.parametrize(
    ("change", "code", "counter"),
    [
        ({"v": 9}, ErrorCode.BAD_VERSION, "malformed"),
        ({"payload": [1]}, ErrorCode.BAD_FRAME, "malformed"),
        ({"type": ""}, ErrorCode.BAD_FRAME, "malformed"),
        ({"type": "other"}, ErrorCode.UNKNOWN_TYPE, "unknown_type"),
        ({"gen": 2}, ErrorCode.STALE_GENERATION, "stale_generation"),
        ({"gen": 4}, ErrorCode.STALE_GENERATION, "stale_generation"),
    ],
)
async def test_signed_requests_that_cannot_be_carried_out_are_refused_and_counted(
    serve: Serve, raw: Raw, change: dict[str, Any], code: str, counter: str
) -> None:
    """A request of another generation is refused."""
    async with serve(generation=3) as server:
        frame = await raw.ask(packed(**{"gen": 3, **change}))
        assert unpack_answer(KEY, frame).code == code
        assert getattr(server.stats, counter) == 1


async def test_a_repeated_request_is_answered_from_the_first_answer(
    serve: Serve, raw: Raw, dispatcher: Dispatcher
) -> None:
    runs = 0
    go = anyio.Event()

    async def count(_payload: Anything) -> dict[str, object]:
        nonlocal runs
        runs += 1
        await go.wait()
        return {"runs": runs}

    dispatcher.register("count", Anything, count)
    async with serve() as server:
        raw.socket.send(packed(type="count"))
        raw.socket.send(packed(type="count"))
        await until(lambda: server.stats.duplicates == 1)
        go.set()
        answers = [await raw.receive(), await raw.receive(), await raw.ask(packed(type="count"))]
        assert [unpack_answer(KEY, frame).result for frame in answers] == [{"runs": 1}] * 3
        assert (runs, server.stats.duplicates) == (1, 2)


async def test_a_flood_is_told_to_wait(serve: Serve, raw: Raw, dispatcher: Dispatcher) -> None:
    go = anyio.Event()

    async def wait(_payload: Anything) -> dict[str, object]:
        await go.wait()
        return {}

    dispatcher.register("wait", Anything, wait)
    async with serve() as server:
        for n in range(100):
            raw.socket.send(packed(id=f"r{n}", type="wait"))
        await until(lambda: server.stats.received == 100)
        assert server.stats.busy == 36
        go.set()
        codes = [unpack_answer(KEY, await raw.receive()).code for _ in range(100)]
        assert (codes.count(""), codes.count(ErrorCode.BUSY)) == (64, 36)


async def _pong(_payload: Anything) -> dict[str, object]:
    return {}


def _files(folder: Path) -> Iterator[Path]:
    yield from folder.iterdir()


async def test_a_late_answer_reaches_nobody(serve: Serve, socket_path: Path) -> None:
    """Answers of an older generation, of another key, or for an id that nobody waits for are dropped."""
    context: zmq.Context[Any] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    async with serve() as server:
        address = server.address
    router.bind(f"ipc://{socket_path}")
    try:
        waiting = asyncio.ensure_future(host_request("echo", {}, timeout_s=5))
        while not router.poll(0):
            await anyio.sleep(0.005)
        peer, asked = router.recv_multipart()
        request_id = json.loads(asked[32:])["id"]

        def answer(n: int, **change: Any) -> None:
            said = {"v": 1, "id": request_id, "gen": 1, "status": "ok", "result": {"n": n}, **change}
            data = json.dumps(said).encode()
            router.send_multipart([peer, sign(address.key, data) + data])

        answer(1, gen=2)
        answer(2, id="another")
        router.send_multipart([peer, b"forged" * 20])
        answer(3)
        answer(4)
        assert await waiting == {"n": 3}
    finally:
        context.destroy(linger=0)


async def test_leaving_the_server_ends_its_handlers_and_removes_its_socket(
    serve: Serve, dispatcher: Dispatcher, socket_path: Path
) -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def hang(_payload: Anything) -> dict[str, object]:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    dispatcher.register("hang", Anything, hang)
    async with serve():
        waiting = asyncio.ensure_future(host_request("hang", {}, timeout_s=0.5))
        await started.wait()
    assert ended.is_set()
    assert not list(_files(socket_path.parent))
    with pytest.raises(BridgeTimeout):
        await waiting


async def test_an_exception_in_the_servers_block_arrives_as_it_is(serve: Serve) -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve():
            raise ZeroDivisionError


async def test_two_handlers_for_one_type_are_refused(dispatcher: Dispatcher) -> None:
    with pytest.raises(ValueError, match="unregister it first"):
        dispatcher.register("echo", Anything, _pong)


async def until(condition: Any, limit_s: float = 5.0) -> None:
    with anyio.fail_after(limit_s):
        while not condition():
            await anyio.sleep(0.005)
