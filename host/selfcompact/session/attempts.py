"""What the log says about earlier compactions: the limits and brakes are read from it, so a reload changes nothing.

Two brakes stop automatic compaction from burning money: the *attempt limit* (compactions without a successful
response between them) and the *circuit breaker* (failures, or compactions that hardly helped, in a row), which lets
go again when the context has changed materially.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from selfcompact.codec import Json
from selfcompact.details import CompactionDetails
from selfcompact.entries import CompactionEntry, CustomEntry, Entry, MessageEntry
from selfcompact.messages import AssistantMessage

ATTEMPT = "selfcompact.attempt"
"""The custom entry that records an attempt which did not complete. A completed one is its own record."""

FAILED_STOPS = frozenset({"error", "aborted"})
"""Stop reasons of responses that carry no answer: they never reset the attempt limit."""

MAX_FAILURES = 3
"""Failed threshold compactions in a row before the breaker opens: a provider that is down for a while gets two more
tries, a summariser that cannot work does not get one at every turn."""

MAX_INEFFECTIVE = 2
"""Compactions in a row that hardly helped; two, as such systems' own limits have it."""

MIN_SAVED_SHARE = 0.05
"""A compaction that saves less of the context than this hardly helped."""

MATERIAL_SHARE = 0.1
"""Growth by this share of the context closes the breaker again: there is something new to summarise."""


@dataclass(frozen=True)
class AttemptHistory:
    """Earlier compactions, as far as the limits ask.

    `in_a_row` and `for_overflow` look back to the newest successful response. `disarmed_until` is the number of
    tokens from which automatic compaction is armed again, None when it is armed. `completed` counts the
    compactions of the whole session, so the context window that is open now has the number `completed + 1`.
    """

    in_a_row: int = 0
    for_overflow: bool = False
    completed: int = 0
    ineffective_in_a_row: int = 0
    disarmed_until: int | None = None
    disarmed_cause: str | None = None


class AttemptAccount:
    """The running account of attempts: one `append` per entry of the live path, each O(1), so that a boundary costs the
    same in a session that has not been compacted for days.

    Owned by the conversation.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._in_a_row = 0
        self._for_overflow = False
        self._compaction: CompactionEntry | None = None
        self._failures = 0
        self._newest_failure: Mapping[str, Json] = {}
        for entry in entries:
            self.append(entry)

    @property
    def in_a_row(self) -> int:
        """Compactions since the newest successful response."""
        return self._in_a_row

    def append(self, entry: Entry) -> None:
        """Take in the entry that the log got last."""
        if isinstance(entry, CompactionEntry):
            ours = CompactionDetails.noted_on(entry)
            # The ones before may have left the live path together with what they summarised: the record remembers.
            self._in_a_row = max(self._in_a_row + 1, ours.in_a_row or 0)
            self._for_overflow = self._for_overflow or ours.reason == "overflow"
            self._compaction, self._failures, self._newest_failure = entry, 0, {}
        elif isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage):
            if entry.message.stop_reason not in FAILED_STOPS:
                self._in_a_row, self._for_overflow = 0, False
        elif isinstance(entry, CustomEntry) and entry.custom_type == ATTEMPT:
            noted = entry.data if isinstance(entry.data, dict) else {}
            if (noted.get("status"), noted.get("reason")) == ("failed", "threshold"):
                self._failures, self._newest_failure = self._failures + 1, noted

    def history(self) -> AttemptHistory:
        """What the limits ask."""
        newest = self._compaction
        noted = CompactionDetails.noted_on(newest)
        ineffective = 0
        if newest is not None and noted.tokens_after is not None:
            helped = not hardly_helped(newest.tokens_before, noted.tokens_after)
            ineffective = 0 if helped else (noted.ineffective_before or 0) + 1
        until, cause = None, None
        if self._failures >= MAX_FAILURES:
            until = _grown(_int(self._newest_failure.get("tokensBefore")))
            cause = f"{self._failures} automatic compactions in a row failed"
        elif newest is not None and ineffective >= MAX_INEFFECTIVE:
            until = _grown(noted.tokens_after or 0)
            cause = f"{ineffective} compactions in a row saved less than {MIN_SAVED_SHARE:.0%} of the context"
        completed = noted.window_number or (1 if newest is not None else 0)
        return AttemptHistory(self._in_a_row, self._for_overflow, completed, ineffective, until, cause)


def attempt_history(entries: Iterable[Entry]) -> AttemptHistory:
    """Read the history of attempts from a live path, oldest first."""
    return AttemptAccount(entries).history()


def hardly_helped(tokens_before: int, tokens_after: int) -> bool:
    """Whether a compaction saved too little to be worth repeating."""
    return tokens_before - tokens_after < MIN_SAVED_SHARE * tokens_before


def _grown(tokens: int) -> int:
    return round(tokens * (1 + MATERIAL_SHARE))


def _int(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
