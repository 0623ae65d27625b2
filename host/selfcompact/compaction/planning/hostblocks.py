"""Parts of a stored summary that the host wrote, set apart from what the summariser wrote.

The record of a compaction must carry everything that the next context begins with, so the host's parts stand in the
same text: literals that were asked to be kept, the newest user message, the state of the kernel. Each block tells its
length, so that its end is where the host put it, whatever the content says; the summariser's own text has its markers
disarmed, so that the first marker in a stored text is the host's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from selfcompact.text.inert import without_host_markers

KEPT = "kept verbatim"
USER_MESSAGE = "newest user message"
KERNEL = "kernel state"

_OPEN = re.compile(r"^\[host block: (?P<name>[a-z -]+), (?P<length>\d+) characters\]\n", re.MULTILINE)
_CLOSE = "\n[end of host block]"


@dataclass(frozen=True)
class HostBlock:
    """One part that the host wrote. `text` is kept character for character."""

    name: str
    text: str


def join(summary: str, blocks: Iterable[HostBlock]) -> str:
    """One text: the summary with its markers disarmed, then the blocks that have any text."""
    parts = [without_host_markers(summary).strip()]
    parts.extend(
        f"[host block: {block.name}, {len(block.text)} characters]\n{block.text}{_CLOSE}"
        for block in blocks
        if block.text.strip()
    )
    return "\n\n".join(parts)


def split(stored: str) -> tuple[str, tuple[HostBlock, ...]]:
    """The summariser's part and the blocks of a stored text.

    A block whose length does not fit (another program edited the text) is left out from there on.
    """
    first = _OPEN.search(stored)
    if first is None:
        return stored.strip(), ()
    blocks: list[HostBlock] = []
    match: re.Match[str] | None = first
    while match is not None:
        end = match.end() + int(match["length"])
        if not stored.startswith(_CLOSE, end):
            break
        blocks.append(HostBlock(match["name"], stored[match.end() : end]))
        match = _next(stored, end + len(_CLOSE))
    return stored[: first.start()].strip(), tuple(blocks)


def _next(stored: str, position: int) -> re.Match[str] | None:
    while stored.startswith("\n", position):
        position += 1
    return _OPEN.match(stored, position)
