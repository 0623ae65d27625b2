"""A conversation cut into windows that each fit into one request for a summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

SEPARATOR = "\n\n"
"""Between the messages of a window."""


def windows(items: Sequence[str], limit_tokens: int, tokens: Callable[[str], int]) -> tuple[tuple[str, ...], ...]:
    """The items in as few groups as fit into `limit_tokens` each, in order, cut between items.

    Every item is in exactly one group; one that does not fit by itself is clamped. `tokens` counts a text; the sum
    over a group, with one token for each separator, respects the limit.
    """
    groups: list[tuple[str, ...]] = []
    current: list[str] = []
    used = 0
    for item in items:
        text = clamp(item, limit_tokens - 1, tokens)
        cost = tokens(text) + 1
        if current and used + cost > limit_tokens:
            groups.append(tuple(current))
            current, used = [], 0
        current.append(text)
        used += cost
    if current:
        groups.append(tuple(current))
    return tuple(groups)


def clamp(text: str, limit_tokens: int, tokens: Callable[[str], int]) -> str:
    """The text's beginning and end with the number of characters left out, at most `limit_tokens`.

    Empty when not even the note about it fits.
    """
    count = tokens(text)
    if count <= limit_tokens:
        return text
    chars = int(len(text) * max(0, limit_tokens) / count)
    while chars > 0:
        head = chars * 2 // 3
        tail = chars - head
        clamped = f"{text[:head]}\n[… {len(text) - chars:,} characters left out …]\n{text[len(text) - tail :]}"
        if tokens(clamped) <= limit_tokens:
            return clamped
        chars = int(chars * 0.85) - 8
    return ""
