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

IMAGE_CHARS = 4_800
"""What an image counts in characters where characters are the unit; the session family's own figure."""

IMAGE_TOKENS = 1_200
"""What an image costs when its size cannot be read: a 1000 x 900 picture by the rule width x height / 750."""

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


class CharsEstimator:
    """Characters divided by four, rounded up, per message: the rule of the session family's own programs."""

    def text(self, text: str) -> int:
        """A quarter of the characters, rounded up."""
        return math.ceil(len(text) / 4)

    def message(self, message: Message) -> int:
        """A quarter of the characters of everything in the message, rounded up once."""
        if isinstance(message, BashExecutionMessage):
            return math.ceil((len(message.command) + len(message.output)) / 4)
        return math.ceil(sum(_chars(block) for block in blocks(message)) / 4)


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
            return image_tokens(block)
        return self.text(compact_json(block.to_json()))


def compact_json(value: Json) -> str:
    """JSON without spaces and with every character as itself, as JavaScript writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def image_tokens(image: ImageContent) -> int:
    """Tokens of an image, from its size where the header tells it."""
    return IMAGE_TOKENS if image.data else 0


def media_bytes(message: Message) -> int:
    """Bytes of base64 that the message's images put into a request; the second budget beside tokens."""
    return sum(len(block.data) for block in blocks(message) if isinstance(block, ImageContent))


def _chars(block: Content) -> int:
    if isinstance(block, TextContent):
        return len(block.text)
    if isinstance(block, ThinkingContent):
        return len(block.thinking)
    if isinstance(block, ToolCall):
        return len(block.name) + len(compact_json(block.arguments))
    if isinstance(block, ImageContent):
        return IMAGE_CHARS
    return 0


_PIECES = re.compile(
    r"(?P<blob>(?=[A-Za-z0-9+/]*[0-9])(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])[A-Za-z0-9+/]{40,}={0,2})"
    r"|(?P<word> ?[A-Za-z]+)"
    r"|(?P<digits>[0-9]{1,3})"
    r"|(?P<han>[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+)"
    r"|(?P<kana>[\u3040-\u30ff\uff66-\uff9f]+)"
    r"|(?P<hangul>[\uac00-\ud7af\u1100-\u11ff]+)"
    r"|(?P<latin> ?[\u00c0-\u024f\u0370-\u03ff\u0400-\u04ff]+)"
    r"|(?P<space>\s+)"
    r"|(?P<punct> ?[!-/:-@\[-`{-~]+)"
    r"|(?P<wide>[\u2000-\u303f\uff00-\uff65]+)"
    r"|(?P<other>[^\x00-\x7f])"
    r"|(?P<control>[\x00-\x1f\x7f])"
)

_LONG_WORD = 8
"""Letters up to which a word is one token most of the time."""


def _count(text: str) -> int:
    if not text:
        return 0
    total = 0.0
    for match in _PIECES.finditer(text):
        kind = match.lastgroup
        length = match.end() - match.start()
        if kind == "word":
            total += 1.0 if length <= _LONG_WORD else 1.0 + (length - _LONG_WORD) * 0.13
        elif kind == "punct":
            total += 1.0 if length <= 2 else 1.0 + (length - 2) * 0.25
        elif kind == "space":
            total += _spaces(match.group())
        elif kind == "digits":
            total += 1.0
        elif kind == "blob" or kind == "han":
            total += length * 0.72
        elif kind in ("kana", "hangul"):
            total += length * 0.66
        elif kind == "latin":
            total += max(1.0, length * 0.32)
        elif kind == "wide":
            total += length * 0.9
        elif kind == "other":
            total += 2.2 if ord(match.group()) > 0xFFFF else 1.2
        else:
            total += 1.0
    return max(1, math.ceil(total))


def _spaces(run: str) -> float:
    """A single space goes with the next word; a newline with its indentation is one or two tokens."""
    if run == " ":
        return 0.3
    return 1.0 if "\n" not in run or run[-1] == "\n" else 1.6
