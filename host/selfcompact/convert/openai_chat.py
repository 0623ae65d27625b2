"""Chat Completions messages: a list, or an object with `messages`, as programs store and send them."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selfcompact.codec import Json
from selfcompact.entries import FORMAT_VERSION, SessionHeader, message_entry, new_entry_id, now_iso
from selfcompact.errors import UsageError
from selfcompact.log.fork import write_new
from selfcompact.messages import (
    AssistantMessage,
    Content,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    now_ms,
)

_DATA_URL = re.compile(r"data:(?P<mime>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)


@dataclass
class Imported:
    """What an import came to. `lost` tells in words what could not be taken over, and how often."""

    target: Path
    messages: int = 0
    lost: Counter[str] = field(default_factory=Counter)


def import_openai_chat(source: Path, target: Path, *, cwd: Path) -> Imported:
    """Write a new session file out of Chat Completions messages.

    System and developer messages are not part of a session's history (each session has its own system prompt); they
    are counted as lost.

    Raises:
        UsageError: the source cannot be read, or a message in it has no such form; it names the message.
        SessionFileError: the target already exists or cannot be written.
    """
    messages = _load(source)
    done = Imported(target)
    converted = list(_converted(source, messages, done.lost))
    done.messages = len(converted)
    header = SessionHeader(version=FORMAT_VERSION, id=str(uuid.uuid4()), timestamp=now_iso(), cwd=str(cwd))

    def records() -> Iterator[Json]:
        yield header.to_json()
        parent: str | None = None
        for message in converted:
            entry = message_entry(message, parent, new_id=new_entry_id)
            parent = entry.id
            yield entry.to_json()

    write_new(target, records())
    return done


def _load(source: Path) -> list[Any]:
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{source} cannot be read ({error.strerror}); name an existing file") from error
    except ValueError as error:
        raise UsageError(f"{source} is not JSON ({error})") from error
    messages = data.get("messages") if isinstance(data, dict) else data
    if not isinstance(messages, list):
        raise UsageError(f"{source} should hold a list of chat messages, or an object with `messages`")
    return messages


def _converted(source: Path, messages: list[Any], lost: Counter[str]) -> Iterator[Message]:
    names: dict[str, str] = {}
    for number, data in enumerate(messages, 1):
        where = f"{source}, message {number}"
        if not isinstance(data, dict) or not isinstance(data.get("role"), str):
            raise UsageError(f"{where}: should be an object with a role")
        match data["role"]:
            case "system" | "developer":
                lost["system messages"] += 1
            case "user":
                yield UserMessage(content=_content(where, data.get("content"), lost), timestamp=now_ms())
            case "assistant":
                message = _assistant(where, data, lost)
                names.update({call.id: call.name for call in message.tool_calls})
                yield message
            case "tool" | "function":
                call_id = data.get("tool_call_id") or data.get("name") or ""
                yield ToolResultMessage(
                    tool_call_id=str(call_id),
                    tool_name=names.get(str(call_id), str(data.get("name") or "tool")),
                    content=_content(where, data.get("content"), lost),
                    timestamp=now_ms(),
                )
            case role:
                raise UsageError(f"{where}: the role {role!r} is not one of system, user, assistant, tool")


def _assistant(where: str, data: dict[str, Any], lost: Counter[str]) -> AssistantMessage:
    content: list[Content] = []
    reasoning = data.get("reasoning_content") or data.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        content.append(ThinkingContent(thinking=reasoning))
    content.extend(_content(where, data.get("content"), lost))
    if isinstance(data.get("refusal"), str):
        content.append(TextContent(text=data["refusal"]))
    content.extend(_call(where, call) for call in data.get("tool_calls") or [])
    calls = any(isinstance(block, ToolCall) for block in content)
    return AssistantMessage(
        content=tuple(content),
        api="openai-completions",
        provider="openai",
        model=data.get("model") if isinstance(data.get("model"), str) else None,
        stop_reason="toolUse" if calls else "stop",
        timestamp=now_ms(),
    )


def _call(where: str, call: Any) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UsageError(f"{where}: a tool call should have a function with a name")
    text = function.get("arguments")
    try:
        arguments = json.loads(text) if isinstance(text, str) and text.strip() else (text or {})
    except ValueError:
        arguments = {"raw": text}
    if not isinstance(arguments, dict):
        arguments = {"raw": arguments}
    return ToolCall(id=str(call.get("id") or new_entry_id()), name=function["name"], arguments=arguments)


def _content(where: str, data: Any, lost: Counter[str]) -> tuple[Content, ...]:
    if data is None:
        return ()
    if isinstance(data, str):
        return (TextContent(text=data),) if data else ()
    if not isinstance(data, list):
        raise UsageError(f"{where}: content should be text or a list of parts")
    found: list[Content] = []
    for part in data:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "input_text", "output_text") and isinstance(part.get("text"), str):
            found.append(TextContent(text=part["text"]))
        elif kind == "image_url" and (match := _DATA_URL.match(_url(part))):
            found.append(ImageContent(data=match["data"], mime_type=match["mime"]))
        elif kind == "image_url":
            lost["images that are only linked"] += 1
            found.append(TextContent(text=f"[image: {_url(part)[:200]}]"))
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            found.append(TextContent(text=part["refusal"]))
        else:
            lost[f"parts of type {kind}"] += 1
    return tuple(found)


def _url(part: dict[str, Any]) -> str:
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else ""
