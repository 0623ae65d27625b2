"""What we note on a compaction entry, under `selfcompact` in its `details`: one record for all that write or read it.

Session files are written by several programs and by hand, so reading is forgiving: a value of the wrong type counts as
not there. Keys keep their names for good; new ones may be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from selfcompact.codec import Json, Record, converted
from selfcompact.entries import CompactionEntry

KEY = "selfcompact"
"""Under this key of an entry's `details` stands what is ours alone."""


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _numbers(value: Json) -> Mapping[str, float]:
    if not isinstance(value, dict):
        return {}
    return {str(key): float(number) for key, number in value.items() if isinstance(number, int | float)}


@dataclass(frozen=True, kw_only=True)
class CompactionDetails(Record):
    """How a compaction came about and what it needs to be continued. Tokens are the ledger's estimates."""

    reason: str | None = None
    trigger: str | None = None
    """`user`, `agent` or `auto`."""
    phase: str | None = None
    model: str | None = None
    """The session's model then, as `provider:name`."""
    style: str | None = None
    rebuild: str | None = None
    """How the context is rebuilt from the record: `keep-recent` or `user-messages`."""
    number: int | None = None
    """Compactions of the session up to this one, by the engine's count; `window_number` is the session's own."""
    window_number: int | None = None
    in_a_row: int | None = None
    """Compactions since the newest successful response, this one included."""
    ineffective_before: int | None = None
    """Compactions directly before this one that hardly helped."""
    summariser: str | None = None
    offline: bool | None = None
    requests: int | None = None
    usage: Mapping[str, Json] | None = None
    tokens_after: int | None = None
    short_summary: str | None = None
    is_split_turn: bool | None = None
    kept_verbatim: tuple[str, ...] | None = converted(_texts, list, default=None)
    ratios: Mapping[str, float] | None = converted(_numbers, dict, default=None)
    """Reported over estimated tokens, for each model."""
    failure: str | None = None
    """Why the offline summariser stepped in."""
    repaired: tuple[str, ...] | None = converted(_texts, list, default=None)
    duration_ms: int | None = None
    written_ahead: bool | None = None
    waited_ms: int | None = None

    @classmethod
    def of(cls, entry: CompactionEntry | None) -> Self | None:
        """What we noted on an entry; None for the entries of other programs."""
        ours = (entry.details or {}).get(KEY) if entry is not None else None
        return cls.readable(ours) if isinstance(ours, dict) else None

    @classmethod
    def noted_on(cls, entry: CompactionEntry | None) -> Self:
        """The same, with nothing noted where nothing is ours."""
        return cls.of(entry) or cls()
