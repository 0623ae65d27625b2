"""Session logs of any length, and a stopwatch at the boundaries of the session that goes on with one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from selfcompact.compaction.commit import compaction_entry
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, plan
from selfcompact.compaction.summary.summarise import Summary
from selfcompact.entries import Entry, MessageEntry, SessionHeader, now_iso
from selfcompact.errors import ContextOverflow
from selfcompact.log.lines import encode_line
from selfcompact.messages import AssistantMessage, Message, TextContent, ToolCall, ToolResultMessage, UserMessage
from selfcompact.session.boundary import Stop
from selfcompact.session.conversation import Conversation
from selfcompact.session.run import Run
from selfcompact.settings.compaction import CompactionSettings

WINDOW = 200_000
"""Tokens, where a session compacts."""


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
        parent = f"{number - 1:08x}" if number else None
        made.append(MessageEntry(id=f"{number:08x}", parent_id=parent, timestamp=now_iso(), message=message))
    return made


def compacted(count: int, every: int) -> list[Entry]:
    """As many entries, of a session that compacted whenever `every` of them had come together."""
    ledger, made = Ledger(), list[Entry]()
    for number, entry in enumerate(entries(count), 1):
        chained = replace(entry, parent_id=made[-1].id if made else None)
        made.append(chained)
        ledger.append(chained)
        if number % every == 0 and number < count:
            planned = plan(ledger, CompactionSettings(), WINDOW)
            assert isinstance(planned, Plan)
            record = compaction_entry(planned, Summary("## Goal\nGo on.", "none"), parent_id=made[-1].id)
            made.append(record)
            ledger.append(record)
    return made


def write(path: Path, logged: Iterable[Entry]) -> None:
    """Write a session's file."""
    with path.open("wb") as file:
        file.write(encode_line(SessionHeader(version=3, id="s", timestamp=now_iso(), cwd="/")))
        file.writelines(map(encode_line, logged))


@dataclass(frozen=True)
class BoundaryTime:
    """How long one boundary took in all, and how long of it the disk did, in seconds."""

    whole_s: float
    disk_s: float


@contextmanager
def boundary_times() -> Iterator[Sequence[BoundaryTime]]:
    """Time every boundary of the sessions that run in this block: all of what lies between two turns.

    A boundary emits no event of its own, so it is timed where the run goes into it and comes out again.
    """
    found: list[BoundaryTime] = []
    disk_s = 0.0
    at_boundary, sync = Run._at_boundary, Conversation.sync

    async def boundary(run: Run, overflow: ContextOverflow | None, wants_more: bool) -> Stop | None:
        nonlocal disk_s
        disk_s, began = 0.0, time.perf_counter()
        try:
            return await at_boundary(run, overflow, wants_more)
        finally:
            found.append(BoundaryTime(time.perf_counter() - began, disk_s))

    def syncing(conversation: Conversation) -> None:
        nonlocal disk_s
        began = time.perf_counter()
        sync(conversation)
        disk_s += time.perf_counter() - began

    with (
        mock.patch.object(Run, "_at_boundary", boundary),
        mock.patch.object(Conversation, "sync", syncing),
    ):
        yield found
