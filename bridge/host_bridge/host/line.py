"""One kernel's line to the host: which frames are let through, and what is answered.

Everything that differs from kernel to kernel is here: the key, the generation, what is in flight, which answers were
given, and the counters. A transport gives it frames and a way to answer. Host only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio.abc

from host_bridge.host.dispatcher import Dispatcher, Job, RequestRefused
from host_bridge.wire.errors import BadSignature, FrameError
from host_bridge.wire.protocol import CANCEL, Answer, ErrorCode, Request, pack_answer, unpack_request

Reply = Callable[[bytes], object]


@dataclass
class BridgeStats:
    """What happened on one line so far. Every count only grows."""

    received: int = 0
    """Frames that arrived, good or bad."""
    answered: int = 0
    """Answers that were sent, errors included."""
    errors: int = 0
    """Answers that were errors."""
    bad_signature: int = 0
    """Frames that were dropped because this kernel's key did not sign them."""
    malformed: int = 0
    """Signed frames that were no request."""
    unknown_type: int = 0
    bad_payload: int = 0
    stale_generation: int = 0
    """Requests of an older kernel."""
    duplicates: int = 0
    """Repeated requests, answered from the first answer."""
    busy: int = 0
    """Requests over the limit of requests in flight."""
    timeouts: int = 0
    handler_failures: int = 0
    """Handlers that raised, or returned what cannot be sent."""
    cancelled: int = 0
    """Requests whose caller went away before the answer."""
    undelivered: int = 0
    """Answers that nobody took."""


_COUNTED = {
    ErrorCode.UNKNOWN_TYPE: "unknown_type",
    ErrorCode.BAD_PAYLOAD: "bad_payload",
    ErrorCode.STALE_GENERATION: "stale_generation",
    ErrorCode.BUSY: "busy",
    ErrorCode.TIMEOUT: "timeouts",
    ErrorCode.HANDLER_FAILED: "handler_failures",
    ErrorCode.BAD_RESULT: "handler_failures",
    ErrorCode.BAD_FRAME: "malformed",
    ErrorCode.BAD_VERSION: "malformed",
}


class _InFlight:
    """A request that is being carried out, and everyone who waits for its answer."""

    def __init__(self, reply: Reply) -> None:
        self.replies = [reply]
        self._task: asyncio.Task[None] | None = None
        self._stopped: RequestRefused | None = None

    def stop(self, why: RequestRefused) -> None:
        """Cancel the handler; the answer is `why`."""
        if self._stopped is None:
            self._stopped = why
            if self._task is not None:
                self._task.cancel()

    def _why(self) -> RequestRefused | None:
        return self._stopped

    async def run(self, job: Job) -> dict[str, Any]:
        """Run the handler for as long as it may, and until `stop`.

        Done as asyncio's own time-outs do it, and not with a cancel scope: this is on the way of every request, and a
        scope takes as long as everything else together.

        Raises:
            RequestRefused: the handler failed, was too slow, or was stopped.
        """
        if self._stopped is not None:
            raise self._stopped
        self._task = task = asyncio.current_task()
        assert task is not None
        timer = task.get_loop().call_later(job.timeout_s, lambda: self.stop(job.overdue()))
        try:
            return await job.run()
        except asyncio.CancelledError:
            why = self._why()
            if why is None or task.uncancel() > 0:
                raise  # the transport is closing
            raise why from None
        finally:
            timer.cancel()
            self._task = None


