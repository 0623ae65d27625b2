"""What a cell shows, cut while it is received: the beginning and the end, text without colours, a few images."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from selfcompact.kernel.content import Bundle, text_of
from selfcompact.kernel.images import checked_image
from selfcompact.messages import ImageContent

_ESCAPE = re.compile(
    r"""(?x)
    \x1b (?: \[ [0-?]* [ -/]* [@-~]              # colours, cursor movements
           | \] [^\x07\x1b]* (?: \x07 | \x1b\\ )  # titles, links
           | [PX^_] [^\x1b]* \x1b\\               # device strings
           | [ -/]* [0-OQ-WYZ\\`-~] )               # the rest: one letter, after marks
    """
)
_OPEN_ESCAPE = re.compile(r"\x1b[^\x1b]{0,63}\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

MAX_DISPLAY_CHARS = 512 * 1024
"""Of the text form of one display; more would only be cut later, at a price."""


def plain(text: str) -> str:
    """The text without colours, cursor movements and other control characters; newlines and tabs stay."""
    return _CONTROL.sub("", _ESCAPE.sub("", text).replace("\r\n", "\n"))


class TextCapture:
    """Keeps the first `head_bytes` and the last `tail_bytes` of a text, in memory that does not grow with it.

    Sizes are of the text as UTF-8, without its colours.
    """

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_left, self._tail_bytes = head_bytes, tail_bytes
        self._head: list[str] = []
        self._tail: deque[tuple[str, int]] = deque()
        self._tail_size = 0
        self._carry = ""
        self.omitted_bytes = 0

    def feed(self, text: str) -> str:
        """Take the next piece; return it without its colours. A colour code may be split between two pieces."""
        text = self._carry + text
        match = _OPEN_ESCAPE.search(text)
        cut = match.start() if match and not _ESCAPE.match(text, match.start()) else len(text)
        self._carry = text[cut:]
        text = plain(text[:cut])
        self._keep(text)
        return text

    def text(self) -> str:
        """Head and tail with the number of bytes left out between them. Lines that were overwritten show their end."""
        head, tail = "".join(self._head), "".join(text for text, _ in self._tail)
        over = len(tail.encode("utf-8", "replace")) - self._tail_bytes
        omitted = self.omitted_bytes
        if over > 0:
            tail = tail.encode("utf-8", "replace")[over:].decode("utf-8", "ignore")
            omitted += over
        if omitted:
            return f"{_settled(head)}\n[… {omitted:,} bytes left out …]\n{_settled(tail)}"
        return _settled(head + tail)

    @property
    def total_omitted(self) -> int:
        """Bytes that `text` does not show."""
        return self.omitted_bytes + max(0, self._tail_size - self._tail_bytes)

    def clear(self) -> None:
        """Forget what was shown so far, as `clear_output` asks."""
        kept = sum(len(part.encode("utf-8", "replace")) for part in self._head)
        self._head_left += kept
        self._head.clear()
        self._tail.clear()
        self._tail_size = self.omitted_bytes = 0

    def _keep(self, text: str) -> None:
        if self._head_left > 0 and text:
            data = text.encode("utf-8", "replace")
            if len(data) <= self._head_left:
                self._head.append(text)
                self._head_left -= len(data)
                return
            first = data[: self._head_left].decode("utf-8", "ignore")
            self._head.append(first)
            self._head_left = 0
            text = text[len(first) :]
        if not text:
            return
        size = len(text.encode("utf-8", "replace"))
        if size > self._tail_bytes:
            self.omitted_bytes += self._tail_size
            self._tail.clear()
            self._tail_size = 0
            kept = text.encode("utf-8", "replace")[-self._tail_bytes :].decode("utf-8", "ignore")
            self.omitted_bytes += size - len(kept.encode())
            text, size = kept, len(kept.encode())
        self._tail.append((text, size))
        self._tail_size += size
        while self._tail_size - self._tail[0][1] >= self._tail_bytes:
            _, gone = self._tail.popleft()
            self._tail_size -= gone
            self.omitted_bytes += gone


def _settled(text: str) -> str:
    """Lines as a terminal would show them in the end: what a carriage return overwrote is gone."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))


@dataclass(frozen=True, slots=True)
class Shown:
    """What is kept of something displayed: its text, its image when it was to be kept, and a note for one that is not.

    `image_over` says that there is an image which nobody looked at, because enough of them are kept.
    """

    text: str = ""
    image: ImageContent | None = None
    note: str = ""
    image_over: bool = False


def has_image(bundle: Bundle) -> bool:
    """Whether one of its forms is an image of a kind that is kept."""
    return bool(bytes(bundle.png) or bytes(bundle.jpeg))


def shown(bundle: Bundle, image_bytes: int | None) -> Shown:
    """Choose what is kept of the forms of a display. None as `image_bytes`: no image. Blocks while one is decoded."""
    text = text_of(bundle.plain) or ""
    if len(text) > MAX_DISPLAY_CHARS:
        half = MAX_DISPLAY_CHARS // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"
    for mime_type, raw in (("image/png", bundle.png), ("image/jpeg", bundle.jpeg)):
        if not bytes(raw):
            continue
        if image_bytes is None:
            return Shown(text, image_over=True)
        encoded = text_of(raw)
        if encoded is not None:
            image, note = checked_image(mime_type, encoded, image_bytes)
            return Shown(text, image, note)
    return Shown(text)
