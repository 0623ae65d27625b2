"""Looking things up in what was said before: the archive of this session. Python 3.9."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypedDict, cast

from compact._calls import ask_host
from compact._request import HostCall
from host_bridge.wire.errors import HostRequestError
from host_bridge.wire.protocol import CompactType, ErrorCode

TIMEOUT_S = 90.0
"""The host has a minute: the first search of a session of 300,000 entries builds the index for half of it."""


class Recalled(TypedDict):
    """One place that was found."""

    entry_id: str
    kind: str
    timestamp: str
    excerpt: str


class ArchivedEntry(TypedDict):
    """One message as it was, its text cut in the middle when it is very long."""

    entry_id: str
    kind: str
    timestamp: str
    text: str
    omitted_chars: int


class EntryNotFound(LookupError, RuntimeError):
    """There is no such entry in this session."""


def recall(query: str, limit: int = 5) -> Coroutine[Any, Any, list[Recalled]]:
    """Search everything that was said in this session: `await compact.recall("database timeout")`.

    Also finds what a compaction replaced by its summary. Returns a list of dicts, best first: `entry_id`, `kind`,
    `timestamp`, `excerpt`; empty when nothing matches. `compact.entry(entry_id)` gives the whole.

    Raises:
        TypeError: the query is not a str, or the limit not an int; nothing was sent.
        BridgeUnavailable: no host answers.
    """
    __tracebackhide__ = True  # a traceback ends in the cell that made the mistake
    if not isinstance(query, str):
        raise TypeError(f"compact.recall() takes its query as a str, not {type(query).__name__}; nothing was sent")
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"compact.recall() takes its limit as an int, not {type(limit).__name__}; nothing was sent")
    payload = {"query": query.encode("utf-8", "replace").decode("utf-8"), "limit": limit}

    async def ask() -> list[Recalled]:
        return cast("list[Recalled]", _part(await ask_host(CompactType.RECALL, payload, TIMEOUT_S), "hits"))

    return HostCall("compact.recall()", ask)


def entry(entry_id: str) -> Coroutine[Any, Any, ArchivedEntry]:
    """One message of this session, whole: `await compact.entry(hits[0]["entry_id"])`.

    Raises:
        TypeError: the id is not a str; nothing was sent.
        LookupError: there is no such entry in this session.
        BridgeUnavailable: no host answers.
    """
    __tracebackhide__ = True  # the same
    if not isinstance(entry_id, str):
        raise TypeError(f"compact.entry() takes an id as a str, not {type(entry_id).__name__}; nothing was sent")
    payload = {"entry_id": entry_id.encode("utf-8", "replace").decode("utf-8")}

    async def ask() -> ArchivedEntry:
        found = _part(await ask_host(CompactType.ENTRY, payload, TIMEOUT_S), "entry")
        if found is None:
            raise EntryNotFound(f"there is no entry {entry_id!r} in this session; compact.recall() finds ids")
        return cast("ArchivedEntry", found)

    return HostCall("compact.entry()", ask)


def _part(answer: dict[str, Any], name: str) -> Any:
    """One part of what the host answered; some hosts say yes to whatever they do not know."""
    if name not in answer:
        raise HostRequestError(ErrorCode.BAD_RESULT, f"the host's answer has no {name!r}")
    return answer[name]
