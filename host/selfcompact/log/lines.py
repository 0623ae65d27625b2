"""A session file as bytes: lines forward, lines backward, one record as one line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from selfcompact.codec import Json, Record
from selfcompact.private_files import open_regular

BLOCK = 256 * 1024
"""Bytes of one read: a few hundred records, so that opening a session needs few reads and little memory."""


def encode_json(data: Json) -> bytes:
    """One JSON object as one line of UTF-8.

    Unpaired surrogates have no UTF-8 form; an object that holds some is written in ASCII with escapes, which every
    JSON reader turns back into the same text.
    """
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def encode_line(record: Record) -> bytes:
    """One record as one line."""
    return encode_json(record.to_json())


def lines_forward(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes (without newline) of each line that is not blank, from a line's offset on."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        file.seek(start)
        offset = start
        for line in file:
            if line.strip():
                yield offset, line.rstrip(b"\r\n")
            offset += len(line)


def lines_backward(descriptor: int, end: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes (without newline) of each line that is not blank, last line first.

    Reads block by block from the end; what is not asked for is not read.
    """
    position = os.fstat(descriptor).st_size if end is None else end
    pieces: list[bytes] = []  # of the line whose beginning was not met yet, last piece first
    while position > 0:
        start = max(0, position - BLOCK)
        block = os.pread(descriptor, position - start, start)
        stop = len(block)
        while (newline := block.rfind(b"\n", 0, stop)) >= 0:
            line = block[newline + 1 : stop] + b"".join(reversed(pieces))
            pieces = []
            if line.strip():
                yield start + newline + 1, line.rstrip(b"\r")
            stop = newline
        if stop:
            pieces.append(block[:stop])
        position = start
    line = b"".join(reversed(pieces))
    if line.strip():
        yield 0, line.rstrip(b"\r")


def line_number(path: Path, offset: int) -> int:
    """The number, from 1, of the line that begins at an offset. Reads everything before it."""
    count, position = 1, 0
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        while position < offset:
            block = file.read(min(BLOCK, offset - position))
            if not block:
                break
            count += block.count(b"\n")
            position += len(block)
    return count


def torn_tail(descriptor: int) -> bytes:
    """The bytes after the last newline: empty, or a record whose write did not end."""
    size = os.fstat(descriptor).st_size
    pieces: list[bytes] = []
    position = size
    while position > 0:
        start = max(0, position - BLOCK)
        block = os.pread(descriptor, position - start, start)
        newline = block.rfind(b"\n")
        pieces.append(block[newline + 1 :])
        if newline >= 0:
            break
        position = start
    return b"".join(reversed(pieces))
