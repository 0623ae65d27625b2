"""ZeroMQ's wire protocol, ZMTP 3.0 with the NULL mechanism, read under bounds. Pure: bytes in, messages out. Host only.

libzmq reads a message whole, and queues it, before a receiver can say no: its MAXMSGSIZE counts one frame and its
high-water mark counts messages, so a message of sixty frames costs their sum, and a queue of such messages that many
times more. Here a peer's bytes are counted as they come: a message with too many bytes or frames is passed over
without being kept, and the connection goes on behind it.

Format: https://rfc.zeromq.org/spec/23/ (version 3.0; a peer of version 3.1 speaks 3.0 to one that says so).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

GREETING = b"\xff" + bytes(7) + b"\x01\x7f" + bytes((3, 0)) + b"NULL".ljust(20, b"\0") + bytes(32)
"""What each side says first: the signature, the version, the mechanism, and nothing more."""

SUBSCRIBE_ALL = b"\x01"
"""What a SUB sends as its only message."""

MAX_COMMAND_BYTES = 4096
"""A command is a socket's type or a heartbeat."""

_MORE, _LONG, _COMMAND = 1, 2, 4
_LONG_SIZE = struct.Struct(">Q")


class Malformed(Exception):
    """What a peer sent is not ZMTP. The connection cannot be read any further."""


@dataclass(frozen=True)
class Bounds:
    """The most that one message may have."""

    message_bytes: int
    """All frames of it together."""
    frames: int


@dataclass(frozen=True)
class Command:
    """A command of the protocol itself: its name and its data."""

    name: bytes
    data: bytes


@dataclass(frozen=True)
class PassedOver:
    """A message that was over the bounds; nothing of it was kept."""

    frames: int
    size: int


def frame(body: bytes, *, more: bool = False, command: bool = False) -> bytes:
    """One frame, ready to send."""
    flags = (_MORE if more else 0) | (_COMMAND if command else 0)
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return bytes((flags | _LONG,)) + _LONG_SIZE.pack(len(body)) + body


def message(parts: Sequence[bytes]) -> bytes:
    """A message of one or more frames, ready to send."""
    last = len(parts) - 1
    return b"".join(frame(part, more=number < last) for number, part in enumerate(parts))


def ready(socket_type: bytes) -> bytes:
    """The command that ends a handshake."""
    name = b"Socket-Type"
    return frame(
        b"\x05READY" + bytes((len(name),)) + name + len(socket_type).to_bytes(4, "big") + socket_type, command=True
    )


def pong(ping: Command) -> bytes:
    """The answer to a heartbeat: its context without its time to live."""
    return frame(b"\x04PONG" + ping.data[2:18], command=True)


class Reader:
    """Takes one peer's bytes, in whatever pieces they come, and gives its messages one by one.

    It never holds more than a message within the bounds, and the piece that was fed last.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._buffer, self._at = b"", 0
        self._greeted = False
        self._parts: list[bytes] = []
        self._frames = self._size = 0
        self._over = False
        self._flags = self._left = 0
        self._body: bytearray | None = None

    def feed(self, data: bytes) -> None:
        """The next piece. What was fed before must have been taken."""
        self._buffer = self._buffer[self._at :] + data if self._at < len(self._buffer) else data
        self._at = 0

    def take(self) -> list[bytes] | Command | PassedOver | None:
        """The next message, command, or note that a message was over the bounds; None when more bytes are needed.

        Raises:
            Malformed: this is not ZMTP.
        """
        if not self._greeted and not self._greeting():
            return None
        while True:
            part = self._frame()
            if part is None:
                return None
            if self._flags & _COMMAND:
                return _command(part)
            if not self._over:
                self._parts.append(part)
            if not self._flags & _MORE:
                return self._finished()

    def _finished(self) -> list[bytes] | PassedOver:
        parts, over = self._parts, self._over
        note = PassedOver(self._frames, self._size) if over else None
        self._parts, self._over = [], False
        self._frames = self._size = 0
        return parts if note is None else note

    def _greeting(self) -> bool:
        greeting = self._buffer[self._at : self._at + len(GREETING)]
        if greeting[:1] not in (b"", b"\xff") or (len(greeting) > 9 and not greeting[9] & 1):
            raise Malformed("it does not begin as ZMTP does")
        if len(greeting) < len(GREETING):
            return False
        if greeting[10] < 3 or greeting[12:32].rstrip(b"\0") != b"NULL":
            raise Malformed("it speaks another version or wants a mechanism")
        self._at += len(GREETING)
        self._greeted = True
        return True

    def _frame(self) -> bytes | None:
        """The body of the next frame, empty for one that is passed over; None when it is not whole yet."""
        if self._body is None:
            if not self._header():
                return None
            end = self._at + self._left
            if end <= len(self._buffer):  # nearly always: the frame is here whole, and copied once
                part = b"" if self._over else self._buffer[self._at : end]
                self._at, self._left = end, 0
                return part
            self._body = bytearray()
        piece = self._buffer[self._at : self._at + self._left]
        self._at += len(piece)
        self._left -= len(piece)
        if not self._over:
            self._body += piece
        if self._left:
            return None
        part, self._body = bytes(self._body), None
        return part

    def _header(self) -> bool:
        """Read the next frame's flags and size, when they are here, and count it."""
        buffer, at = self._buffer, self._at
        have = len(buffer) - at
        if have < 2:
            return False
        flags = buffer[at]
        if flags > 7 or (flags & _COMMAND and flags & _MORE):
            raise Malformed("a frame has flags that do not exist")
        if flags & _LONG:
            if have < 9:
                return False
            (size,) = _LONG_SIZE.unpack_from(buffer, at + 1)
            self._at = at + 9
        else:
            size = buffer[at + 1]
            self._at = at + 2
        self._flags, self._left = flags, size
        if flags & _COMMAND:
            if size > MAX_COMMAND_BYTES or self._over or self._parts:
                raise Malformed("a command is too long, or stands within a message")
            return True
        self._frames += 1
        self._size += size
        if self._size > self._bounds.message_bytes or self._frames > self._bounds.frames:
            self._over = True
            self._parts.clear()
        return True


def _command(body: bytes) -> Command:
    length = body[0] if body else 0
    if not 0 < length < len(body) + 1:
        raise Malformed("a command has no name")
    return Command(body[1 : 1 + length], body[1 + length :])