class Line:
    """Checks and answers the frames of one kernel generation.

    The event loop's thread owns everything in here. Handlers run in `tasks`, the transport's task group; they end when
    the transport cancels that group, without an answer.
    """

    def __init__(self, dispatcher: Dispatcher, *, key: bytes, generation: int, tasks: anyio.abc.TaskGroup) -> None:
        self.stats = BridgeStats()
        self._dispatcher, self._key, self._generation, self._tasks = dispatcher, key, generation, tasks
        self._in_flight: dict[str, _InFlight] = {}
        self._waiting: deque[tuple[Request, _InFlight]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._idle: list[asyncio.Future[tuple[Request, _InFlight]]] = []
        self._answers: OrderedDict[str, Answer] = OrderedDict()

    def start(self) -> None:
        """Begin to carry requests out; call it in a task, once the task group was entered."""
        self._tasks.start_soon(self._spawn_workers)

    async def _spawn_workers(self) -> None:
        """Start a worker for each request that finds none idle.

        A task of its own, because frames arrive in a callback of the loop, where anyio cannot always tell which library
        it runs on, and starts nothing.
        """
        loop = asyncio.get_running_loop()
        while True:
            while self._waiting:
                self._tasks.start_soon(self._serve, *self._waiting.popleft())
            self._wake = loop.create_future()
            await self._wake

    def receive(self, frame: bytes, reply: Reply) -> None:
        """Take one frame. `reply` is called with the answer's frame, now or later, at most once, or never.

        Never raises and never blocks.
        """
        self.stats.received += 1
        try:
            request = unpack_request(self._key, frame)
        except BadSignature:
            self.stats.bad_signature += 1
            return
        except FrameError as error:
            self._send(self._error(error.request_id or "-", error.code, str(error)), reply)
            return
        if request.generation != self._generation:
            self._send(self._error(request.id, ErrorCode.STALE_GENERATION, "this request is of an older kernel"), reply)
        elif request.type == CANCEL:
            self._cancel(request)
        elif request.id in self._answers:
            self.stats.duplicates += 1
            self._send(self._answers[request.id], reply)
        elif request.id in self._in_flight:
            self.stats.duplicates += 1
            self._in_flight[request.id].replies.append(reply)
        elif len(self._in_flight) >= self._dispatcher.limits.in_flight:
            limit = self._dispatcher.limits.in_flight
            self._send(self._error(request.id, ErrorCode.BUSY, f"{limit} requests are unanswered; wait for one"), reply)
        else:
            flight = self._in_flight[request.id] = _InFlight(reply)
            if self._idle:
                self._idle.pop().set_result((request, flight))
            else:
                self._waiting.append((request, flight))
                if self._wake is not None and not self._wake.done():
                    self._wake.set_result(None)

    async def _serve(self, request: Request, flight: _InFlight) -> None:
        """Carry out this request and then those that are handed to it. Making a task costs more than most answers."""
        loop = asyncio.get_running_loop()
        while True:
            await self._carry_out(request, flight)
            more: asyncio.Future[tuple[Request, _InFlight]] = loop.create_future()
            self._idle.append(more)
            request, flight = await more

    async def _carry_out(self, request: Request, flight: _InFlight) -> None:
        try:
            job = self._dispatcher.prepare(request.type, request.payload)
            answer = Answer(request.id, self._generation, await flight.run(job))
        except RequestRefused as refusal:
            self.stats.cancelled += refusal.code == ErrorCode.CANCELLED
            answer = self._error(request.id, refusal.code, refusal.message)
        finally:
            self._in_flight.pop(request.id, None)
        self._remember(answer)
        for reply in flight.replies:
            answer = self._send(answer, reply)

    def _cancel(self, request: Request) -> None:
        flight = self._in_flight.get(str(request.payload.get("id")))
        if flight is not None:
            flight.stop(RequestRefused(ErrorCode.CANCELLED, "the caller went away"))

    def _error(self, request_id: str, code: str, message: str) -> Answer:
        counter = _COUNTED.get(code)
        if counter:
            setattr(self.stats, counter, getattr(self.stats, counter) + 1)
        return Answer(request_id, self._generation, {}, code, message[:2000])

    def _remember(self, answer: Answer) -> None:
        self._answers[answer.id] = answer
        while len(self._answers) > self._dispatcher.limits.remembered:
            self._answers.popitem(last=False)

    def _send(self, answer: Answer, reply: Reply) -> Answer:
        """Send it, or, when it cannot be sent, the error that says so; return what was sent."""
        try:
            frame = pack_answer(self._key, answer)
        except FrameError as error:
            code = ErrorCode.TOO_LARGE if error.code == ErrorCode.TOO_LARGE else ErrorCode.BAD_RESULT
            self.stats.handler_failures += code == ErrorCode.TOO_LARGE
            answer = self._error(answer.id, code, f"the host's answer cannot be sent: {error}")
            self._remember(answer)
            frame = pack_answer(self._key, answer)
        self.stats.answered += 1
        self.stats.errors += not answer.ok
        if reply(frame) is False:
            self.stats.undelivered += 1
        return answer
