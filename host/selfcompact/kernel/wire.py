"""Jupyter's messages as this host needs them: signed, checked, and read no further than necessary.

jupyter_client's own session decodes every part of every message, dates included. While a cell floods its host, most
messages are looked at only to be dropped, so here the signature is checked over the raw parts, then the header and the
parent are read, and nothing of the content. Protocol 5.3; pure but for the clock and the ids.
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

from selfcompact.kernel.content import header_of, parent_of

DELIMITER = b"<IDS|MSG>"
PROTOCOL = "5.3"

_MAX_TOPICS = 4
"""Parts that may stand before the delimiter: a PUB socket's topic."""

_SIGNATURE_CHARS = 64
"""Of HMAC-SHA256 in hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message that was signed with the kernel's key: its type, the request it belongs to, and what it says."""

    type: str
    parent_id: str
    raw_content: bytes


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
        """Read a message; None when it is not signed with the kernel's key or is not a message. Never raises."""
        start = next((at for at, part in enumerate(parts[:_MAX_TOPICS]) if part == DELIMITER), None)
        if start is None or len(parts) < start + 6:
            return None
        signature, signed = parts[start + 1], parts[start + 2 : start + 6]
        if len(signature) != _SIGNATURE_CHARS or not hmac.compare_digest(signature, self._sign(signed)):
            return None
        header = header_of(signed[0])
        return None if header is None else Message(header.msg_type, parent_of(signed[1]), signed[3])

    def _sign(self, parts: Sequence[bytes]) -> bytes:
        mac = self._mac.copy()
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()
