"""The chain of parents that every entry of a session file ends: walked up one way, here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from selfcompact.entries import CompactionEntry, Entry


def ancestors(entry_id: str | None, parent_of: Callable[[str], str | None]) -> Iterator[str]:
    """The ids from an entry up to its root, the entry first. Ends where an id comes again: files can be damaged."""
    seen: set[str] = set()
    while entry_id is not None and entry_id not in seen:
        seen.add(entry_id)
        yield entry_id
        entry_id = parent_of(entry_id)


class LiveEnd:
    """Tells, walking up from a leaf, where the live path begins: at the newest compaction's first kept entry."""

    def __init__(self) -> None:
        self._first_kept: str | None = None

    def is_at(self, entry: Entry) -> bool:
        """Whether the live path begins with this entry. Asked of each entry once, newest first."""
        if entry.id == self._first_kept:
            return True
        if self._first_kept is None and isinstance(entry, CompactionEntry):
            self._first_kept = entry.first_kept_entry_id
        return entry.parent_id is None
