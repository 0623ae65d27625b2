"""Older versions of the session format, turned into the one that is written.

Version 1 has no ids: entries follow each other, and a compaction names the first kept entry by its index. Version 2
has ids, and calls the messages of extensions `hookMessage`. Figures and rules are the family's own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator

from selfcompact.codec import Json
from selfcompact.entries import FORMAT_VERSION


def migrated(records: Iterable[Json], version: int) -> Iterator[Json]:
    """The records of a file of `version`, header first, as version 3 has them. Unknown fields are kept."""
    numbered = _with_ids(records) if version < 2 else records
    for record in numbered:
        if not isinstance(record, dict):
            continue
        if record.get("type") == "session":
            yield {**record, "version": FORMAT_VERSION}
        else:
            yield _renamed(record)


def _with_ids(records: Iterable[Json]) -> Iterator[Json]:
    """Give each entry an id and the entry before it as its parent.

    An index counts the entries of the file from 0, the header included, as that version's compactions do.
    """
    ids: list[str] = []
    parent: str | None = None
    for record in records:
        if not isinstance(record, dict) or record.get("type") == "session":
            ids.append("")
            yield record
            continue
        entry_id = secrets.token_hex(8)
        entry = {**record, "id": entry_id, "parentId": parent}
        if entry.get("type") == "compaction":
            index = entry.pop("firstKeptEntryIndex", None)
            known = isinstance(index, int) and 0 <= index < len(ids) and ids[index]
            entry.setdefault("firstKeptEntryId", ids[index] if known else entry_id)
        ids.append(entry_id)
        parent = entry_id
        yield entry


def _renamed(record: dict[str, Json]) -> dict[str, Json]:
    message = record.get("message")
    if isinstance(message, dict) and message.get("role") == "hookMessage":
        return {**record, "message": {**message, "role": "custom"}}
    return record
