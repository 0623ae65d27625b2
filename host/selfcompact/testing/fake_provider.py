"""A real HTTP server on a loopback port that speaks three providers' APIs well enough for their own clients.

Scripted per test: answers in order, requests for a summary (they carry no tools) from a list of their own. It counts
and keeps everything it was sent.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    raise ImportError("the fake provider needs a web server; run: pip install 'selfcompact[testing]'") from error

from selfcompact.testing.replies import Answer, Fault, Reply
from selfcompact.testing.wire_anthropic import compaction_message, message_events
from selfcompact.testing.wire_openai import chat_chunks, compacted_response, response_events

NO_ANSWER_LEFT = Fault(500, {"error": {"message": "the fake provider has no answer left", "type": "server_error"}})


@dataclass(frozen=True)
class Received:
    """One request as it arrived. `body` is the parsed JSON; `is_summary`: it carried no tools."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes = b""

    @property
    def is_summary(self) -> bool:
        """Whether this asked for a summary."""
        return not self.body.get("tools")


@dataclass
class _State:
    answers: Iterator[Answer]
    summaries: Iterator[Answer]
    requests: list[Received] = field(default_factory=list)
    cut_streams: int = 0
    disconnects: int = 0


class FakeProvider:
    """Answers with `answers` in order; requests without tools with `summaries`.

    ```python
    async with FakeProvider([cell_reply("1 + 1"), Reply("two")]) as server:
        model = make_model("openai-chat:fake", base_url=server.openai_url)
    ```
    """

    def __init__(
        self,
        answers: Iterable[Answer] = (),
        *,
        summaries: Iterable[Answer] = (),
        pages: Mapping[str, Any] | None = None,
    ) -> None:
        """`pages` are what GET requests get, by path; other paths are a 404."""
        self._state = _State(iter(answers), iter(summaries))
        self._pages = dict(pages or {})
        self._socket: socket.socket | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._server: _Server | None = None

    @property
    def requests(self) -> list[Received]:
        """Everything it was sent, in order."""
        return self._state.requests

    @property
    def disconnects(self) -> int:
        """How many streams the client closed before their end."""
        return self._state.disconnects

    @property
    def openai_url(self) -> str:
        """The base address for OpenAI's clients."""
        return f"{self.anthropic_url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base address for Anthropic's client."""
        if self._socket is None:
            raise RuntimeError("the fake provider is not running; use `async with`")
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        routes = [
            Route("/{path:path}", self._answer, methods=["POST"]),
            Route("/{path:path}", self._page, methods=["GET"]),
        ]
        app = Starlette(routes=routes)
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        self._server = _Server(config)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._server.serve, [self._socket])
        with anyio.fail_after(10):
            await self._server.listening.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        assert self._server is not None
        self._server.should_exit = True
        self._server.force_exit = True
        self._server.ending.set()
        await self._tasks.__aexit__(None, None, None)
        if self._socket is not None:
            self._socket.close()

    async def _page(self, request: Request) -> Response:
        page = self._pages.get(request.url.path)
        return PlainTextResponse("not here", 404) if page is None else JSONResponse(page)

    async def _answer(self, request: Request) -> Response:
        raw = await request.body()
        received = Received(request.url.path, dict(request.headers), json.loads(raw), raw)
        self._state.requests.append(received)
        source = self._state.summaries if received.is_summary else self._state.answers
        answer = next(source, NO_ANSWER_LEFT)
        if isinstance(answer, Fault):
            await anyio.sleep(answer.delay_s)
            if isinstance(answer.body, str):
                return PlainTextResponse(answer.body, answer.status, headers=dict(answer.headers))
            return JSONResponse(dict(answer.body), answer.status, headers=dict(answer.headers))
        if received.path.endswith("/responses/compact"):
            return JSONResponse(compacted_response(answer, len(self._state.requests)))
        if "compaction" in received.body:
            return JSONResponse(compaction_message(answer, len(self._state.requests), str(received.body.get("model"))))
        stream = self._stream(answer, received)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _stream(self, reply: Reply, received: Received) -> AsyncIterator[bytes]:
        number, model = len(self._state.requests), str(received.body.get("model"))
        if received.path.endswith("/messages"):
            pieces = message_events(reply, number, model)
        elif received.path.endswith("/responses"):
            pieces = response_events(reply, number, model)
        else:
            pieces = chat_chunks(reply, number, model)
        ended = False
        try:
            for count, piece in enumerate(pieces):
                if reply.cut_after is not None and count >= reply.cut_after:
                    self._state.cut_streams += 1
                    raise ConnectionAbortedError("cut by the test")
                await anyio.sleep(reply.delay_s)
                yield piece
            ended = True
        finally:
            if not ended and reply.cut_after is None:
                self._state.disconnects += 1


class _Server(uvicorn.Server):
    """Leaves signals to the test, and tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening, self.ending = anyio.Event(), anyio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def main_loop(self) -> None:
        """Wait for the end instead of looking for it ten times a second: tests open many of these."""
        await self.on_tick(0)
        await self.ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End at once: the tests' clients have what they wanted, and a reply that is still asleep is not waited for."""
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for task in list(self.server_state.tasks):
            task.cancel()
        with anyio.move_on_after(1):
            while self.server_state.tasks or self.server_state.connections:  # noqa: ASYNC110 - it has no event for it
                await anyio.sleep(0.001)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()
