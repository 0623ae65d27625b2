"""How long a turn boundary waits for a summary: written at the boundary, and begun when it was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

from benchmarks.engine import entries
from selfcompact.compaction.background import Background, Prepared
from selfcompact.compaction.ledger import Ledger
from selfcompact.compaction.request import SummaryRequest
from selfcompact.compaction.settings import CompactionSettings
from selfcompact.compaction.summarisers import SummaryReply

SUMMARISER_S, CELL_S = 2.0, 3.0
"""A summariser of this speed, and a cell that runs this long after it asked."""

SUMMARY = (
    "## Goal\nLook at every module.\n\n## Progress\n### Done\n- [x] Looked at the first ones, and found no problems in "
    "any of them.\n\n## Next Steps\n1. Look at the next module, then at those after it; write the report at the end."
)
PREFIX = "## Original Request\nLook on.\n\n## Early Progress\n- Looked at some.\n\n## Context for Suffix\n- None."


class _Slow:
    """A summariser that takes its time."""

    name, context_window, max_output_tokens, drops_thinking = "slow", None, None, False

    async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
        await anyio.sleep(SUMMARISER_S)
        text = PREFIX if "beginning of a turn" in request.prompt else SUMMARY
        if on_text is not None:
            on_text(len(text))
        return SummaryReply(text)


async def _boundary(ahead: bool) -> Prepared:
    settings = CompactionSettings(background=ahead)
    ledger = Ledger(entries(1_000))
    background = Background(_Slow(), settings, window=200_000)
    async with anyio.create_task_group() as group:
        background.start(group, ledger)
        await anyio.sleep(CELL_S)
        for entry in entries(1, start=1_000):
            ledger.append(entry)
        found = await background.finish(ledger)
    assert isinstance(found, Prepared)
    return found


def main() -> None:
    """Print both waits."""
    print(f"A summariser that takes {SUMMARISER_S:g} s, a cell that runs {CELL_S:g} s after the request:\n")
    for ahead in (False, True):
        began = time.monotonic()
        found = anyio.run(_boundary, ahead)
        took, waited = time.monotonic() - began, found.waited_s * 1e3
        print(f"background {'on ' if ahead else 'off'}: the boundary waits {waited:7,.1f} ms ({took:.1f} s in all)")
