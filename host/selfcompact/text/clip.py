"""The beginning and the end of what is too long, round a note that says how much is missing.

Both ends matter: a text says at its beginning what it is, and at its end what came of it. So two thirds of the room go
to the beginning.
"""

from __future__ import annotations

from collections.abc import Callable

HEAD_SHARE = 2 / 3
"""Of what is kept, for the beginning."""


def clip(text: str, limit_chars: int, *, where: str = "") -> str:
    """The text whole when it has at most `limit_chars` characters, else both ends of it with that many together.

    The note about what is missing comes on top of the limit. `where` says in it how the whole can be had.
    """
    if len(text) <= limit_chars:
        return text
    head = max(0, int(limit_chars * HEAD_SHARE))
    tail = max(1, limit_chars - head)
    pointer = f"; {where}" if where else ""
    note = f"[… {len(text) - head - tail:,} characters left out{pointer} …]"
    return f"{text[:head]}\n{note}\n{text[-tail:]}"


def clip_tokens(text: str, limit_tokens: int, tokens: Callable[[str], int], *, where: str = "") -> str:
    """The same within a number of tokens, the note included. Empty when not even the note fits."""
    count = tokens(text)
    if count <= limit_tokens:
        return text
    chars = int(len(text) * max(0, limit_tokens) / count)
    while chars > 0:
        clipped = clip(text, chars, where=where)
        if tokens(clipped) <= limit_tokens:
            return clipped
        chars = int(chars * 0.85) - 8
    return ""
