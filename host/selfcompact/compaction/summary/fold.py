"""One summary out of any amount of conversation: window after window, each updating the summary of the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from selfcompact.compaction.planning import budget
from selfcompact.compaction.style.contract import Checked
from selfcompact.compaction.style.forms import Form
from selfcompact.compaction.style.loading import Style
from selfcompact.compaction.summary.request import Kind, SummaryRequest, new_nonce, summary_request
from selfcompact.compaction.summary.retry import Sleep, with_retries
from selfcompact.compaction.summary.summarisers import SummaryReply, TextSummariser
from selfcompact.compaction.summary.windows import SEPARATOR, windows
from selfcompact.errors import ContextOverflow, SummaryRejected
from selfcompact.messages import Usage
from selfcompact.text.clip import clip_tokens

MIN_CONVERSATION_TOKENS = 256
"""With less room than this for the conversation a request is not worth making."""

ATTEMPTS = 2
"""A reply outside the contract is asked for once more."""

LENGTH_SLACK = 1.5
"""How far a reply may be over its token limit by our own estimate before it counts as too long."""


@dataclass(frozen=True)
class Progress:
    """How far a summary is: window `window` of `windows` of one part, and the characters of its answer so far."""

    part: str
    window: int
    windows: int
    characters: int


@dataclass
class Tally:
    """What the requests of one summary cost. Owned by one `summarise` call; its two parts add to it."""

    requests: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    repairs: list[str] = field(default_factory=list)

    def add(self, usage: Usage | None) -> None:
        """Count one answered request."""
        self.requests += 1
        if usage is not None:
            self.input += usage.input
            self.output += usage.output
            self.cache_read += usage.cache_read
            self.cache_write += usage.cache_write

    def take(self, other: Tally) -> None:
        """Count everything that another tally counted."""
        self.requests += other.requests
        self.input += other.input
        self.output += other.output
        self.cache_read += other.cache_read
        self.cache_write += other.cache_write

    @property
    def usage(self) -> Usage:
        """All of it as one usage."""
        return Usage(input=self.input, output=self.output, cache_read=self.cache_read, cache_write=self.cache_write)


@dataclass(frozen=True)
class Task:
    """What one fold works with. `window` and `output_tokens` are the summariser's, in tokens."""

    part: str
    style: Style
    form: Form
    items: tuple[str, ...]
    window: int
    output_tokens: int
    message_count: int
    first_kind: Kind = "first"
    previous: str | None = None
    context: str = ""
    instructions: str | None = None


