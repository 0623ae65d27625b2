"""The session log: append-only JSON Lines that other programs can read, opened from its end.

`lines` knows bytes and lines, `reading` turns them into entries, `writing` appends, `blobs` keeps large images out of
the way, `migrate` reads older versions, `tree` and `search` are for the whole file, on demand.
"""

from selfcompact.log.reading import LiveLog, live_path, read_header, read_live, read_session, stream_entries
from selfcompact.log.writing import SessionLog

__all__ = [
    "LiveLog",
    "SessionLog",
    "live_path",
    "read_header",
    "read_live",
    "read_session",
    "stream_entries",
]
