"""What a session is doing, with one owner: only what is written here changes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import anyio

from selfcompact.errors import SessionBusy, SessionClosed

State = Literal["idle", "running", "at_boundary", "compacting", "closed"]


class SessionState:
    """The state of one session.

    ```
              prompt()                      results are in            Compact
     idle ───────────────► running ───────────────► at_boundary ───────────────► compacting
      ▲  ◄─────────────────   ▲  ◄──────────────────────  │  ▲                       │
      │     Stop, abort       └─────── Continue ──────────┘  └──────── any outcome ──┘
      └── compact() of an idle session: idle → compacting → idle;  close(): any → closed
    ```
    """

    def __init__(self) -> None:
        self._value: State = "idle"
        self._closed = False
        self._settled = anyio.Event()
        self._settled.set()

    @property
    def value(self) -> State:
        """The state now. What was going on when the session was closed is told until it has settled."""
        return "closed" if self._closed and self._settled.is_set() else self._value

    def check_open(self) -> None:
        """Raise `SessionClosed` when the session is closed."""
        if self._closed:
            raise SessionClosed

    def claim(self, state: State) -> None:
        """Leave `idle` for something that takes time.

        Raises:
            SessionBusy: something is going on already.
            SessionClosed: the session is closed.
        """
        self.check_open()
        if self._value != "idle":
            raise SessionBusy(self._value)
        self._value = state
        self._settled = anyio.Event()

    @contextmanager
    def within(self, state: State) -> Iterator[None]:
        """Be in `state` for a while, then in the one before."""
        before, self._value = self._value, state
        try:
            yield
        finally:
            self._value = before

    def settle(self) -> None:
        """What was going on is over."""
        self._value = "idle"
        self._settled.set()

    async def settled(self) -> None:
        """Wait until nothing is going on."""
        await self._settled.wait()

    def close(self) -> bool:
        """Accept nothing more from this moment on; False when that was so already."""
        closed, self._closed = self._closed, True
        return not closed
