"""When a changed setting takes effect in a session that is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Applies = Literal["live", "at open"]
"""`live`: at the next turn boundary after the file changed. `at open`: when a session is opened the next time."""

LIVE_GROUP = "compaction"
"""The watched file's part that sessions take over; the others shape what is started at opening."""

AT_OPEN_WITHIN = frozenset({"hooks"})
"""Of that part: commands that run on the host are those that were there when the session was opened."""


def applies(path: Sequence[str]) -> Applies:
    """When a change of this setting holds; `path` is its key in snake_case, split at the dots."""
    return "live" if path[0] == LIVE_GROUP and path[1] not in AT_OPEN_WITHIN else "at open"
