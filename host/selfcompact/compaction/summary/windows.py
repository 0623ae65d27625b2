"""A conversation cut into windows that each fit into one request for a summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selfcompact.text.clip import clip_tokens

SEPARATOR = "\n\n"
"""Between the messages of a window."""


def windows(items: Sequence[str], limit_tokens: int, tokens: Callable[[str], int]) -> tuple[tuple[str, ...], ...]:
    """The items in as few groups as fit into `limit_tokens` each, in order, cut between items.

    Every item is in exactly one group; one that does not fit by itself is cut. `tokens` counts a text; the sum
    over a group, with one token for each separator, respects the limit.
    """
    groups: list[tuple[str, ...]] = []
    current: list[str] = []
    used = 0
    for item in items:
        text = clip_tokens(item, limit_tokens - 1, tokens)
        cost = tokens(text) + 1
        if current and used + cost > limit_tokens:
            groups.append(tuple(current))
            current, used = [], 0
        current.append(text)
        used += cost
    if current:
        groups.append(tuple(current))
    return tuple(groups)
