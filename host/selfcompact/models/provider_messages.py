"""Our messages as the provider library's, and its responses as ours. Loses nothing that a provider may ask back.

What the library keeps beside the text (ids of parts, provider details of thinking) travels in `extra` under the key
`provider`, so that it is in the session log and goes back to the same provider.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from selfcompact.codec import Json
from selfcompact.messages import (
    AssistantMessage,
    Content,
    ImageContent,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    blocks,
    now_ms,
    text_of,
)
from selfcompact.models.protocol import RAW_ARGUMENTS
from selfcompact.text.surrogates import encodable

PROVIDER = "providerFields"
"""The key of `extra` under which the library's own fields are kept."""

STOP_REASONS: dict[str | None, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_call": "toolUse",
    "content_filter": "error",
    "error": "error",
    None: "stop",
}


def to_provider(system: str, messages: Sequence[Message], *, marks_errors: bool = True) -> list[ModelMessage]:
    """The library's messages. Neighbouring user texts and tool results become one request, as providers want it.

    `marks_errors`: whether the provider has a mark of its own for failed results. Without one the library would wrap
    them in JSON, in which a traceback is one long escaped line; they go as they are then.
    """
    found: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []

    def flush() -> None:
        if parts:
            found.append(ModelRequest(parts=list(parts), instructions=encodable(system) or None))
            parts.clear()

    for message in messages:
        match message:
            case UserMessage():
                parts.append(UserPromptPart(content=_user_content(message)))
            case ToolResultMessage():
                parts.append(_tool_return(message, marks_errors=marks_errors))
            case AssistantMessage():
                flush()
                found.append(_response(message))
            case _:
                pass  # the history has no other kinds; it is validated before it is sent
    flush()
    return found


def _encodable_json(value: Json) -> Json:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(key): _encodable_json(item) for key, item in value.items()}
    return [_encodable_json(item) for item in value] if isinstance(value, list) else value


def _user_content(message: UserMessage) -> str | list[UserContent]:
    content: list[UserContent] = []
    for block in blocks(message):
        if isinstance(block, TextContent):
            content.append(encodable(block.text))
        elif isinstance(block, ImageContent):
            content.append(_image(block))
    return content[0] if len(content) == 1 and isinstance(content[0], str) else content


def _tool_return(message: ToolResultMessage, *, marks_errors: bool) -> ToolReturnPart:
    images = [_image(block) for block in blocks(message) if isinstance(block, ImageContent)]
    text = encodable(text_of(message))
    content: Any = [text, *images] if images else text
    return ToolReturnPart(
        tool_name=message.tool_name,
        content=content,
        tool_call_id=message.tool_call_id,
        outcome="failed" if message.is_error and marks_errors else "success",
    )


def _image(block: ImageContent) -> BinaryContent:
    return BinaryContent(data=base64.b64decode(block.data), media_type=block.mime_type)


def _response(message: AssistantMessage) -> ModelResponse:
    parts: list[ModelResponsePart] = []
    for block in blocks(message):
        kept = _kept(block)
        match block:
            case TextContent():
                if block.text:
                    parts.append(TextPart(content=encodable(block.text), **kept))
            case ThinkingContent():
                parts.append(ThinkingPart(content=block.thinking, signature=block.thinking_signature, **kept))
            case ToolCall():
                raw = block.arguments.get(RAW_ARGUMENTS)
                arguments: Any = encodable(raw) if isinstance(raw, str) else _encodable_json(dict(block.arguments))
                parts.append(ToolCallPart(tool_name=block.name, args=arguments, tool_call_id=block.id, **kept))
            case _:
                pass
    provider = message.extra.get(PROVIDER)
    noted = provider if isinstance(provider, dict) else {}
    return ModelResponse(
        parts=parts,
        model_name=message.model,
        provider_name=noted.get("provider_name"),
        provider_response_id=noted.get("provider_response_id"),
        provider_details=noted.get("provider_details"),
    )


def _kept(block: Content) -> dict[str, Any]:
    kept = block.extra.get(PROVIDER)
    return dict(kept) if isinstance(kept, dict) else {}


def from_provider(response: ModelResponse, *, provider: str, model_id: str) -> AssistantMessage:
    """A response of the library as ours. Arguments that are not a JSON object are kept as they came."""
    content = [block for part in response.parts if (block := _block(part)) is not None]
    calls = any(isinstance(block, ToolCall) for block in content)
    stop_reason: StopReason = "toolUse" if calls else STOP_REASONS.get(response.finish_reason, "stop")
    kept = {
        "provider_name": response.provider_name,
        "provider_response_id": response.provider_response_id,
        "provider_details": _plain(response.provider_details),
    }
    return AssistantMessage(
        content=tuple(content),
        api="pydantic-ai",
        provider=provider,
        model=model_id,
        usage=usage_of(response.usage),
        stop_reason=stop_reason,
        timestamp=now_ms(),
        extra={PROVIDER: {key: value for key, value in kept.items() if value is not None}},
    )


def usage_of(usage: RequestUsage) -> Usage | None:
    """Usage with the prompt's parts told apart; the library counts cached tokens into the input. None when unknown."""
    if not usage.input_tokens and not usage.output_tokens:
        return None
    read, write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return Usage(
        input=max(0, (usage.input_tokens or 0) - read - write),
        output=usage.output_tokens or 0,
        cache_read=read,
        cache_write=write,
        total_tokens=(usage.input_tokens or 0) + (usage.output_tokens or 0),
    )


def _block(part: ModelResponsePart) -> Content | None:
    match part:
        case TextPart():
            return TextContent(text=part.content, extra=_extra(part)) if part.content else None
        case ThinkingPart():
            return ThinkingContent(thinking=part.content, thinking_signature=part.signature, extra=_extra(part))
        case ToolCallPart():
            return ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=_arguments(part), extra=_extra(part))
        case _:
            return None


def _arguments(part: ToolCallPart) -> dict[str, Json]:
    if isinstance(part.args, dict):
        return dict(part.args)
    text = part.args or ""
    try:
        data = json.loads(text) if text.strip() else {}
    except ValueError:
        data = None
    return data if isinstance(data, dict) else {RAW_ARGUMENTS: text}


def _extra(part: TextPart | ThinkingPart | ToolCallPart) -> dict[str, Json]:
    kept = {name: _plain(getattr(part, name, None)) for name in ("id", "provider_name", "provider_details")}
    kept = {name: value for name, value in kept.items() if value is not None}
    return {PROVIDER: kept} if kept else {}


def _plain(value: Any) -> Json:
    """What of a value of the library is JSON; the rest of an object (a time, an internal value) is left out."""
    if isinstance(value, dict):
        kept = {str(key): _plain(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not None} or None
    try:
        return json.loads(json.dumps(value)) if value is not None else None
    except (TypeError, ValueError):
        return None
