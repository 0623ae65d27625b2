"""Keep the beginning and the end of what is too long to send. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Any

TEXT_LIMIT = int(os.environ.get("HOST_BRIDGE_TEXT_LIMIT", "") or 64 * 1024)
"""Characters of one displayed value or one traceback line. The host cuts to its own limits; this bounds a message."""

DATA_LIMIT = 24 * 1024 * 1024
"""Characters of one piece of other data, such as an image in base64; the host's sockets take 32 MiB."""


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text, or its head and tail around the number of characters left out."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit:,} characters left out …]\n{text[-tail:]}"


def clip_data(data: dict[str, Any]) -> dict[str, Any]:
    """A bundle of display data with every piece bounded; what cannot be cut is left out and named."""
    clipped: dict[str, Any] = {}
    left_out = []
    for kind, value in data.items():
        size = len(value) if isinstance(value, (str, bytes)) else 0
        if kind.startswith("text/") and isinstance(value, str):
            clipped[kind] = clip(value)
        elif size > DATA_LIMIT:
            left_out.append(f"[{kind}, {size:,} characters, left out: too large to send]")
        else:
            clipped[kind] = value
    if left_out:
        clipped["text/plain"] = "\n".join([*filter(None, [clipped.get("text/plain")]), *left_out])
    return clipped
