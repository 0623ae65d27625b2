from __future__ import annotations

import base64
import re
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import corpus
from benchmarks.tokeniser import o200k
from selfcompact.messages import ImageContent, TextContent, UserMessage
from selfcompact.text import tokens
from selfcompact.text.images import IMAGE_TOKENS, image_size, image_tokens
from selfcompact.text.tokens import ScriptAwareEstimator, media_bytes
from tests.chars_estimator import CharsEstimator
from tests.compaction.build import answered, called

ESTIMATOR = ScriptAwareEstimator()
TEXTS = corpus()
ALLOWED = dict.fromkeys(TEXTS, 0.15) | {"base64": 0.35, "emoji": 0.35}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_estimate_is_close_to_a_real_tokeniser(kind: str) -> None:
    real = o200k()(TEXTS[kind])
    assert abs(ESTIMATOR.text(TEXTS[kind]) / real - 1) <= ALLOWED[kind]


def test_chars_by_four_is_far_off_for_chinese_and_the_default_is_not() -> None:
    real = o200k()(TEXTS["chinese"])
    assert CharsEstimator().text(TEXTS["chinese"]) < real / 2
    assert ESTIMATOR.text(TEXTS["chinese"]) > real * 0.85


@given(st.text(min_size=1))
def test_no_text_but_the_empty_one_costs_nothing(text: str) -> None:
    """Emoji and rare ideographs included."""
    assert ESTIMATOR.text(text) > 0


@given(st.text(), st.text())
def test_a_longer_text_never_costs_much_less(first: str, second: str) -> None:
    assert ESTIMATOR.text(first + second) >= ESTIMATOR.text(first) - 3


def test_a_huge_text_is_sampled_and_stays_within_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXTS["python"] * 40
    looked_at = 0
    cost = tokens._cost

    def counted(match: re.Match[str]) -> float:
        nonlocal looked_at
        looked_at += len(match[0])
        return cost(match)

    monkeypatch.setattr(tokens, "_cost", counted)
    estimate = ESTIMATOR.text(text)
    monkeypatch.undo()
    assert 0 < looked_at < len(text) / 4
    assert abs(estimate / (ESTIMATOR.text(TEXTS["python"]) * 40) - 1) < 0.15


def test_everything_in_a_message_counts() -> None:
    assert ESTIMATOR.message(answered("hi", called("a", "x = 1" * 100))) > ESTIMATOR.message(answered("hi")) + 200


def png(width: int, height: int) -> str:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk).decode()


JPEG = base64.b64encode(
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 480, 640) + b"\x03\x01\x11\x00\x02\x11\x01\x03\x11\x01"
).decode()
GIF = base64.b64encode(b"GIF89a" + struct.pack("<HH", 320, 200) + b"\x00" * 20).decode()
WEBP = base64.b64encode(
    b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x1f\x03\x00\x57\x02\x00"
).decode()


@pytest.mark.parametrize(
    ("data", "size"), [(png(1500, 750), (1500, 750)), (JPEG, (640, 480)), (GIF, (320, 200)), (WEBP, (800, 600))]
)
def test_an_image_costs_by_its_size(data: str, size: tuple[int, int]) -> None:
    assert image_size(data) == size
    assert image_tokens(data) == max(85, min(1600, size[0] * size[1] // 750))


@given(st.binary(max_size=80))
def test_an_image_that_cannot_be_read_costs_something_and_never_fails(raw: bytes) -> None:
    for prefix in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"RIFF....WEBPVP8L", b"GIF89a"):
        assert image_tokens(base64.b64encode(prefix + raw).decode()) > 0
    assert image_tokens("!") == IMAGE_TOKENS


def test_media_has_a_second_account_in_bytes() -> None:
    message = UserMessage(
        content=(TextContent(text="see"), ImageContent(data="A" * 4000, mime_type="image/png")), timestamp=1
    )
    assert media_bytes(message) == 4000
