"""Large images stay out of the log's lines and come back as they were."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from selfcompact.codec import Json
from selfcompact.entries import MessageEntry, now_iso
from selfcompact.log import SessionLog, read_session
from selfcompact.log.blobs import INLINE_BYTES, blob_folder, with_blobs, without_blobs
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


def record(**block: Any) -> dict[str, Json]:
    return {"type": "message", "message": {"role": "user", "content": [{"type": "image", "mimeType": "m/t", **block}]}}


def text_of_length(length: int) -> str:
    return base64.b64encode(b"x" * (length * 3 // 4)).decode()


def test_what_is_longer_than_the_limit_moves_and_what_is_exactly_as_long_stays(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    assert INLINE_BYTES == 32 * 1024
    at_the_limit = record(data=text_of_length(INLINE_BYTES))
    assert len(text_of_length(INLINE_BYTES)) == INLINE_BYTES
    assert without_blobs(log, at_the_limit) == at_the_limit
    assert not blob_folder(log).exists()
    over = record(data=text_of_length(INLINE_BYTES + 4), note="kept")
    moved = without_blobs(log, over)
    (file,) = blob_folder(log).iterdir()
    assert blob_folder(log) == tmp_path / "s.jsonl.blobs"
    assert moved == record(data="", note="kept", selfcompactBlob=file.name)
    assert file.name == hashlib.sha256(file.read_bytes()).hexdigest()
    assert with_blobs(log, moved) == over


@pytest.mark.parametrize(
    "data",
    [
        "!" * (INLINE_BYTES * 2),
        text_of_length(INLINE_BYTES * 2) + "\n",
        text_of_length(INLINE_BYTES * 2)[:-2] + "B=",
        7,
        None,
    ],
    ids=["no base64", "base64 with a newline", "base64 that is not canonical", "a number", "nothing"],
)
def test_what_would_not_come_back_as_it_was_stays_in_its_record(tmp_path: Path, data: Any) -> None:
    log = tmp_path / "s.jsonl"
    assert without_blobs(log, record(data=data)) == record(data=data)
    assert not blob_folder(log).exists()


def test_only_images_of_messages_and_of_custom_messages_move_and_everything_else_stays(tmp_path: Path) -> None:
    log, data = tmp_path / "s.jsonl", text_of_length(INLINE_BYTES * 2)
    image: Json = {"type": "image", "data": data, "mimeType": "m/t"}
    text: Json = {"type": "text", "text": data}
    custom: Json = {"type": "custom_message", "customType": "x", "content": [text, image]}
    moved = without_blobs(log, custom)
    assert isinstance(moved, dict)
    assert isinstance(moved["content"], list)
    assert moved["content"][0] == text
    assert len(str(moved["content"][1])) < 200
    assert {**moved, "content": None} == {"type": "custom_message", "customType": "x", "content": None}
    assert with_blobs(log, moved) == custom
    others: list[Json] = [
        {"type": "custom", "data": [image]},
        {"type": "message", "message": {"content": data}},
        {"type": "message", "message": {"content": [text]}},
        [image],
        "text",
    ]
    for other in others:
        assert without_blobs(log, other) is other
        assert with_blobs(log, other) is other
    assert len(list(blob_folder(log).iterdir())) == 1


@pytest.mark.parametrize("name", ["0" * 64, "0" * 63, "0" * 65, "g" * 64, "A" * 64, "../" + "0" * 61])
def test_a_reference_that_leads_nowhere_becomes_a_text_that_names_it(tmp_path: Path, name: str) -> None:
    log = tmp_path / "s.jsonl"
    blob_folder(log).mkdir()
    for odd in {"0" * 63, "0" * 65, "g" * 64, "A" * 64} & {name}:
        (blob_folder(log) / odd).write_bytes(b"not ours")
    found = with_blobs(log, record(data="", selfcompactBlob=name))
    text = f"[an image that was kept beside the log is missing: {name[:64]}]"
    assert found == {"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}
    assert with_blobs(log, record(data="", selfcompactBlob=5)) == record(data="", selfcompactBlob=5)
