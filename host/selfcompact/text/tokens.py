"""How many tokens a text is, without asking a tokeniser.

Chars divided by four is two to four times too low for Chinese or Japanese and a fifth too high for English prose, so
the default estimator looks at what the text is made of. It cuts the text the way byte-pair tokenisers do before
they merge (words, digit groups, runs of punctuation, white space) and charges each piece by its kind. The prices were
fitted to the o200k ranks with `python -m benchmarks engine`, which prints the error per kind of text.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Protocol

from selfcompact.codec import Json
from selfcompact.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Content,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    blocks,
)
from selfcompact.text.images import image_tokens

MESSAGE_TOKENS = 4
"""Role and separators around each message, as the chat formats add them."""

SAMPLE_CHARS = 60_000
"""Longer texts are estimated from slices of this many characters in all, so that one append stays cheap."""

_SAMPLES = 12


class Estimator(Protocol):
    """Guesses token counts. Pure: the same input gives the same figure."""

    def text(self, text: str) -> int:
        """Tokens of a text; 0 only for the empty text."""

    def message(self, message: Message) -> int:
        """Tokens that a message adds to a request."""


class ScriptAwareEstimator:
    """Counts by kind of text: words, digits, punctuation, white space, CJK, other scripts, base64."""

    def text(self, text: str) -> int:
        """Tokens of a text; long texts are sampled."""
        if len(text) <= SAMPLE_CHARS:
            return _count(text)
        width = SAMPLE_CHARS // _SAMPLES
        step = (len(text) - width) / (_SAMPLES - 1)
        sample = sum(_count(text[int(i * step) : int(i * step) + width]) for i in range(_SAMPLES))
        return math.ceil(sample * len(text) / (width * _SAMPLES))

    def message(self, message: Message) -> int:
        """Tokens of everything in the message, and of what the chat format puts around it."""
        if isinstance(message, BashExecutionMessage):
            return MESSAGE_TOKENS + self.text(message.command) + self.text(message.output)
        total = MESSAGE_TOKENS + sum(self._block(block) for block in blocks(message))
        if isinstance(message, AssistantMessage) and message.tool_calls:
            total += MESSAGE_TOKENS * len(message.tool_calls)
        return total

    def _block(self, block: Content) -> int:
        if isinstance(block, TextContent):
            return self.text(block.text)
        if isinstance(block, ThinkingContent):
            return self.text(block.thinking)
        if isinstance(block, ToolCall):
            return self.text(block.name) + self.text(compact_json(block.arguments))
        if isinstance(block, ImageContent):
            return image_tokens(block.data)
        return self.text(compact_json(block.to_json()))


def compact_json(value: Json) -> str:
    """JSON without spaces and with every character as itself, as JavaScript writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def media_bytes(message: Message) -> int:
    """Bytes of base64 that the message's images put into a request; the second budget beside tokens."""
    return sum(len(block.data) for block in blocks(message) if isinstance(block, ImageContent))


_UPPER = "A-Z\u00c0-\u00d6\u00d8-\u00de"
_LOWER = "a-z\u00df-\u00f6\u00f8-\u00ff\u0100-\u024f"


@cache
def _pieces() -> re.Pattern[str]:
    """The cuts of the o200k tokeniser before it merges, as near as the standard library's expressions come to it.

    Compiled at its first use, which takes 8 ms.
    """
    return re.compile(
        r"(?P<blob>[A-Za-z0-9+/_-]{48,}={0,2})"
        rf"|(?P<word>[^\r\n{_UPPER}{_LOWER}0-9\u0250-\uffff\U00010000-\U0010ffff]?"
        rf"(?:[{_UPPER}]*[{_LOWER}]+|[{_UPPER}]+)(?:'(?:s|t|re|ve|m|ll|d)\b)?)"
        r"|(?P<digits>[0-9]{1,3})"
        r"|(?P<han>[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+)"
        r"|(?P<kana>[\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f]+)"
        r"|(?P<hangul> ?[\uac00-\ud7af\u1100-\u11ff]+)"
        r"|(?P<letters> ?[\u0250-\u02ff\u0370-\u1fff]+)"
        r"|(?P<punct> ?[!-/:-@\[-`{-~]+[\r\n/]*)"
        r"|(?P<space>\s*[\r\n]+|\s+(?!\S)|\s)"
        r"|(?P<wide>[\u0080-\u00bf\u00d7\u00f7\u0300-\u036f\u2000-\u206f\u3000-\u303f\ufe00-\ufe0f\uff00-\uff65])"
        r"|(?P<symbol>[\u2070-\u2fff])"
        r"|(?P<other>.)",
        re.DOTALL,
    )


_HEX = re.compile(r"[0-9a-fA-F]+")


def _count(text: str) -> int:
    return max(1, math.ceil(sum(_cost(match) for match in _pieces().finditer(text)))) if text else 0


def _cost(match: re.Match[str]) -> float:
    """Tokens of one piece. The figures are means over corpora of each kind, by the length of the piece."""
    kind = match.lastgroup
    length = match.end() - match.start()
    if kind == "word":
        return 0.95 + 0.03 * length if length < 9 else 0.73 + 0.055 * length
    if kind in ("digits", "space", "wide"):
        return 1.0
    if kind == "punct":
        return 1.0 if length < 3 else min(0.25 + 0.3 * length, 2.0 + 0.02 * length)
    if kind == "han":
        return 0.4 + 0.65 * length
    if kind == "kana":
        return 0.35 + 0.55 * length
    if kind == "hangul":
        return 0.3 + 0.5 * length
    if kind == "letters":
        return 0.85 + 0.135 * length
    if kind == "symbol":
        return 1.6
    if kind == "blob":
        return _blob(match.group())
    return _other(match.group())


def _blob(text: str) -> float:
    """A long run without spaces: base64 or hexadecimal by its mixture, else a path or an identifier."""
    if _HEX.fullmatch(text):
        return len(text) * 0.57
    mixed = sum(char.isdigit() or char.isupper() for char in text)
    if mixed > len(text) * 0.3:
        return len(text) * 0.68
    return sum(1.4 + 0.055 * len(part) for part in re.findall(r"[/_+-]*[A-Z]*[a-z]*[0-9]{0,3}", text) if part)


def _other(char: str) -> float:
    """One character outside the common planes: emoji are two tokens, rare ideographs and signs three."""
    point = ord(char)
    if 0x1F000 <= point <= 0x1FAFF:
        return 1.8
    return 3.0 if point > 0xFFFF else 1.5
