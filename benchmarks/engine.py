"""The engine: what planning, status and history building cost as a session grows, and how far the estimate is off."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks.corpus import corpus
from benchmarks.tokeniser import o200k
from selfcompact.compaction.commit import compaction_entry
from selfcompact.compaction.ledger import Ledger
from selfcompact.compaction.plan import Plan, plan
from selfcompact.compaction.settings import CompactionSettings
from selfcompact.compaction.summarise import Summary
from selfcompact.compaction.tokens import CharsEstimator, ScriptAwareEstimator
from selfcompact.entries import Entry, MessageEntry
from selfcompact.messages import AssistantMessage, Message, TextContent, ToolCall, ToolResultMessage, UserMessage
from selfcompact.session.history import build_history

SIZES = (1_000, 10_000, 100_000, 300_000)
"""Entries in the session."""

LIVE = 1_000
"""Entries of the live context in a session that compacts as it should."""

WINDOW = 200_000
SETTINGS = CompactionSettings()
REPEATS = 30


def entries(count: int, *, start: int = 0) -> list[Entry]:
    """Entries of a session of tool rounds with a user message now and then."""
    made: list[Entry] = []
    for number in range(start, start + count):
        message: Message
        if number % 40 == 0:
            message = UserMessage(
                content=(TextContent(text=f"Request {number}: look at the next module."),), timestamp=number
            )
        elif number % 2:
            call = ToolCall(
                id=f"call_{number}", name="ipython", arguments={"code": f"print(load('module_{number}.py'))"}
            )
            message = AssistantMessage(
                content=(TextContent(text=f"Step {number}."), call), stop_reason="toolUse", timestamp=number
            )
        else:
            text = f"module_{number}.py has {number} lines and no problems\n" * 8
            message = ToolResultMessage(
                tool_call_id=f"call_{number - 1}",
                tool_name="ipython",
                content=(TextContent(text=text),),
                timestamp=number,
            )
        made.append(MessageEntry(id=f"{number:08x}", parent_id=None, timestamp="", message=message))
    return made


def main() -> None:
    """Print both tables."""
    print("One live context of this many entries, never compacted (the worst case):\n")
    print(f"{'entries':>9} {'append all':>11} {'append one':>11} {'status':>9} {'plan':>9} {'history':>10}")
    for size in SIZES:
        log = entries(size)
        began = time.perf_counter()
        ledger = Ledger(log)
        total = time.perf_counter() - began
        print(_row(size, ledger, total))
    print(f"\nA session of this many entries that compacted whenever {LIVE:,} had come together:\n")
    print(f"{'entries':>9} {'append all':>11} {'append one':>11} {'status':>9} {'plan':>9} {'history':>10}")
    for size in SIZES:
        began = time.perf_counter()
        ledger = _compacted(size)
        print(_row(size, ledger, time.perf_counter() - began))
    _estimates()


def _compacted(size: int) -> Ledger:
    ledger = Ledger()
    for number, entry in enumerate(entries(size), 1):
        ledger.append(entry)
        if number % LIVE == 0 and number < size:
            planned = plan(ledger, SETTINGS, WINDOW)
            assert isinstance(planned, Plan)
            ledger.append(compaction_entry(planned, Summary("## Goal\nGo on.", "none"), parent_id=entry.id))
    return ledger


def _row(size: int, ledger: Ledger, total: float) -> str:
    extra = iter(entries(REPEATS, start=size + 1))
    one = _microseconds(lambda: ledger.append(next(extra)))
    status = _microseconds(lambda: ledger.estimated_tokens)
    planning = _microseconds(lambda: plan(ledger, SETTINGS, WINDOW))
    history = _microseconds(lambda: build_history(ledger.entries), repeats=3)
    cells = (
        f"{total * 1e3:,.0f} ms",
        f"{one:,.0f} µs",
        f"{status:,.1f} µs",
        f"{planning:,.0f} µs",
        f"{history / 1e3:,.1f} ms",
    )
    return f"{size:>9,} {cells[0]:>11} {cells[1]:>11} {cells[2]:>9} {cells[3]:>9} {cells[4]:>10}"


def _microseconds(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median time of a call."""
    times: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def _estimates() -> None:
    count, ours, chars = o200k(), ScriptAwareEstimator(), CharsEstimator()
    print("\nThe estimate against the o200k tokeniser:\n")
    print(f"{'text':<12} {'tokens':>8} {'ours':>8} {'chars/4':>8}")
    for name, text in corpus().items():
        real = count(text)
        errors: Sequence[float] = [estimate / real - 1 for estimate in (ours.text(text), chars.text(text))]
        print(f"{name:<12} {real:>8,} {errors[0]:>+8.1%} {errors[1]:>+8.1%}")
