"""One cell while it runs: what it has shown so far, and whether it is over. No I/O.

The kernel's channels feed it on the event loop; the task that runs the cell waits on its events.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import anyio

from agent_kernel import OMITTED_KEY
from selfcompact.kernel.output import TextCapture, image_of, plain
from selfcompact.kernel.result import CellResult, CellStatus
from selfcompact.kernel.wire import Message
from selfcompact.messages import ImageContent
from selfcompact.settings.kernel import KernelSettings

log = logging.getLogger(__name__)

OnOutput = Callable[[str], None]

_TICK_S = 0.01
"""Start times of processes are counted in hundredths of a second, cut off."""

_MAX_ERROR_VALUE = 2000


class Cell:
    """What one cell has shown, and how far it is.

    `over` is set when its reply came or its kernel died, `wake` also when somebody asked to stop it, `idle` when
    the last of its output has come.
    """

    def __init__(self, settings: KernelSettings, on_output: OnOutput | None) -> None:
        self.over, self.wake, self.idle = anyio.Event(), anyio.Event(), anyio.Event()
        self.reply: dict[str, Any] | None = None
        self.asked_to_stop = self.lost = False
        self.messages = 0
        self._settings, self._on_output = settings, on_output
        self._capture = TextCapture(settings.output_head_bytes, settings.output_tail_bytes)
        self._images: list[ImageContent] = []
        self._images_left_out = 0
        self._error: dict[str, Any] | None = None
        self._clear_next = False
        self._started = time.monotonic()
        self.started_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - _TICK_S

    def take_reply(self, message: Message) -> None:
        """The kernel's reply to the request that this cell is."""
        self.reply = message.content
        self.end()

    def end(self) -> None:
        """Nothing more is to be waited for: the reply came, or the kernel died."""
        self.over.set()
        self.wake.set()

    def stop(self) -> None:
        """Ask for this cell to be interrupted."""
        self.asked_to_stop = True
        self.wake.set()

    def take_output(self, message: Message) -> None:
        """A message on IOPub that belongs to this cell."""
        self.messages += 1
        match message.type:
            case "stream":
                self._show(str(message.content.get("text", "")))
            case "execute_result" | "display_data" | "update_display_data":
                self._display(message.content.get("data"))
            case "error":
                self._error = message.content
            case "clear_output":
                self._clear_next = bool(message.content.get("wait"))
                if not self._clear_next:
                    self._capture.clear()
            case "status":
                if message.content.get("execution_state") == "idle":
                    self.idle.set()

    def result(self, status: CellStatus, *, generation: int, note: str | None = None, late: str = "") -> CellResult:
        """The value that this cell is now."""
        reply = self.reply or {}
        error = reply if reply.get("status") == "error" else self._error or {}
        name = plain(str(error.get("ename", "")))[:200] or None
        value = plain(str(error.get("evalue", "")))[:_MAX_ERROR_VALUE] or None
        said = reply.get(OMITTED_KEY)
        self._capture.omitted_bytes += said if isinstance(said, int) and said > 0 else 0
        count = reply.get("execution_count")
        pieces = [f"[printed by earlier cells, after they had ended]\n{late}\n[this cell]" if late else ""]
        pieces += [self._capture.text(), self._traceback(error)]
        if self._images_left_out:
            pieces.append(f"[{self._images_left_out} more images left out]")
        return CellResult(
            status=status,
            text="\n".join(piece.rstrip("\n") for piece in pieces if piece.strip("\n")),
            images=tuple(self._images),
            execution_count=count if isinstance(count, int) and not isinstance(count, bool) else None,
            omitted_bytes=self._capture.total_omitted,
            duration_s=time.monotonic() - self._started,
            generation=generation,
            note=note,
            error_name=name,
            error_value=value,
        )

    def _traceback(self, error: dict[str, Any]) -> str:
        lines = error.get("traceback")
        if not isinstance(lines, list) or not lines:
            return ""
        capture = TextCapture(self._settings.output_head_bytes // 2, self._settings.output_tail_bytes // 2)
        capture.feed("\n".join(str(line) for line in lines))
        return capture.text()

    def _show(self, text: str) -> None:
        if self._clear_next:
            self._clear_next = False
            self._capture.clear()
        shown = self._capture.feed(text)
        if self._on_output is not None and shown:
            try:
                self._on_output(shown)
            except Exception:
                log.exception("the output callback failed; it is not called again for this cell")
                self._on_output = None

    def _display(self, data: object) -> None:
        if not isinstance(data, dict):
            return
        text = data.get("text/plain")
        if isinstance(text, str):
            self._show(text if text.endswith("\n") else text + "\n")
        image, note = image_of(data, self._settings.image_bytes)
        if image is not None and len(self._images) < self._settings.images_per_cell:
            self._images.append(image)
        elif image is not None:
            self._images_left_out += 1
        elif note:
            self._show(note + "\n")
