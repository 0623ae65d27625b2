"""Standard output and error that send the beginning and the end of what a cell prints.

IOPub is a PUB socket: it keeps everything in memory and drops whole messages when the reader is slower than the cell.
A cell that prints a gigabyte would cost the kernel, the transport and the host that much each. So the middle is left
out here, at the source. While a cell prints more than it may, the newest part is sent about once a second, so that a
cell which is killed later has shown where it was. Python 3.9; ipykernel 6.29 and newer.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict, deque
from typing import Any

from ipykernel.iostream import OutStream

HEAD_CHARS = int(os.environ.get("HOST_BRIDGE_OUTPUT_HEAD", "") or 64 * 1024)
TAIL_CHARS = int(os.environ.get("HOST_BRIDGE_OUTPUT_TAIL", "") or 32 * 1024)
RELEASE_S = 1.0
"""How often the newest part is sent when a cell is over its head."""

_KEPT_CELLS = 16
"""Cells whose threads may still print; older ones start with a new head."""


_HEADER = "host_bridge_header"


def remember_threads() -> None:
    """Let each new thread keep the header of the cell that starts it, so that what it prints later is told apart.

    Threads of a pool are left out: they work for whichever cell gives them work.
    """
    start = threading.Thread.start

    def start_with_header(thread: threading.Thread) -> None:
        target = getattr(thread, "_target", None)
        if isinstance(sys.stdout, CappedStream) and getattr(target, "__module__", "") != "concurrent.futures.thread":
            setattr(thread, _HEADER, sys.stdout.parent_header)
        start(thread)

    threading.Thread.start = start_with_header  # type: ignore[assignment]  # there is no hook for this


class _Budget:
    """What one cell printed on one stream, as far as it was not sent."""

    def __init__(self, header: dict[str, Any]) -> None:
        self.header = header
        self.head_left = HEAD_CHARS
        self.tail: deque[str] = deque()
        self.tail_chars = 0
        self.omitted = 0

    def take(self, text: str) -> str:
        """The part that is sent now; the rest is kept as the tail, whose beginning is forgotten."""
        now, rest = text[: self.head_left], text[self.head_left :]
        self.head_left -= len(now)
        if rest:
            self.omitted += max(0, len(rest) - TAIL_CHARS)
            rest = rest[-TAIL_CHARS:]
            self.tail.append(rest)
            self.tail_chars += len(rest)
            while self.tail_chars - len(self.tail[0]) >= TAIL_CHARS:
                self.omitted += len(self.tail[0])
                self.tail_chars -= len(self.tail.popleft())
        return now

    def release(self) -> str:
        """The tail, which is then sent and forgotten."""
        text = "".join(self.tail)
        over = max(0, len(text) - TAIL_CHARS)
        self.omitted += over
        self.tail.clear()
        self.tail_chars = 0
        return text[over:]


class CappedStream(OutStream):
    """An `OutStream` with a budget for each cell. Any thread may write; a forked child sends only its head."""

    _last_written: CappedStream | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()
        self._budget_lock = threading.RLock()
        self._release_pending = False
        super().__init__(*args, **kwargs)

    @property
    def parent_header(self) -> dict[str, Any]:
        """The header of the cell that this thread or task belongs to: that of the cell which started it."""
        try:
            header: dict[str, Any] = self._parent_header.get()
        except LookupError:
            header = getattr(threading.current_thread(), _HEADER, None) or self._parent_header_global
        return header

    @parent_header.setter
    def parent_header(self, header: dict[str, Any]) -> None:
        self._parent_header_global = header
        self._parent_header.set(header)

    def write(self, string: str) -> int:
        """Write, within the budget of the cell that this thread belongs to, after what the other stream has."""
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string)}")
        self._keep_order()
        with self._budget_lock:
            now = self._budget().take(string)
        if now:
            super().write(now)
        if len(now) < len(string) and self._is_master_process():
            self._schedule_release()
        return len(string)

    def release(self) -> None:
        """Send what is kept of this cell's output now, because something else follows it: a value, a traceback."""
        with self._budget_lock:
            budget = self._budget()
            text = budget.release()
        if text and self.pub_thread is not None:
            header = budget.header
            self.pub_thread.schedule(lambda: self._send_now(header, text))

    def end_cell(self) -> int:
        """Send what is kept for the cell that ends, and return how many characters of it were left out."""
        self.release()
        with self._budget_lock:
            budget = self._budget()
            omitted, budget.omitted = budget.omitted, 0
        return omitted

    def _keep_order(self) -> None:
        """Let the other stream's text go first. Each is sent about five times a second, one after the other."""
        other, CappedStream._last_written = CappedStream._last_written, self
        if other is not None and other is not self and not other.closed and self._is_master_process():
            other.flush()

    def _budget(self) -> _Budget:
        header = self.parent_header
        cell = str(header.get("msg_id", ""))
        budget = self._budgets.get(cell)
        if budget is None:
            budget = self._budgets[cell] = _Budget(header)
            while len(self._budgets) > _KEPT_CELLS:
                self._budgets.popitem(last=False)
        return budget

    def _schedule_release(self) -> None:
        if not self._release_pending and self.pub_thread is not None:
            self._release_pending = True
            self.pub_thread.schedule(lambda: self._io_loop.call_later(RELEASE_S, self._release_all))

    def _release_all(self) -> None:
        self._release_pending = False
        with self._budget_lock:
            kept = [(budget.header, budget.release()) for budget in self._budgets.values()]
        for header, text in kept:
            if text:
                self._send_now(header, text)

    def _send_now(self, header: dict[str, Any], text: str) -> None:
        """On the IO thread: what is buffered first, so that the order stays."""
        if self.closed:
            return
        self._flush()
        self.session.send(self.pub_thread, "stream", {"name": self.name, "text": text}, parent=header, ident=self.topic)
