"""Events to any number of readers, without one of them slowing the session or another.

Each reader has its own unbounded queue: a session must never wait for a screen. Readers that fall behind cost
memory, not progress; the events are small and share their messages.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel

from selfcompact.events import Event


class EventStream:
    """One reader's events, from the moment it was made. Ends when the session closes or `aclose()` is called.

    One task reads it. Forgetting it costs only what is queued; nothing has to be closed.
    """

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._queue: deque[Event] = deque()
        self._arrived = anyio.Event()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            await self._arrived.wait()
        await anyio.lowlevel.checkpoint_if_cancelled()
        return self._take()

    def pending(self) -> list[Event]:
        """What has arrived and was not read yet; never waits."""
        return [self._take() for _ in range(len(self._queue))]

    async def aclose(self) -> None:
        """Stop reading; the session forgets this reader."""
        self._hub.forget(self)
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def put(self, event: Event) -> None:
        """Queue an event; the hub calls it."""
        self._queue.append(event)
        self._arrived.set()

    def end(self) -> None:
        """Nothing more will come; what is queued can still be read."""
        self._ended = True
        self._arrived.set()

    def _take(self) -> Event:
        event = self._queue.popleft()
        if not self._queue and not self._ended:
            self._arrived = anyio.Event()
        return event


class EventHub:
    """Where the session emits. Nothing here awaits, so emitting is safe in shielded and cancelled code."""

    def __init__(self) -> None:
        self._streams: list[EventStream] = []
        self._early: list[Event] = []
        self._closed = False

    def open(self) -> EventStream:
        """A new reader. The first one also gets what was kept for it. After `close()` a reader is at its end."""
        stream = EventStream(self)
        for event in self._early:
            stream.put(event)
        self._early = []
        if self._closed:
            stream.end()
        else:
            self._streams.append(stream)
        return stream

    def emit(self, event: Event) -> None:
        """Give an event to every reader."""
        for stream in self._streams:
            stream.put(event)

    def keep(self, event: Event) -> None:
        """Keep an event for the first reader: what happens while a session opens has none yet."""
        self._early.append(event)

    def forget(self, stream: EventStream) -> None:
        """Give a reader no more."""
        if stream in self._streams:
            self._streams.remove(stream)

    def close(self) -> None:
        """End all streams once they have been read to the end."""
        self._closed = True
        for stream in self._streams:
            stream.end()
        self._streams.clear()
