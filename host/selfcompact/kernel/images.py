"""Images that a cell displays: decoded before they are kept, since whatever is kept goes to the provider at every turn.

A text that only begins like a PNG would be refused by the provider again and again. Blocking: it runs on the thread
that checks messages. Only PNG and JPEG, the formats that every provider takes, and nothing of another format's decoder.
"""

from __future__ import annotations

import base64
import binascii
import io
import warnings

from selfcompact.messages import ImageContent

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}

MAX_PIXELS = 16_000_000
"""Width times height: 64 MB while it is decoded. Providers scale down whatever has more than about two million."""

MAX_SIDE = 8_000
"""Pixels: more is refused by Anthropic."""


def checked_image(mime_type: str, encoded: str, max_bytes: int) -> tuple[ImageContent | None, str]:
    """The image that was decoded, or None and a note that says why it is not kept. Never raises."""
    if len(encoded) * 3 // 4 > max_bytes + 4096:
        return None, f"[{mime_type} of about {len(encoded) * 3 // 4:,} bytes left out: over {max_bytes:,}]"
    try:
        raw = base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        return None, f"[{mime_type} left out: it is not base64]"
    if len(raw) > max_bytes:
        return None, f"[{mime_type} of {len(raw):,} bytes left out: over {max_bytes:,}]"
    problem = problem_of(mime_type, raw)
    if problem:
        return None, f"[{mime_type} left out: {problem}]"
    return ImageContent(data=base64.b64encode(raw).decode(), mime_type=mime_type), ""


def problem_of(mime_type: str, raw: bytes) -> str:
    """Why these bytes are not an image that can be sent; empty when they are one. Every pixel of it is decoded."""
    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(raw), formats=[FORMATS[mime_type]]) as image:
            warnings.simplefilter("ignore")
            width, height = image.size
            if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
                return f"{width:,} × {height:,} pixels are more than {MAX_PIXELS:,}, or a side longer than {MAX_SIDE:,}"
            if getattr(image, "n_frames", 1) > 1:
                return "it is an animation"
            image.load()
            with Image.open(io.BytesIO(raw), formats=[FORMATS[mime_type]]) as again:
                again.verify()  # its check sums, up to its end: decoding alone is content without the last part
    except Exception:  # noqa: BLE001 - decoders of foreign bytes raise whatever comes to them
        return "it cannot be decoded as such an image"
    return ""
