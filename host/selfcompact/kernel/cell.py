"""One cell while it runs: what it has shown so far, and whether it is over. No I/O.

The kernel's channels feed it on the event loop; the task that runs the cell waits on its events.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import anyio

from selfcompact.kernel.content import ClearOutput, Content, ExecuteReply, Failure, Status, Stream
from selfcompact.kernel.output import Shown, TextCapture, plain
from selfcompact.kernel.result import CellResult, CellStatus
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
        self.reply: ExecuteReply | None = None
        self.asked_to_stop = self.lost = False
        self.messages = 0
        self._settings, self._on_output = settings, on_output
        self._capture = TextCapture(settings.output_head_bytes, settings.output_tail_bytes)
        self._images: list[ImageContent] = []
        self._images_left_out = 0
        self._error: Failure | None = None
        self._clear_next = False
        self._started = time.monotonic()
        self.started_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - _TICK_S

    def take_reply(self, reply: ExecuteReply) -> None:
        """The kernel's reply to the request that this cell is."""
        self.reply = reply
        self.end()

    def end(self) -> None:
        """Nothing more is to be waited for: the reply came, or the kernel died."""
        self.over.set()
        self.wake.set()

    def stop(self) -> None:
        """Ask for this cell to be interrupted."""
        self.asked_to_stop = True
        self.wake.set()

    @property
    def wants_images(self) -> bool:
        """Whether a further image would be kept."""
        return len(self._images) < self._settings.images_per_cell

    def take_output(self, content: Content | Shown | None) -> None:
        """What the kernel said on IOPub for this cell; None for what was said and cannot be read."""
        self.messages += 1
        match content:
            case Stream():
                self._show(content.text)
            case Shown():
                self._display(content)
            case Failure():
                self._error = content
            case ClearOutput():
                self._clear_next = content.wait
                if not self._clear_next:
                    self._capture.clear()
            case Status(execution_state="idle"):
                self.idle.set()

    def result(self, status: CellStatus, *, generation: int, note: str | None = None, late: str = "") -> CellResult:
        """The value that this cell is now."""
        reply = self.reply or ExecuteReply()
        error = reply if reply.status == "error" else self._error or Failure()
        name = plain(error.ename)[:200] or None
        value = plain(error.evalue)[:_MAX_ERROR_VALUE] or None
        self._capture.omitted_bytes += reply.omitted
        pieces = [f"[printed by earlier cells, after they had ended]\n{late}\n[this cell]" if late else ""]
        pieces += [self._capture.text(), self._traceback(error)]
        if self._images_left_out:
            pieces.append(f"[{self._images_left_out} more images left out]")
        return CellResult(
            status=status,
            text="\n".join(piece.rstrip("\n") for piece in pieces if piece.strip("\n")),
            images=tuple(self._images),
            execution_count=reply.execution_count,
            omitted_bytes=self._capture.total_omitted,
            duration_s=time.monotonic() - self._started,
            generation=generation,
            note=note,
            error_name=name,
            error_value=value,
        )

    def _traceback(self, error: ExecuteReply | Failure) -> str:
        if not error.traceback:
            return ""
        capture = TextCapture(self._settings.output_head_bytes // 2, self._settings.output_tail_bytes // 2)
        capture.feed("\n".join(error.traceback))
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

    def _display(self, shown: Shown) -> None:
        if shown.text:
            self._show(shown.text if shown.text.endswith("\n") else shown.text + "\n")
        if shown.image is not None and self.wants_images:
            self._images.append(shown.image)
        elif shown.image is not None or shown.image_over:
            self._images_left_out += 1
        elif shown.note:
            self._show(shown.note + "\n")
