"""Session records: what one line of a session log holds.

The format is version 3 of the pi session family: a header line, then entries that point to their parent, so that a
file is a tree and the newest leaf's path is the live conversation. Entries are never changed once written.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from selfcompact.codec import Json, Record, converted, decode_tagged
from selfcompact.messages import (
    Content,
    CustomMessage,
    Message,
    decode_content,
    decode_message,
    encode_content,
    encode_message,
)

FORMAT_VERSION = 3
"""The version that is written. Versions 1 and 2 are migrated into a new file when they are read."""


def now_iso() -> str:
    """The time now as entries carry it: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_entry_id(taken: Container[str] = ()) -> str:
    """A fresh entry id: 16 hex digits, not in `taken`.

    The family writes 8; with 300,000 entries that would collide about ten times, and only the live ones are known."""
    while True:
        entry_id = secrets.token_hex(8)
        if entry_id not in taken:
            return entry_id


@dataclass(frozen=True, kw_only=True)
class SessionHeader(Record):
    """The first line of a file. `cwd` is the workspace as it was when the session began."""

    type: str = "session"
    version: int = 1
    id: str
    timestamp: str
    cwd: str
    parent_session: str | None = None


@dataclass(frozen=True, kw_only=True)
class EntryBase(Record):
    """What every entry has. `parent_id` is None for the first entry of a branch's root only."""

    type: str
    id: str
    parent_id: str | None = None
    timestamp: str

    always_written: ClassVar[frozenset[str]] = frozenset({"parentId"})


@dataclass(frozen=True, kw_only=True)
class MessageEntry(EntryBase):
    """One message."""

    type: str = "message"
    message: Message = converted(decode_message, encode_message)


@dataclass(frozen=True, kw_only=True)
class ModelChangeEntry(EntryBase):
    """From here on another model answers."""

    type: str = "model_change"
    provider: str
    model_id: str


@dataclass(frozen=True, kw_only=True)
class ThinkingLevelChangeEntry(EntryBase):
    """From here on the model thinks more or less."""

    type: str = "thinking_level_change"
    thinking_level: str


@dataclass(frozen=True, kw_only=True)
class CompactionEntry(EntryBase):
    """A compaction: from here back to `first_kept_entry_id` the history holds word for word, before it the
    summary stands. Tokens are the size of the context when the compaction began."""

    type: str = "compaction"
    summary: str
    first_kept_entry_id: str
    tokens_before: int
    details: Mapping[str, Json] | None = None
    custom_instructions: str | None = None
    from_hook: bool | None = None


@dataclass(frozen=True, kw_only=True)
class BranchSummaryEntry(EntryBase):
    """What happened on a branch that was left; `from_id` is that branch's leaf."""

    type: str = "branch_summary"
    from_id: str
    summary: str
    details: Mapping[str, Json] | None = None
    from_hook: bool | None = None


@dataclass(frozen=True, kw_only=True)
class CustomEntry(EntryBase):
    """Data of one program, not part of the context. Ours have a `custom_type` that begins with `selfcompact.`"""

    type: str = "custom"
    custom_type: str
    data: Json = None


@dataclass(frozen=True, kw_only=True)
class CustomMessageEntry(EntryBase):
    """A message of one program that is part of the context."""

    type: str = "custom_message"
    custom_type: str
    content: str | tuple[Content, ...] = converted(decode_content, encode_content)
    display: bool = True
    details: Json = None


@dataclass(frozen=True, kw_only=True)
class LabelEntry(EntryBase):
    """A name for an entry; None takes it away."""

    type: str = "label"
    target_id: str
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class SessionInfoEntry(EntryBase):
    """The session's display name."""

    type: str = "session_info"
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class UnknownEntry(EntryBase):
    """An entry of a type that we do not know, kept as it is."""


Entry = (
    MessageEntry
    | ModelChangeEntry
    | ThinkingLevelChangeEntry
    | CompactionEntry
    | BranchSummaryEntry
    | CustomEntry
    | CustomMessageEntry
    | LabelEntry
    | SessionInfoEntry
    | UnknownEntry
)

_ENTRIES: Mapping[str, type[Entry]] = {
    "message": MessageEntry,
    "model_change": ModelChangeEntry,
    "thinking_level_change": ThinkingLevelChangeEntry,
    "compaction": CompactionEntry,
    "branch_summary": BranchSummaryEntry,
    "custom": CustomEntry,
    "custom_message": CustomMessageEntry,
    "label": LabelEntry,
    "session_info": SessionInfoEntry,
}


def decode_entry(data: Json) -> Entry:
    """Read an entry by its `type`; a type that we do not know becomes an `UnknownEntry`.

    Raises:
        DecodeError: it is not an object, has no type, or lacks what its type demands.
    """
    return decode_tagged(data, "type", _ENTRIES, UnknownEntry, "an entry")


def message_of(entry: Entry) -> Message | None:
    """The message that an entry brings into the context by itself, or None.

    Compactions and branch summaries are not messages: `history` decides how they appear.
    """
    if isinstance(entry, MessageEntry):
        return entry.message
    if isinstance(entry, CustomMessageEntry):
        return CustomMessage(
            custom_type=entry.custom_type,
            content=entry.content,
            display=entry.display,
            details=entry.details,
            timestamp=iso_to_ms(entry.timestamp),
        )
    return None


def iso_to_ms(timestamp: str) -> int:
    """Milliseconds since 1970 of an entry's time; 0 when it is not a time."""
    try:
        return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except ValueError:
        return 0


def message_entry(message: Message, parent_id: str | None, *, new_id: Callable[[], str] = new_entry_id) -> MessageEntry:
    """An entry for a message, made now."""
    return MessageEntry(id=new_id(), parent_id=parent_id, timestamp=now_iso(), message=message)
