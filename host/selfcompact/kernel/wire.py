"""Jupyter's messages as this host needs them: signed, checked, and read no further than necessary.

jupyter_client's own session decodes every part of every message, dates included. While a cell floods its host, most
messages are looked at only to be dropped, so here the header and the parent are read and the content when it is asked
for. Protocol 5.3; pure but for the clock and the ids.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

DELIMITER = b"<IDS|MSG>"
PROTOCOL = "5.3"


@dataclass(frozen=True)
class Message:
    """One message that was signed with the kernel's key. `content` decodes it, to an empty object when it is none."""

    type: str
    parent_id: str
    raw_content: bytes

    @property
    def content(self) -> dict[str, Any]:
        """What it says."""
        try:
            value = json.loads(self.raw_content)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class Wire:
    """Packs and unpacks the messages between one client and one kernel."""

    def __init__(self, key: bytes) -> None:
        self._mac = hmac.new(key, digestmod=hashlib.sha256)
        self._session = uuid.uuid4().hex

    def pack(self, message_type: str, content: Mapping[str, Any]) -> tuple[str, list[bytes]]:
        """A new message: its id, and its parts ready to send."""
        message_id = uuid.uuid4().hex
        header = {
            "msg_id": message_id,
            "msg_type": message_type,
            "session": self._session,
            "username": "selfcompact",
            "date": datetime.now(UTC).isoformat(),
            "version": PROTOCOL,
        }
        parts = [json.dumps(header).encode(), b"{}", b"{}", json.dumps(content).encode()]
        return message_id, [DELIMITER, self._sign(parts), *parts]

    def unpack(self, parts: Sequence[bytes]) -> Message | None:
        """Read a message; None when it is not signed with the kernel's key or is not a message."""
        try:
            start = parts.index(DELIMITER)
            signature, signed = parts[start + 1], parts[start + 2 : start + 6]
            if len(signed) != 4 or not hmac.compare_digest(signature, self._sign(signed)):
                return None
            header, parent = json.loads(signed[0]), json.loads(signed[1])
            return Message(str(header["msg_type"]), str(parent.get("msg_id", "")), signed[3])
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def _sign(self, parts: Sequence[bytes]) -> bytes:
        mac = self._mac.copy()
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()
