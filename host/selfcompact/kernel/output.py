"""What a cell shows, cut while it is received: the beginning and the end, text without colours, a few images."""

from __future__ import annotations

import base64
import binascii
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

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

_MAGIC: Mapping[str, bytes] = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}


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


def image_of(data: Mapping[str, Any], max_bytes: int) -> tuple[ImageContent | None, str]:
    """The image in a bundle of display data, and a note when there is one that is not kept."""
    for mime_type, magic in _MAGIC.items():
        encoded = data.get(mime_type)
        if not isinstance(encoded, str):
            continue
        if len(encoded) * 3 // 4 > max_bytes + 4096:
            return None, f"[{mime_type} of about {len(encoded) * 3 // 4:,} bytes left out: over {max_bytes:,}]"
        try:
            raw = base64.b64decode("".join(encoded.split()), validate=True)
        except (binascii.Error, ValueError):
            return None, f"[{mime_type} left out: it is not base64]"
        if not raw.startswith(magic):
            return None, f"[{mime_type} left out: it is not such an image]"
        if len(raw) > max_bytes:
            return None, f"[{mime_type} of {len(raw):,} bytes left out: over {max_bytes:,}]"
        return ImageContent(data=base64.b64encode(raw).decode(), mime_type=mime_type), ""
    return None, ""
