"""Large images beside the log: a file per content, named by its hash, referenced from the record.

A screenshot is some 200 kB of base64. In the log it would be read again at every opening and copied by every tool;
beside it, it is written once however often it is shown.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import tempfile
from pathlib import Path

from selfcompact.codec import Json

INLINE_BYTES = 32 * 1024
"""Base64 up to this length stays in the record: small pictures are not worth a file."""

REFERENCE = "selfcompactBlob"
"""The key that names the file; `data` is empty then."""


def blob_folder(log: Path) -> Path:
    """Where a log's images are kept."""
    return log.with_name(f"{log.name}.blobs")


def without_blobs(log: Path, data: Json) -> Json:
    """A record's JSON with large images moved into files; those are on the disk when this returns."""
    return _mapped(data, lambda block: _store(log, block))


def with_blobs(log: Path, data: Json) -> Json:
    """A record's JSON with its images put back. One whose file is gone becomes a text that says so."""
    return _mapped(data, lambda block: _restore(log, block))


def _mapped(data: Json, change: object) -> Json:
    message = data.get("message") if isinstance(data, dict) else None
    holder = message if isinstance(message, dict) else data
    content = holder.get("content") if isinstance(holder, dict) else None
    if not isinstance(content, list) or not any(_is_image(block) for block in content):
        return data
    assert callable(change)
    changed = {**holder, "content": [change(block) if _is_image(block) else block for block in content]}
    return {**data, "message": changed} if holder is message else changed


def _is_image(block: Json) -> bool:
    return isinstance(block, dict) and block.get("type") == "image"


def _store(log: Path, block: dict[str, Json]) -> dict[str, Json]:
    text = block.get("data")
    if not isinstance(text, str) or len(text) <= INLINE_BYTES:
        return block
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        return block
    if base64.b64encode(raw).decode() != text:
        return block  # not the canonical form: it would not come back as it was
    name = hashlib.sha256(raw).hexdigest()
    folder = blob_folder(log)
    target = folder / name
    if not target.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(target)
    return {**block, "data": "", REFERENCE: name}


def _restore(log: Path, block: dict[str, Json]) -> dict[str, Json]:
    name = block.get(REFERENCE)
    if not isinstance(name, str):
        return block
    rest = {key: value for key, value in block.items() if key != REFERENCE}
    if len(name) == 64 and all(digit in "0123456789abcdef" for digit in name):
        try:
            raw = (blob_folder(log) / name).read_bytes()
            return {**rest, "data": base64.b64encode(raw).decode()}
        except OSError:
            pass
    return {"type": "text", "text": f"[an image that was kept beside the log is missing: {name[:64]}]"}
