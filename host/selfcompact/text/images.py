"""How many tokens an image is, from the size that its first bytes tell."""

from __future__ import annotations

import base64
import binascii
import struct

IMAGE_TOKENS = 1_200
"""What an image costs when its size cannot be read: a 1000 x 900 picture."""

PIXELS_PER_TOKEN = 750
"""Width x height / 750: the rule that Anthropic publishes; others are of the same order."""

MIN_IMAGE_TOKENS, MAX_IMAGE_TOKENS = 85, 1_600
"""Providers scale larger images down; the smallest tile is billed whole."""

_HEADER_CHARS = 64 * 1024
"""Base64 characters that are looked at; a JPEG's size may stand behind its thumbnail."""


def image_tokens(data: str) -> int:
    """Tokens of a base64 image. Never raises: what cannot be read costs `IMAGE_TOKENS`."""
    size = image_size(data)
    if size is None:
        return IMAGE_TOKENS
    return max(MIN_IMAGE_TOKENS, min(MAX_IMAGE_TOKENS, size[0] * size[1] // PIXELS_PER_TOKEN))


def image_size(data: str) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, GIF, JPEG or WebP image, or None."""
    head = data[:_HEADER_CHARS]
    try:
        raw = base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return None
    try:
        return _size(raw)
    except struct.error:
        return None


def _size(raw: bytes) -> tuple[int, int] | None:
    if raw.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack_from(">II", raw, 16)
        return width, height
    if raw[:6] in (b"GIF87a", b"GIF89a"):
        width, height = struct.unpack_from("<HH", raw, 6)
        return width, height
    if raw[:4] == b"RIFF" and raw[8:15] == b"WEBPVP8":
        return _webp(raw)
    return _jpeg(raw) if raw[:2] == b"\xff\xd8" else None


def _webp(raw: bytes) -> tuple[int, int]:
    if raw[15:16] == b"X":
        return int.from_bytes(raw[24:27], "little") + 1, int.from_bytes(raw[27:30], "little") + 1
    if raw[15:16] == b"L":
        (bits,) = struct.unpack_from("<I", raw, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", raw, 26)
    return width & 0x3FFF, height & 0x3FFF


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(raw):
        if raw[at] != 0xFF:
            return None
        marker = raw[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", raw, at + 5)
            return width, height
        (length,) = struct.unpack_from(">H", raw, at + 2)
        at += 2 + length
    return None