class Folder:
    """Folds tasks with one summariser. Cancelling stops the request that is under way; nothing is kept."""

    def __init__(
        self,
        summariser: TextSummariser,
        *,
        tokens: Callable[[str], int],
        redact: Callable[[str], str],
        tally: Tally,
        on_progress: Callable[[Progress], None] | None = None,
        sleep: Sleep | None = None,
    ) -> None:
        self._summariser, self._tokens, self._redact = summariser, tokens, redact
        self._tally, self._on_progress, self._sleep = tally, on_progress, sleep

    async def fold(self, task: Task) -> str:
        """The summary of all of the task's items.

        After an overflow the rest is cut anew into windows half as large as the request that failed, so that no
        request is ever repeated at its size; windows that were answered are not asked for again.

        Raises:
            ContextOverflow: even the smallest window is too long for the summariser.
            SummaryRejected: a reply broke the contract twice, or there is nothing to summarise.
            ModelError: the provider failed.
        """
        if not task.items and not task.previous:
            raise SummaryRejected((f"there is nothing to summarise in the {task.part}",))
        remaining: Sequence[str] = task.items
        summary = task.previous
        ceiling: int | None = None
        while remaining:
            summary = None if summary is None else clip_tokens(summary, task.output_tokens, self._tokens)
            limit = self._limit(task, summary, ceiling)
            groups = windows(remaining, limit, self._tokens)
            conversation = SEPARATOR.join(groups[0])
            done = len(task.items) - len(remaining)
            try:
                summary = await self._window(task, conversation, summary, _Place(done, len(task.items), len(groups)))
            except ContextOverflow:
                ceiling = self._tokens(conversation) // 2
                if ceiling < MIN_CONVERSATION_TOKENS:
                    raise
            else:
                remaining = remaining[len(groups[0]) :]
        return summary or ""

    def _limit(self, task: Task, summary: str | None, ceiling: int | None) -> int:
        """Tokens of conversation for the next request."""
        kind: Kind = "update" if summary and task.first_kind != "prefix" else task.first_kind
        empty = self._request(task, kind, "", summary, ("x" * 400,) * 2)
        fixed = self._tokens(empty.system) + self._tokens(empty.prompt)
        limit = budget.fitted_input_tokens(task.window, task.output_tokens, fixed)
        if limit < MIN_CONVERSATION_TOKENS:
            raise ContextOverflow(
                f"the window of {self._summariser.name} ({task.window:,} tokens) is too small for a summary request"
            )
        return limit if ceiling is None else min(limit, ceiling)

    def _request(
        self, task: Task, kind: Kind, conversation: str, summary: str | None, violations: Sequence[str] = ()
    ) -> SummaryRequest:
        return summary_request(
            task.style,
            kind,
            conversation=conversation,
            max_output_tokens=task.output_tokens,
            nonce=new_nonce(),
            previous=summary,
            context=task.context,
            instructions=task.instructions,
            violations=violations,
            redact=self._redact,
        )

    async def _window(self, task: Task, conversation: str, summary: str | None, place: _Place) -> str:
        kind: Kind = "update" if summary and task.first_kind != "prefix" else task.first_kind
        violations: tuple[str, ...] = ()
        for _ in range(ATTEMPTS):
            request = self._request(task, kind, conversation, summary, violations)
            checked = self._check(task, await self._ask(task, request, place))
            if not checked.violations:
                self._tally.repairs.extend(checked.repairs)
                return checked.text
            violations = checked.violations
        raise SummaryRejected(violations)

    async def _ask(self, task: Task, request: SummaryRequest, place: _Place) -> SummaryReply:
        window, windows_ = place.window, place.windows

        def heard(characters: int) -> None:
            if self._on_progress is not None:
                self._on_progress(Progress(task.part, window, windows_, characters))

        heard(0)
        summariser = self._summariser
        reply = await with_retries(lambda: summariser.ask(request, heard), name=summariser.name, sleep=self._sleep)
        self._tally.add(reply.usage)
        return reply

    def _check(self, task: Task, reply: SummaryReply) -> Checked:
        text = self._redact(reply.text)
        problem = reply_problem(reply)
        if problem:
            return Checked(text, violations=(problem,))
        if self._tokens(text) > task.output_tokens * LENGTH_SLACK:
            return Checked(text, violations=(f"the reply is longer than {task.output_tokens:,} tokens",))
        return task.form.check(text, message_count=task.message_count)


@dataclass(frozen=True)
class _Place:
    """Where a fold is: items done, items in all, windows still to come (this one included)."""

    done: int
    items: int
    to_come: int

    @property
    def windows(self) -> int:
        """Windows in all, as far as it can be told now."""
        return self.window + self.to_come - 1

    @property
    def window(self) -> int:
        """The number of this window, from 1."""
        return 1 if self.done == 0 else 1 + max(1, round(self.done / max(1, self.items - self.done) * self.to_come))


def reply_problem(reply: SummaryReply) -> str:
    """Why a reply cannot be a summary, whatever its text says; empty when it can."""
    if reply.stop_reason == "length":
        return "the reply was cut off at its output limit"
    if reply.stop_reason in ("error", "aborted"):
        return "the reply broke off"
    if reply.tool_calls or reply.stop_reason == "toolUse":
        return "the reply asks for a tool"
    return "" if reply.text.strip() else "the reply has no visible text"
