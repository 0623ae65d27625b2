"""What the model and the user said: messages and their content blocks, in the shape the session log stores.

The JSON form is that of the pi session family, version 3 (camelCase keys, `role` and `type` as tags). All values are
immutable; times are milliseconds since 1970 (UTC), as that format has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from selfcompact.codec import DecodeError, Json, Record, converted, decode_tagged

StopReason = Literal["stop", "length", "toolUse", "error", "aborted"]
"""Why a response ended. `toolUse`: it asks for tools; `error` and `aborted` carry no trustworthy usage."""


def now_ms() -> int:
    """The time now, in the unit that messages carry."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class TextContent(Record):
    """Text as it was said."""

    type: str = "text"
    text: str
    text_signature: str | None = None


@dataclass(frozen=True, kw_only=True)
class ThinkingContent(Record):
    """Reasoning. When it carries a signature the provider checks it: keep it byte for byte or drop it whole."""

    type: str = "thinking"
    thinking: str
    thinking_signature: str | None = None
    redacted: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ImageContent(Record):
    """An image; `data` is base64."""

    type: str = "image"
    data: str
    mime_type: str


@dataclass(frozen=True, kw_only=True)
class ToolCall(Record):
    """The model asks for a tool. `id` pairs the call with its result."""

    type: str = "toolCall"
    id: str
    name: str
    arguments: Mapping[str, Json]
    thought_signature: str | None = None


@dataclass(frozen=True, kw_only=True)
class UnknownContent(Record):
    """A content block of a type that we do not know, kept as it is."""

    type: str


Content = TextContent | ThinkingContent | ImageContent | ToolCall | UnknownContent

_CONTENT: Mapping[str, type[Content]] = {
    "text": TextContent,
    "thinking": ThinkingContent,
    "image": ImageContent,
    "toolCall": ToolCall,
}


def decode_content(data: Json) -> str | tuple[Content, ...]:
    if isinstance(data, str):
        return data
    if not isinstance(data, list):
        raise DecodeError(f"content should be text or a list of blocks, not {type(data).__name__}")
    blocks: list[Content] = []
    for block in data:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise DecodeError("a content block should be an object with a type")
        blocks.append(_CONTENT.get(block["type"], UnknownContent).from_json(block))
    return tuple(blocks)


def encode_content(value: str | tuple[Content, ...]) -> Json:
    return value if isinstance(value, str) else [block.to_json() for block in value]


@dataclass(frozen=True, kw_only=True)
class Usage(Record):
    """Tokens that the provider reported for one request.

    `input` are prompt tokens that were not read from or written to a cache, so the whole prompt is
    `input + cache_read + cache_write`.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int | None = None

    @property
    def prompt(self) -> int:
        """Every token of the prompt, cached or not."""
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        """What the next request will carry at least: this prompt and this output."""
        return self.total_tokens or (self.prompt + self.output)


def _encode_record(value: Record) -> Json:
    return value.to_json()


@dataclass(frozen=True, kw_only=True)
class UserMessage(Record):
    """What a person, or a program in a person's place, said.

    `synthetic` marks text that the host wrote (notes, the state manifest): it is never "the user's newest
    message", and it is kept in the log under the key `synthetic`.
    """

    role: str = "user"
    content: str | tuple[Content, ...] = converted(decode_content, encode_content)
    timestamp: int
    synthetic: bool | None = None


@dataclass(frozen=True, kw_only=True)
class AssistantMessage(Record):
    """One response of the model."""

    role: str = "assistant"
    content: str | tuple[Content, ...] = converted(decode_content, encode_content)
    api: str | None = None
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = converted(Usage.from_json, _encode_record, default=None)
    stop_reason: str = "stop"
    error_message: str | None = None
    timestamp: int

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools it asks for, in the order it asked."""
        return tuple(block for block in blocks(self) if isinstance(block, ToolCall))


@dataclass(frozen=True, kw_only=True)
class ToolResultMessage(Record):
    """What a tool answered; `tool_call_id` names the call."""

    role: str = "toolResult"
    tool_call_id: str
    tool_name: str
    content: str | tuple[Content, ...] = converted(decode_content, encode_content)
    details: Json = None
    is_error: bool = False
    timestamp: int


@dataclass(frozen=True, kw_only=True)
class BashExecutionMessage(Record):
    """A shell command that the user ran beside the conversation."""

    role: str = "bashExecution"
    command: str
    output: str
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = None
    exclude_from_context: bool | None = None
    timestamp: int


@dataclass(frozen=True, kw_only=True)
class CustomMessage(Record):
    """A message that an extension put into the context. It reaches the model as user text."""

    role: str = "custom"
    custom_type: str
    content: str | tuple[Content, ...] = converted(decode_content, encode_content)
    display: bool = True
    details: Json = None
    timestamp: int


@dataclass(frozen=True, kw_only=True)
class UnknownMessage(Record):
    """A message of a role that we do not know: kept in the log, not sent to a model."""

    role: str


Message = UserMessage | AssistantMessage | ToolResultMessage | BashExecutionMessage | CustomMessage | UnknownMessage

_MESSAGES: Mapping[str, type[Message]] = {
    "user": UserMessage,
    "assistant": AssistantMessage,
    "toolResult": ToolResultMessage,
    "bashExecution": BashExecutionMessage,
    "custom": CustomMessage,
    "hookMessage": CustomMessage,
}


def decode_message(data: Json) -> Message:
    """Read a message by its `role`.

    Raises:
        DecodeError: it is not an object, has no role, or lacks what its role demands.
    """
    return decode_tagged(data, "role", _MESSAGES, UnknownMessage, "a message")


def blocks(message: Message) -> tuple[Content, ...]:
    """The content of any message as blocks; plain text becomes one text block."""
    content = getattr(message, "content", ())
    if isinstance(content, str):
        return (TextContent(text=content),)
    return tuple(content)


def text_of(message: Message) -> str:
    """The text blocks of a message joined by newlines; no thinking, no images, no calls."""
    if isinstance(message, BashExecutionMessage):
        return f"$ {message.command}\n{message.output}"
    return "\n".join(block.text for block in blocks(message) if isinstance(block, TextContent))


def is_real_user(message: Message) -> bool:
    """Whether a person said this, rather than the host."""
    return isinstance(message, UserMessage) and not message.synthetic


def user(text: str, *, synthetic: bool = False, clock: Callable[[], int] = now_ms) -> UserMessage:
    """A user message of plain text, made now."""
    return UserMessage(content=(TextContent(text=text),), timestamp=clock(), synthetic=True if synthetic else None)


def encode_message(message: Message) -> dict[str, Json]:
    """The JSON object of a message."""
    return message.to_json()
