"""Large images beside the log: a file per content, named by its hash, referenced from the record.

A screenshot is some 200 kB of base64. In the log it would be read again at every opening and copied by every tool;
beside it, it is written once however often it is shown.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import hashlib
import os
import tempfile
from pathlib import Path

from selfcompact.codec import Json
from selfcompact.private_files import (
    NotRegular,
    create_private,
    folder_itself,
    make_private_folder,
    read_beneath,
    read_within,
)

INLINE_BYTES = 32 * 1024
"""Base64 up to this length stays in the record: small pictures are not worth a file."""

MAX_BLOB_BYTES = 256 * 1024 * 1024
"""Of one image's file; far more than any provider takes."""

REFERENCE = "selfcompactBlob"
"""The key that names the file; `data` is empty then."""


def blob_folder(log: Path) -> Path:
    """Where a log's images are kept."""
    return log.with_name(f"{log.name}.blobs")


def copy_blobs(source: Path, target: Path) -> None:
    """Copy the images of one log beside another one: files with the names that we give, and nothing that is a link."""
    with folder_itself(blob_folder(source)) as folder:
        if folder is None:
            return
        make_private_folder(blob_folder(target))
        for name in sorted(filter(is_name, os.listdir(folder))):  # noqa: PTH208 - by descriptor
            try:
                create_private(blob_folder(target) / name, read_within(folder, name, MAX_BLOB_BYTES))
            except (FileExistsError, NotRegular):
                continue
            except OSError as error:
                if error.errno != errno.ELOOP:  # a link, which is none of our images
                    raise


def remove_blobs(log: Path) -> None:
    """Remove a log's images, and their folder when nothing else is in it. What a link leads to, and what has another
    name than an image gets, stays."""
    with folder_itself(blob_folder(log)) as folder:
        if folder is None:
            return
        for name in filter(is_name, os.listdir(folder)):  # noqa: PTH208 - by descriptor
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    with contextlib.suppress(OSError):
        blob_folder(log).rmdir()


def is_name(name: str) -> bool:
    """Whether a file's name is one that an image gets: the hash of its content."""
    return len(name) == 64 and all(digit in "0123456789abcdef" for digit in name)


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
    if is_name(name):
        try:
            raw = read_beneath(log.parent, Path(blob_folder(log).name) / name, MAX_BLOB_BYTES)
            return {**rest, "data": base64.b64encode(raw).decode()}
        except OSError:
            pass
    return {"type": "text", "text": f"[an image that was kept beside the log is missing: {name[:64]}]"}
