"""A plan without secrets: redacted where it begins, on whole texts, before anything is cut out of them.

Literals, excerpts, file lists and transcripts are taken from the messages of a plan. A secret that is looked for only
in what was taken may have lost the name that stood beside it, or its own end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from selfcompact.codec import Json
from selfcompact.compaction.planning.path import Span
from selfcompact.compaction.planning.plan import Plan
from selfcompact.messages import (
    BashExecutionMessage,
    Content,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
)
from selfcompact.text.secrets import Redactor


class CleanSpan(Span):
    """The messages of a stretch of entries without their secrets, made when they are first looked at."""

    def __init__(self, span: Span, redact: Redactor) -> None:
        super().__init__(span._entries, span._start, span._stop)
        self._redact = redact

    @cached_property
    def _messages(self) -> tuple[Message, ...]:
        return tuple(clean_message(message, self._redact) for message in super()._messages)


def without_secrets(plan: Plan, redact: Redactor) -> Plan:
    """The same plan, and nothing that can be taken from it has a secret in it. Cleaning it twice is fine."""
    return replace(
        plan,
        to_summarise=_clean_span(plan.to_summarise, redact),
        turn_prefix=_clean_span(plan.turn_prefix, redact),
        removed=_clean_span(plan.removed, redact),
        previous_summary=redact(plan.previous_summary) if plan.previous_summary else plan.previous_summary,
        instructions=redact(plan.instructions) if plan.instructions else plan.instructions,
        newest_user_message=redact(plan.newest_user_message) if plan.newest_user_message else plan.newest_user_message,
        user_messages=tuple(map(redact, plan.user_messages)),
        earlier_literals=tuple(map(redact, plan.earlier_literals)),
        earlier_details=cast("dict[str, Json] | None", _clean_json(plan.earlier_details, redact)),
    )


def clean_message(message: Message, redact: Redactor) -> Message:
    """The message without secrets."""
    if isinstance(message, BashExecutionMessage):
        return replace(message, command=redact(message.command), output=redact(message.output))
    content = getattr(message, "content", None)
    if isinstance(content, str):
        cleaned: Any = redact(content)
    elif isinstance(content, Sequence):
        cleaned = tuple(_clean_block(block, redact) for block in content)
    else:
        return message
    return replace(message, content=cleaned)


def _clean_span(span: Span, redact: Redactor) -> Span:
    return span if isinstance(span, CleanSpan) else CleanSpan(span, redact)


def _clean_block(block: Content, redact: Redactor) -> Content:
    if isinstance(block, TextContent):
        return replace(block, text=redact(block.text))
    if isinstance(block, ThinkingContent):
        return replace(block, thinking=redact(block.thinking))
    if isinstance(block, ToolCall):
        return replace(block, arguments=cast("dict[str, Json]", _clean_json(block.arguments, redact)))
    return block


def _clean_json(value: Any, redact: Redactor, name: str = "") -> Any:
    if isinstance(value, str):
        return redact.value(name, value) if name else redact(value)
    if isinstance(value, dict):
        return {redact(key): _clean_json(item, redact, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_json(item, redact) for item in value]
    return value
