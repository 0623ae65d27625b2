"""Small builders for entries and messages, and a summariser that plays answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from selfcompact.codec import Json
from selfcompact.compaction.commit import compaction_entry
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, Skip, plan
from selfcompact.compaction.style.contract import SECTIONS_CONTRACT
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.compaction.summary.summarise import Summary, summarise
from selfcompact.compaction.summary.summarisers import Summariser, SummaryReply
from selfcompact.entries import CompactionEntry, Entry, MessageEntry, decode_entry
from selfcompact.errors import ModelError
from selfcompact.messages import (
    AssistantMessage,
    Content,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from selfcompact.settings.compaction import CompactionSettings

SESSION = Path(__file__).parent.parent / "data" / "pi-v1-large.jsonl"

CUT_CASES = Path(__file__).parent.parent / "data" / "cut-points.json"

_TIME = "2026-01-01T00:00:00.000Z"


def said(text: str, *, synthetic: bool = False) -> UserMessage:
    return UserMessage(content=(TextContent(text=text),), timestamp=1, synthetic=True if synthetic else None)


def answered(
    text: str = "",
    *calls: ToolCall,
    usage: Usage | None = None,
    stop_reason: str | None = None,
    thinking: ThinkingContent | None = None,
) -> AssistantMessage:
    content: list[Content] = [thinking] if thinking is not None else []
    if text:
        content.append(TextContent(text=text))
    return AssistantMessage(
        content=(*content, *calls),
        provider="test",
        model="m",
        usage=usage,
        stop_reason=stop_reason or ("toolUse" if calls else "stop"),
        timestamp=2,
    )


def called(call_id: str, code: str = "1 + 1", *, name: str = "ipython", **arguments: Json) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments or {"code": code})


def resulted(call_id: str, text: str, *, is_error: bool = False, name: str = "ipython") -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=call_id, tool_name=name, content=(TextContent(text=text),), is_error=is_error, timestamp=3
    )


def logged(messages: Iterable[Message], *, start: int = 0) -> list[Entry]:
    """Entries in one line, with ids that count."""
    entries: list[Entry] = []
    for number, message in enumerate(messages, start):
        parent = f"{number - 1:08x}" if number else None
        entries.append(MessageEntry(id=f"{number:08x}", parent_id=parent, timestamp=_TIME, message=message))
    return entries


def rounds(count: int, *, start: int = 0, code: str = "x = {n}", result: str = "result {n}") -> list[Message]:
    """Tool rounds of one agent."""
    messages: list[Message] = []
    for n in range(start, start + count):
        messages.append(answered(f"Step {n}.", called(f"call_{n}", code.format(n=n))))
        messages.append(resulted(f"call_{n}", result.format(n=n)))
    return messages


def turns(count: int, *, words: int = 40) -> list[Message]:
    """Whole turns: a question, one tool round, an answer."""
    messages: list[Message] = []
    for n in range(count):
        messages.append(said(f"Question {n}? " + "word " * words))
        messages.extend(rounds(1, start=n, result="output {n} " + "data " * words))
        messages.append(answered(f"Answer {n}. " + "text " * words))
    return messages


def whole_turns(count: int) -> list[Message]:
    """Whole turns and a long question, at which a small tail begins."""
    return [*turns(count), said("Next? " + "word " * 300)]


def entries_of_file(path: Path) -> list[Entry]:
    """The entries of a version 1 file, each with an id and the previous one as its parent."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return [
        decode_entry({**json.loads(line), "id": f"{n:08x}", "parentId": f"{n - 1:08x}" if n else None})
        for n, line in enumerate(lines)
    ]


def sections(goal: str = "Reach the aim.", **bodies: str) -> str:
    """A summary in the form of the `sections` style."""
    filled = {
        "Goal": goal,
        "Progress": "### Done\n- [x] Half is done, a.py and b.py.\n\n### In Progress\n(none)\n\n### Blocked\n(none)",
        "Next Steps": "1. Do the second half in the way agreed on with the user.\n2. Run all tests again and report.",
        **{name.replace("_", " "): body for name, body in bodies.items()},
    }
    return "\n\n".join(f"## {name}\n{filled.get(name, '(none)')}" for name in SECTIONS_CONTRACT.headings)


PREFIX = "## Original Request\nDo it.\n\n## Early Progress\n- Began the work.\n\n## Context for Suffix\n- Path a.py."

Answer = str | SummaryReply | ModelError | Callable[[SummaryRequest], "Answer"]


@dataclass
class PlayedSummariser:
    """Plays answers in order, the last one for ever; remembers the requests it got."""

    answers: Sequence[Answer]
    context_window: int | None = None
    max_output_tokens: int | None = None
    drops_thinking: bool = False
    name: str = "test:summariser"
    requests: list[SummaryRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._next = itertools.chain(self.answers, itertools.repeat(self.answers[-1]))

    async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
        self.requests.append(request)
        answer = next(self._next)
        while callable(answer):
            answer = answer(request)
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, SummaryReply):
            return answer
        if on_text is not None:
            on_text(len(answer))
        return SummaryReply(answer, usage=Usage(input=100, output=50))


def sections_or_prefix(request: SummaryRequest) -> str:
    """Answers a request of either part in its form."""
    return PREFIX if "beginning of a turn" in request.prompt else sections()


@dataclass(frozen=True)
class Compacted:
    """A compaction of a log, and what it came from."""

    plan: Plan
    summary: Summary
    entry: CompactionEntry


def live_entries(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The part of a log that its context is made of."""
    newest = next((entry for entry in reversed(entries) if isinstance(entry, CompactionEntry)), None)
    if newest is None:
        return entries
    ids = [entry.id for entry in entries]
    kept = newest.first_kept_entry_id
    return entries[ids.index(kept if kept in ids else newest.id) :]


async def compact_log(
    entries: Sequence[Entry], settings: CompactionSettings, summariser: Summariser, *, window: int
) -> Compacted | Skip:
    """Plan, summarise and make the entry, as a session does."""
    found = plan(Ledger(live_entries(entries)), settings, window)
    if isinstance(found, Skip):
        return found
    summary = await summarise(found, summariser, settings, window=window)
    return Compacted(found, summary, compaction_entry(found, summary, parent_id=entries[-1].id))
