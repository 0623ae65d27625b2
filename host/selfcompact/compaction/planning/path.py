"""The live path: the entries the context is made of, with what planning needs to know about them.

Planning must cost the same in an old session as in a new one, so nothing here is found by walking: sums are running
sums, positions are sorted lists that grow at the end and are searched by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import overload

from selfcompact.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    iso_to_ms,
    message_of,
)
from selfcompact.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    Message,
    TextContent,
    UserMessage,
    is_real_user,
)
from selfcompact.text.tokens import Estimator, media_bytes


def context_message(entry: Entry) -> Message | None:
    """The message an entry contributes to a summary's input: its own, or a branch summary as a note of the host."""
    if isinstance(entry, BranchSummaryEntry):
        text = f"What happened on a branch that was left:\n{entry.summary}"
        return UserMessage(content=(TextContent(text=text),), timestamp=iso_to_ms(entry.timestamp), synthetic=True)
    return message_of(entry)


def is_cut_point(entry: Entry) -> bool:
    """Whether a kept tail may begin here. Never at a tool result: its call would be gone."""
    if isinstance(entry, MessageEntry):
        return isinstance(entry.message, UserMessage | AssistantMessage | BashExecutionMessage | CustomMessage)
    return isinstance(entry, CustomMessageEntry | BranchSummaryEntry)


def starts_turn(entry: Entry) -> bool:
    """Whether a person's message begins a turn here."""
    return isinstance(entry, MessageEntry) and is_real_user(entry.message)


class Span(Sequence[Message]):
    """The messages of a stretch of entries, made when they are first looked at.

    It stays valid when the path moves on: the entries it refers to are never changed.
    """

    def __init__(self, entries: Sequence[Entry], start: int, stop: int) -> None:
        self._entries, self._start, self._stop = entries, start, stop

    @cached_property
    def _messages(self) -> tuple[Message, ...]:
        return tuple(message for entry in self.entries if (message := context_message(entry)) is not None)

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries themselves."""
        return self._entries[self._start : self._stop]

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)


class LivePath:
    """The live entries, oldest first, with running sums. One append per entry, each O(1) amortised.

    Positions are indices into `entries`. Owned by one ledger; not safe to share between threads.
    """

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = estimator
        self.entries: list[Entry] = []
        self.positions: dict[str, int] = {}
        self._shift = 0
        self._message_sums: list[int] = [0]
        self._context_sums: list[int] = [0]
        self._media_sums: list[int] = [0]
        self._messages: list[int] = []
        self._cut_points: list[int] = []
        self._turn_starts: list[int] = []

    def append(self, entry: Entry) -> None:
        """Take one entry in at the end."""
        position = self._shift + len(self.entries)
        message = context_message(entry)
        tokens = self.estimator.message(message) if message is not None else 0
        counts = tokens if isinstance(entry, MessageEntry) else 0
        self._message_sums.append(self._message_sums[-1] + counts)
        self._context_sums.append(self._context_sums[-1] + tokens)
        self._media_sums.append(self._media_sums[-1] + (media_bytes(message) if message is not None else 0))
        if message is not None:
            self._messages.append(position)
        if is_cut_point(entry):
            self._cut_points.append(position)
        if starts_turn(entry):
            self._turn_starts.append(position)
        self.positions[entry.id] = position
        self.entries.append(entry)

    def drop_before(self, position: int) -> None:
        """Let the path begin at `position`. What was handed out before stays as it was: new lists are made."""
        start = self._shift + position
        for entry in islice(self.entries, position):
            self.positions.pop(entry.id, None)
        self.entries = self.entries[position:]
        self._message_sums = self._message_sums[position:]
        self._context_sums = self._context_sums[position:]
        self._media_sums = self._media_sums[position:]
        self._messages = self._messages[bisect_left(self._messages, start) :]
        self._cut_points = self._cut_points[bisect_left(self._cut_points, start) :]
        self._turn_starts = self._turn_starts[bisect_left(self._turn_starts, start) :]
        self._shift = start

    def position_of(self, entry_id: str) -> int | None:
        """Where an entry stands, or None when it is not on the live path."""
        found = self.positions.get(entry_id)
        return None if found is None else found - self._shift

    def __len__(self) -> int:
        return len(self.entries)

    def context_tokens(self, start: int = 0, stop: int | None = None) -> int:
        """Estimated tokens of everything between two positions that reaches the model, compactions aside."""
        return self._context_sums[len(self) if stop is None else stop] - self._context_sums[start]

    def media_bytes(self, start: int = 0, stop: int | None = None) -> int:
        """Bytes of base64 images between two positions."""
        return self._media_sums[len(self) if stop is None else stop] - self._media_sums[start]

    def message_count(self, start: int, stop: int) -> int:
        """How many messages stand between two positions."""
        shift = self._shift
        return bisect_left(self._messages, shift + stop) - bisect_left(self._messages, shift + start)

    def newest_message_position(self) -> int | None:
        """Where the newest message stands."""
        return self._messages[-1] - self._shift if self._messages else None

    def reaching(self, tokens: int) -> int | None:
        """Walking back from the end, the position at which message tokens add up to `tokens`; None when never."""
        return _reaching(self._message_sums, max(tokens, 1))

    def reaching_media(self, size_bytes: int) -> int | None:
        """The same for more than `size_bytes` of images."""
        return _reaching(self._media_sums, size_bytes + 1)

    def cut_point_at_or_after(self, position: int) -> int | None:
        """The first place at or after `position` where a kept tail may begin."""
        found = bisect_left(self._cut_points, self._shift + position)
        return self._cut_points[found] - self._shift if found < len(self._cut_points) else None

    def newest_cut_point(self) -> int | None:
        """The last place where a kept tail may begin."""
        return self._cut_points[-1] - self._shift if self._cut_points else None

    def turn_start_before(self, position: int) -> int | None:
        """The newest real user message before `position`."""
        found = bisect_left(self._turn_starts, self._shift + position)
        return self._turn_starts[found - 1] - self._shift if found else None

    def span(self, start: int, stop: int) -> Span:
        """The messages between two positions, not made yet."""
        return Span(self.entries, start, stop)


def _reaching(sums: Sequence[int], amount: int) -> int | None:
    """The last position from which on at least `amount` (above 0) comes together; it has weight itself."""
    target = sums[-1] - amount
    return None if target < sums[0] else bisect_right(sums, target) - 1


def is_plain(entry: Entry) -> bool:
    """Whether a cut may move back over the entry: its type is neither `message` nor `compaction`."""
    return not isinstance(entry, MessageEntry | CompactionEntry)
