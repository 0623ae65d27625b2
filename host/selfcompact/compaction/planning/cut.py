"""Where the kept tail begins.

Walk back from the newest entry, adding up message estimates; at the entry where the sum reaches the budget, cut at
the first valid cut point at or after it. When there is none (the last thing is one huge tool result), cut at the
newest cut point there is: its call and its result then stay together. Then move the cut back over the settings
entries directly before it. A cut that is not at a user message splits a turn: everything from that turn's user
message up to the cut is the turn prefix, summarised apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from selfcompact.compaction.planning.path import LivePath, is_plain
from selfcompact.entries import CustomMessageEntry, MessageEntry
from selfcompact.messages import UserMessage


@dataclass(frozen=True)
class Cut:
    """Positions on the live path. `[0, turn_start or first_kept)` is summarised, `[turn_start, first_kept)` is the
    turn prefix, `[first_kept, …)` stays."""

    first_kept: int
    turn_start: int | None = None

    @property
    def is_split_turn(self) -> bool:
        """Whether the cut goes through a turn whose user message is on the path."""
        return self.turn_start is not None

    @property
    def history_end(self) -> int:
        """Where the part that is summarised as history ends."""
        return self.first_kept if self.turn_start is None else self.turn_start


def find_cut(path: LivePath, keep_recent_tokens: int, *, keep_media_bytes: int | None = None) -> Cut | None:
    """The cut that keeps about `keep_recent_tokens`, or None when everything fits into them.

    The budget is in the path's own estimates. `keep_media_bytes` moves the cut further when the tail would hold more
    bytes of images. Logarithmic in the length of the path.
    """
    reached = path.reaching(keep_recent_tokens)
    media = None if keep_media_bytes is None else path.reaching_media(keep_media_bytes)
    if media is not None:
        reached = max(media + 1, reached or 0)
    if reached is None:
        return None
    at = path.cut_point_at_or_after(reached)
    if at is None:
        at = path.newest_cut_point()
    if at is None:
        return None
    begins_turn = _is_user_message(path, at)
    first_kept = at
    while first_kept > 0 and is_plain(path.entries[first_kept - 1]):
        first_kept -= 1
    if begins_turn or any(_is_user_message(path, position) for position in range(first_kept, at)):
        return Cut(first_kept)
    turn_start = path.turn_start_before(first_kept)
    return Cut(first_kept, turn_start)


def _is_user_message(path: LivePath, position: int) -> bool:
    entry = path.entries[position]
    if isinstance(entry, CustomMessageEntry):
        return False
    return isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage)
