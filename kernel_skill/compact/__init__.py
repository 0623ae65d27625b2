"""Decide yourself when the older part of your history is replaced by a summary.

    await compact.status()                      how full is the context?
    await compact.run("keep `failing_tests`")   compact it when this turn is over
    await compact.recall("database timeout")    search everything that was said, also before a compaction
    await compact.entry(entry_id)               one message of it, whole

All return at once, and always need `await`. Variables, files and this kernel stay as they are. `run` answers
`{"scheduled": True, "note": …}`, or `{"scheduled": False, "reason": …}` when there is nothing to gain: that is an
answer, not an error. `compact.BridgeUnavailable` means that no host answers; carry on without it.
"""

from compact._archive import ArchivedEntry, Recalled, entry, recall
from compact._calls import NotScheduled, RunResult, Scheduled, Status, run, status
from host_bridge.wire.errors import BridgeTimeout, BridgeUnavailable, HostRequestError

__all__ = [
    "ArchivedEntry",
    "BridgeTimeout",
    "BridgeUnavailable",
    "HostRequestError",
    "NotScheduled",
    "Recalled",
    "RunResult",
    "Scheduled",
    "Status",
    "entry",
    "recall",
    "run",
    "status",
]
