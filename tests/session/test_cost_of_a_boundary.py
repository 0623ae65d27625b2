"""What a boundary and a status cost: counted in lines of Python that are executed, so that no clock decides."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import selfcompact as sc
from selfcompact.messages import Usage
from selfcompact.settings.compaction import CompactionSettings
from tests.log.test_reading import say, write
from tests.session.memory_kernel import SUMMARY, memory_session

OURS = str(Path(sc.__file__).parent)
OF_A_REQUEST = ("history.py", "messages.py", "entries.py")
"""Building a request's messages is linear in what is sent, and has to be."""


def lines_of(call: Callable[[], object]) -> int:
    """Lines of the product's own code that a call executes, request building left out."""
    return _Counter().around(call)


class _Counter:
    def __init__(self) -> None:
        self.lines = 0

    def around(self, call: Callable[[], object]) -> int:
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            call()
        finally:
            sys.settrace(before)
        return self.lines

    def trace(self, frame: FrameType, kind: str, _argument: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if not name.startswith(OURS) or name.endswith(OF_A_REQUEST):
            return None
        if kind == "line":
            self.lines += 1
        return self.trace


async def work_of(path: Path, entries: int) -> tuple[int, int]:
    """Lines for a `status()`, and for a run of three turns, in a session with so many entries and no compaction."""
    write(path, [say(n, f"e{n - 1}" if n else None, f"message {n}") for n in range(entries)])
    compaction = CompactionSettings(keep_recent_tokens=500, max_compactions=5, background=False)
    told = Usage(input=50_000, output=10)  # said by the script, so that it does not count what it was sent
    steps = [sc.cell("status", usage=told), sc.cell("status", usage=told), sc.say("ok", usage=told)]
    model = sc.ScriptedModel(steps, context_window=2_000_000)
    async with memory_session(path, model, summaries=itertools.repeat(SUMMARY), compaction=compaction) as session:
        status = lines_of(session.status)
        assert session.status().would_compact
        counter = _Counter()
        sys.settrace(counter.trace)
        try:
            result = await session.prompt("go")
        finally:
            sys.settrace(None)
    assert (result.status, result.turns) == ("done", 3)
    return status, counter.lines


async def test_status_and_boundaries_do_no_more_work_in_a_session_that_was_never_compacted(tmp_path: Path) -> None:
    """Nothing at a boundary walks the live path, however long it is. A search by halving may take a step
    or two more."""
    small_status, small_run = await work_of(tmp_path / "small.jsonl", 200)
    large_status, large_run = await work_of(tmp_path / "large.jsonl", 6_000)
    assert large_status <= small_status + 20
    assert large_run <= small_run + 200
