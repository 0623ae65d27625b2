"""A conversation as inert text for a summariser.

One text per message, so that a conversation can be cut into windows at message boundaries. Secrets are taken out
first, then long results are cut, then everything that could be taken for structure is disarmed: in this order,
because a cut must not go through a secret, and disarming must be the last thing that happens to a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

from selfcompact.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Content,
    CustomMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    blocks,
)
from selfcompact.text.clip import clip
from selfcompact.text.inert import inert

TOOL_RESULT_CHARS = 2_000
"""What of a tool result reaches the summariser."""

ARGUMENT_CHARS = 4_000
"""What of one argument of a tool call reaches the summariser: a cell's code matters more than a result."""

HEAD_SHARE = 0.7
"""Share of a cut text that comes from its beginning; errors stand at the end."""

_DATA_URL = re.compile(r"data:(?P<kind>[\w.+/-]{0,80});base64,[A-Za-z0-9+/=\s]{64,}")
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{60,}+={0,2}\r?\n?){4,}(?![A-Za-z0-9+/])|(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{400,}={0,2}"
)


def transcript(
    messages: Iterable[Message],
    *,
    drop_thinking: bool = False,
    tool_result_chars: int = TOOL_RESULT_CHARS,
) -> tuple[str, ...]:
    """One labelled text per message that has anything to say, oldest first.

    Results flagged useless are left out with their calls, errors never. `drop_thinking` leaves reasoning out, for
    targets that would take it for their own.
    """
    messages = tuple(messages)
    useless = _useless_calls(messages)
    rendered = (_render(message, drop_thinking, tool_result_chars, useless) for message in messages)
    return tuple(text for text in rendered if text)


def without_base64(text: str) -> str:
    """The text with a placeholder for each stretch of base64."""
    text = _DATA_URL.sub(lambda match: f"[{match['kind'] or 'data'}: {len(match[0]):,} characters left out]", text)
    return _BASE64.sub(
        lambda match: f"[base64: {len(match[0]):,} characters left out]" if _mixed(match[0]) else match[0], text
    )


def _mixed(text: str) -> bool:
    return len(set(text)) > 20


def _render(message: Message, drop_thinking: bool, result_chars: int, useless: frozenset[str]) -> str:
    def clean(text: str, limit: int | None = None) -> str:
        text = without_base64(text)
        return inert(text if limit is None else clip(text, limit)).strip()

    if isinstance(message, UserMessage):
        return _labelled("Host" if message.synthetic else "User", clean(_visible(blocks(message))))
    if isinstance(message, AssistantMessage):
        return "\n".join(filter(None, (_assistant_block(b, clean, drop_thinking, useless) for b in blocks(message))))
    if isinstance(message, ToolResultMessage):
        if message.tool_call_id in useless:
            return ""
        label = f"Tool Result{' (error)' if message.is_error else ''}"
        return _labelled(label, clean(_visible(blocks(message)), result_chars) or "(nothing)")
    if isinstance(message, BashExecutionMessage):
        if message.exclude_from_context:
            return ""
        return _labelled("Shell", clean(f"$ {message.command}\n{message.output}", result_chars))
    if isinstance(message, CustomMessage):
        return _labelled("Note", clean(_visible(blocks(message))))
    return ""


def _labelled(label: str, text: str) -> str:
    return f"[{label}]: {text}" if text else ""


def _assistant_block(
    block: Content, clean: Callable[[str, int | None], str], drop_thinking: bool, useless: frozenset[str]
) -> str:
    if isinstance(block, TextContent):
        return _labelled("Assistant", clean(block.text, None))
    if isinstance(block, ThinkingContent):
        return "" if drop_thinking or block.redacted else _labelled("Think", clean(block.thinking, None))
    if isinstance(block, ToolCall):
        if block.id in useless:
            return ""
        arguments = "\n".join(
            clean(
                f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}", ARGUMENT_CHARS
            )
            for name, value in block.arguments.items()
        )
        return f"[Tool Call]: {clean(block.name, None)}\n{arguments}".strip()
    return _labelled("Assistant", _placeholder(block))


def _visible(content: Sequence[Content]) -> str:
    return "\n".join(block.text if isinstance(block, TextContent) else _placeholder(block) for block in content)


def _placeholder(block: Content) -> str:
    if isinstance(block, ImageContent):
        return f"[image: {block.mime_type}, {len(block.data) * 3 // 4:,} bytes]"
    return f"[{block.type}]"


def _useless_calls(messages: Sequence[Message]) -> frozenset[str]:
    return frozenset(
        message.tool_call_id
        for message in messages
        if isinstance(message, ToolResultMessage) and not message.is_error and _is_useless(message)
    )


def _is_useless(message: ToolResultMessage) -> bool:
    details = message.details if isinstance(message.details, dict) else {}
    return message.extra.get("useless") is True or details.get("useless") is True
