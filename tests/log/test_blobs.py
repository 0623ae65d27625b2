"""Large images stay out of the log's lines and come back as they were."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from selfcompact.entries import MessageEntry, now_iso
from selfcompact.log import SessionLog, read_session
from selfcompact.log.blobs import INLINE_BYTES, blob_folder
from selfcompact.messages import ImageContent, TextContent, UserMessage


def with_image(entry_id: str, raw: bytes, parent: str | None = None) -> MessageEntry:
    image = ImageContent(data=base64.b64encode(raw).decode(), mime_type="image/png")
    return MessageEntry(
        id=entry_id,
        parent_id=parent,
        timestamp=now_iso(),
        message=UserMessage(content=(TextContent(text="look"), image), timestamp=1),
    )


def test_a_large_image_is_a_file_beside_the_log_written_once(tmp_path: Path) -> None:
    path, raw = tmp_path / "s.jsonl", os.urandom(INLINE_BYTES * 4)
    entries = [with_image("a", raw), with_image("b", raw, "a")]
    with SessionLog.open(path, cwd=tmp_path) as log:
        for entry in entries:
            log.append(entry)
    assert path.stat().st_size < 2_000
    assert len(list(blob_folder(path).iterdir())) == 1
    with SessionLog.open(path, cwd=tmp_path) as log:
        assert list(log.entries) == entries


def test_a_small_image_stays_in_its_record(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with SessionLog.open(path, cwd=tmp_path) as log:
        log.append(with_image("a", b"tiny"))
    assert not blob_folder(path).exists()
    assert base64.b64encode(b"tiny") in path.read_bytes()


def test_a_missing_file_becomes_a_text_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with SessionLog.open(path, cwd=tmp_path) as log:
        log.append(with_image("a", os.urandom(INLINE_BYTES * 2)))
    for file in blob_folder(path).iterdir():
        file.unlink()
    _, (entry,), damage = read_session(path)
    assert damage == []
    assert isinstance(entry, MessageEntry)
    assert "is missing" in str(entry.message)


def test_a_reference_never_leads_out_of_the_folder(tmp_path: Path) -> None:
    path, secret = tmp_path / "s.jsonl", tmp_path / "secret"
    secret.write_text("hidden")
    with SessionLog.open(path, cwd=tmp_path) as log:
        log.append(with_image("a", b"tiny"))
    tiny = base64.b64encode(b"tiny").decode()
    path.write_text(path.read_text().replace(f'"data":"{tiny}"', '"data":"","selfcompactBlob":"../secret"'))
    _, (entry,), _ = read_session(path)
    assert base64.b64encode(b"hidden").decode() not in str(entry)
    assert "is missing" in str(entry)
