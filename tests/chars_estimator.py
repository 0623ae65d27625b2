"""The token estimate of the session family's own programs, to compare decisions and figures with theirs."""

from __future__ import annotations

import math

from selfcompact.messages import (
    BashExecutionMessage,
    Content,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    blocks,
)
from selfcompact.text.tokens import compact_json

IMAGE_CHARS = 4_800
"""What that family counts an image as."""


class CharsEstimator:
    """Characters divided by four, rounded up, per message."""

    def text(self, text: str) -> int:
        """A quarter of the characters, rounded up."""
        return math.ceil(len(text) / 4)

    def message(self, message: Message) -> int:
        """A quarter of the characters of everything in the message, rounded up once."""
        if isinstance(message, BashExecutionMessage):
            return math.ceil((len(message.command) + len(message.output)) / 4)
        return math.ceil(sum(_chars(block) for block in blocks(message)) / 4)


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
