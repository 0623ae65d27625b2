"""The forms a session can be written in: the log itself, chat messages of two providers, and Markdown.

An export is the live context (what the next request would carry), or with `whole` every message of the branch. What a
form cannot hold is counted and said, never dropped in silence.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from selfcompact.codec import Json
from selfcompact.compaction.planning.clean import clean_message
from selfcompact.entries import BranchSummaryEntry, CompactionEntry, message_of
from selfcompact.log.blobs import with_blobs
from selfcompact.log.chain import ancestors
from selfcompact.log.lines import encode_json
from selfcompact.log.reading import check_version, read_header, read_live, read_session, stream_json
from selfcompact.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    blocks,
    text_of,
)
from selfcompact.session.history import build_history
from selfcompact.text.secrets import Redactor
from selfcompact.text.surrogates import encodable


@dataclass
class Export:
    """An exported session. `lost` tells in words what the form could not hold, and how often."""

    content: bytes
    lost: Counter[str] = field(default_factory=Counter)


def export_session(path: Path, form: str, *, whole: bool = False, redact: Redactor | None = None) -> Export:
    """A session file in another form, one of `FORMS`, without secrets where `redact` is given.

    The form `pi` is the log itself, as it stands.

    Raises:
        SessionFileError: the file cannot be read or is not a session file of our version.
        KeyError: there is no such form.
    """
    if form == "pi":
        return _log(path)
    lost: Counter[str] = Counter()
    messages = _whole_branch(path) if whole else build_history(read_live(path).entries)
    if redact is not None:
        messages = [clean_message(message, redact) for message in messages]
    return Export(FORMS[form](messages, lost), lost)


def _whole_branch(path: Path) -> Sequence[Message]:
    """Every message on the way to the newest entry, with no compaction applied."""
    _, entries, _ = read_session(path)
    by_id = {entry.id: entry for entry in entries}

    def parent_of(entry_id: str) -> str | None:
        parent = by_id[entry_id].parent_id
        return parent if parent in by_id else None

    branch = [by_id[entry_id] for entry_id in ancestors(entries[-1].id if entries else None, parent_of)]
    said = [entry for entry in reversed(branch) if not isinstance(entry, CompactionEntry | BranchSummaryEntry)]
    return build_history([entry for entry in said if message_of(entry) is not None])


def _log(path: Path) -> Export:
    """The log as it stands, images put back into it so that every tool of that family shows them."""
    check_version(path, read_header(path))
    return Export(b"".join(encode_json(with_blobs(path, record)) for record in stream_json(path)))


def _openai(messages: Sequence[Message], lost: Counter[str]) -> bytes:
    out: list[Json] = []
    for message in messages:
        match message:
            case UserMessage():
                out.append({"role": "user", "content": _openai_content(message)})
            case AssistantMessage():
                out.append(_openai_assistant(message, lost))
            case ToolResultMessage():
                lost["images in tool results"] += _count(message, ImageContent)
                lost["error marks of tool results"] += message.is_error
                out.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": text_of(message)})
            case _:
                lost[f"messages of role {message.role}"] += 1
    return _json({"messages": out})


def _openai_content(message: UserMessage) -> Json:
    parts: list[Json] = []
    for block in blocks(message):
        if isinstance(block, TextContent):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, ImageContent):
            parts.append({"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}})
    only_text = len(parts) == 1 and parts[0]["type"] == "text"
    return parts[0]["text"] if only_text else parts


def _openai_assistant(message: AssistantMessage, lost: Counter[str]) -> Json:
    lost["thinking"] += _count(message, ThinkingContent)
    entry: dict[str, Json] = {"role": "assistant", "content": text_of(message) or None}
    if message.tool_calls:
        entry["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    return entry


def _anthropic(messages: Sequence[Message], lost: Counter[str]) -> bytes:
    out: list[dict[str, Json]] = []

    def add(role: str, content: list[Json]) -> None:
        if not content:
            return
        if out and out[-1]["role"] == role:
            out[-1]["content"].extend(content)
        else:
            out.append({"role": role, "content": content})

    for message in messages:
        match message:
            case UserMessage():
                add("user", [_anthropic_block(block, lost) for block in blocks(message)])
            case AssistantMessage():
                add("assistant", _anthropic_assistant(message, lost))
            case ToolResultMessage():
                content = [_anthropic_block(block, lost) for block in blocks(message)]
                result: dict[str, Json] = {
                    "type": "tool_result",
                    "tool_use_id": message.tool_call_id,
                    "content": content,
                }
                if message.is_error:
                    result["is_error"] = True
                add("user", [result])
            case _:
                lost[f"messages of role {message.role}"] += 1
    return _json({"messages": out})


def _anthropic_assistant(message: AssistantMessage, lost: Counter[str]) -> list[Json]:
    content: list[Json] = []
    for block in blocks(message):
        match block:
            case ThinkingContent() if block.thinking_signature:
                thinking = {"type": "thinking", "thinking": block.thinking, "signature": block.thinking_signature}
                content.append(thinking)
            case ThinkingContent():
                lost["thinking without a signature"] += 1
            case ToolCall():
                content.append({"type": "tool_use", "id": block.id, "name": block.name, "input": dict(block.arguments)})
            case TextContent() if not block.text.strip():
                pass
            case _:
                content.append(_anthropic_block(block, lost))
    return content


def _anthropic_block(block: object, lost: Counter[str]) -> Json:
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text}
    if isinstance(block, ImageContent):
        source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
        return {"type": "image", "source": source}
    kind = getattr(block, "type", type(block).__name__)
    lost[f"blocks of type {kind}"] += 1
    return {"type": "text", "text": f"[{kind}]"}


def _markdown(messages: Sequence[Message], lost: Counter[str]) -> bytes:
    parts: list[str] = []
    for message in messages:
        match message:
            case UserMessage():
                title = "From the host" if message.synthetic else "User"
                parts.append(f"## {title}\n\n{text_of(message)}")
            case AssistantMessage():
                parts.append(_markdown_assistant(message))
                lost["thinking signatures"] += sum(
                    bool(block.thinking_signature) for block in blocks(message) if isinstance(block, ThinkingContent)
                )
            case ToolResultMessage():
                title = "Error" if message.is_error else "Output"
                parts.append(f"**{title}**\n\n{fenced(text_of(message))}")
            case _:
                lost[f"messages of role {message.role}"] += 1
        lost["images"] += _count(message, ImageContent)
    return encodable("\n\n".join(parts) + "\n").encode()


def _markdown_assistant(message: AssistantMessage) -> str:
    parts = ["## Assistant"]
    for block in blocks(message):
        match block:
            case TextContent() if block.text.strip():
                parts.append(block.text)
            case ThinkingContent() if block.thinking.strip():
                parts.append("\n".join(f"> {line}" for line in block.thinking.splitlines()))
            case ToolCall():
                code = block.arguments.get("code")
                parts.append(
                    fenced(code, "python")
                    if isinstance(code, str)
                    else fenced(json.dumps(dict(block.arguments)), "json")
                )
            case _:
                pass
    return "\n\n".join(parts)


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in _backtick_runs(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _backtick_runs(text: str) -> list[str]:
    return [run for run in "".join(c if c == "`" else " " for c in text).split() if run]


def _count(message: Message, kind: type) -> int:
    return sum(isinstance(block, kind) for block in blocks(message))


def _json(data: Json) -> bytes:
    return json.dumps(data, ensure_ascii=True, indent=1).encode() + b"\n"


FORMS: Mapping[str, Callable[[Sequence[Message], Counter[str]], bytes]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "markdown": _markdown,
}
"""Forms made of messages; `pi`, the log itself, is the fourth."""
