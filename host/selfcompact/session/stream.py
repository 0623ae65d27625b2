"""Events to any number of readers, without one of them slowing the session or another.

Each reader has its own unbounded queue: a session must never wait for a screen. Readers that fall behind cost
memory, not progress; the events are small and share their messages.
"""

from __future__ import annotations

import math
from types import TracebackType
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from selfcompact.events import Event


class EventStream:
    """One reader's events, from the moment it was made. Ends when the session closes or `aclose()` is called."""

    def __init__(self, hub: EventHub, receive: MemoryObjectReceiveStream[Event]) -> None:
        self._hub, self._receive = hub, receive

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            return await self._receive.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None

    def pending(self) -> list[Event]:
        """What has arrived and was not read yet; never waits."""
        events: list[Event] = []
        while True:
            try:
                events.append(self._receive.receive_nowait())
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                return events

    async def aclose(self) -> None:
        """Stop reading; the session forgets this reader."""
        self._hub.forget(self)
        self._receive.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class EventHub:
    """Where the session emits. Nothing here awaits, so emitting is safe in shielded and cancelled code."""

    def __init__(self) -> None:
        self._senders: dict[EventStream, MemoryObjectSendStream[Event]] = {}
        self._closed = False

    def open(self) -> EventStream:
        """A new reader. After `close()` it is empty."""
        send, receive = anyio.create_memory_object_stream[Event](math.inf)
        stream = EventStream(self, receive)
        if self._closed:
            send.close()
        else:
            self._senders[stream] = send
        return stream

    def emit(self, event: Event) -> None:
        """Give an event to every reader."""
        for send in self._senders.values():
            send.send_nowait(event)

    def forget(self, stream: EventStream) -> None:
        """Close a reader's queue."""
        send = self._senders.pop(stream, None)
        if send is not None:
            send.close()

    def close(self) -> None:
        """End all streams once they have been read to the end."""
        self._closed = True
        for send in self._senders.values():
            send.close()
        self._senders.clear()
