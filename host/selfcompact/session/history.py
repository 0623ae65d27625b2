"""The messages of the next request, built from the session's entries, and the rules every request obeys.

Providers refuse a history in which a tool result has no call, a call has no result, or roles come in an order they
do not know; one such history ends a session for good. So the rules are enforced here, at the one place where every
history is built, and not where something might break them. Kept messages come out as the objects they went in as.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from selfcompact.compaction.planning.rebuild import is_user_messages, rebuilt
from selfcompact.compaction.style.frame import framed, framed_branch
from selfcompact.entries import BranchSummaryEntry, CompactionEntry, CustomEntry, Entry, iso_to_ms, message_of
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
    text_of,
)

UNKNOWN_OUTCOME = "This call did not complete; whether it had effects is unknown."
"""The answer that a call gets when the session has none for it."""

GOES_ON = "(The previous response ended here; the session went on without a new request.)"
"""Stands between two responses that follow each other."""

IMAGES_WITHHELD = "selfcompact.imagesWithheld"
"""The record that names the entries whose images a provider refused."""

WITHHELD = "[An image stood here. The provider could not take it, so it is not sent; it is in the session log.]"
"""Stands in its place."""

BEGINS = "(The session begins with what follows.)"
"""Stands first when a history would not begin with a user message."""


def build_history(entries: Sequence[Entry]) -> tuple[Message, ...]:
    """The messages that the model gets next, always valid: `validate_history` finds nothing in them.

    `entries` is the path of the session, or any tail of it that contains the newest compaction and its first kept
    entry. Pure; linear in the live context. User, assistant and tool messages of the kept tail are the very objects of
    the log, except where a rule demands otherwise (see `repaired`). What had arrived of a response before it broke off
    is left out when the response that was asked for again follows it.
    """
    return repaired(_without_failed_attempts(list(_context(entries))))


def repaired(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages made valid.

    - Each call is followed by its result. A call without one is answered with `UNKNOWN_OUTCOME`; a result without
      call becomes text of the host, or goes when it is empty. A second use of a call id gets an id of its own.
    - Responses that failed or were aborted lose their reasoning, which no provider signed; empty messages go.
    - The first message is a user message, and no response follows a response directly.
    """
    paired = _paired([shown for message in messages if (shown := _shown(message)) is not None])
    return tuple(_in_turns(paired))


def summary_message(entry: CompactionEntry) -> UserMessage:
    """The user message, marked as the host's, that stands for everything a compaction replaced."""
    return _host_text(framed(entry.summary), iso_to_ms(entry.timestamp))


def validate_history(messages: Sequence[Message]) -> list[str]:
    """What is wrong with a history, one sentence each; an empty list when it may be sent.

    Checked: only user, assistant and tool messages; the first is a user message; calls and results complete, adjacent
    and with unique ids; no response directly after a response; nothing empty.
    """
    problems: list[str] = []
    if not any(isinstance(message, UserMessage) for message in messages):
        problems.append("there is no user message")
    elif not isinstance(messages[0], UserMessage):
        problems.append("the first message is not a user message")
    seen: set[str] = set()
    open_calls: dict[str, int] = {}
    previous: Message | None = None
    for index, message in enumerate(messages):
        if not isinstance(message, UserMessage | AssistantMessage | ToolResultMessage):
            problems.append(f"message {index} has the role {message.role}, which no provider knows")
            continue
        if isinstance(message, ToolResultMessage):
            if open_calls.pop(message.tool_call_id, None) is None:
                problems.append(f"message {index} is a result for {message.tool_call_id!r}, which is not open")
        else:
            problems.extend(f"the call {call!r} of message {at} has no result" for call, at in open_calls.items())
            open_calls = {}
            if is_empty(message):
                problems.append(f"message {index} is empty")
        if isinstance(message, AssistantMessage):
            if isinstance(previous, AssistantMessage):
                problems.append(f"message {index} is a response that follows a response")
            for call in message.tool_calls:
                if call.id in seen:
                    problems.append(f"message {index} uses the call id {call.id!r} again")
                seen.add(call.id)
                open_calls[call.id] = index
        previous = message
    problems.extend(f"the call {call!r} of message {at} has no result" for call, at in open_calls.items())
    return problems


def is_empty(message: Message) -> bool:
    """Whether a message has nothing that a provider would accept as content."""
    return not any(not isinstance(block, TextContent) or block.text.strip() for block in blocks(message))


def _context(entries: Sequence[Entry]) -> Iterator[Message]:
    """Messages of the live context in order, as the log has them."""
    newest = next((i for i in range(len(entries) - 1, -1, -1) if isinstance(entries[i], CompactionEntry)), None)
    start = 0
    if newest is not None:
        compaction = entries[newest]
        assert isinstance(compaction, CompactionEntry)
        yield from rebuilt(compaction) if is_user_messages(compaction) else (summary_message(compaction),)
        kept = compaction.first_kept_entry_id
        start = next((i for i in range(newest - 1, -1, -1) if entries[i].id == kept), newest)
    withheld = withheld_images(entries)
    for entry in entries[start:]:
        if isinstance(entry, BranchSummaryEntry):
            yield _host_text(framed_branch(entry.summary), iso_to_ms(entry.timestamp))
        elif (message := message_of(entry)) is not None:
            yield _without_images(message) if entry.id in withheld else message


def withheld_images(entries: Iterable[Entry]) -> frozenset[str]:
    """The entries whose images a provider refused: they are not sent again."""
    found: set[str] = set()
    for entry in entries:
        if isinstance(entry, CustomEntry) and entry.custom_type == IMAGES_WITHHELD and isinstance(entry.data, dict):
            ids = entry.data.get("entryIds")
            found.update(one for one in ids if isinstance(one, str)) if isinstance(ids, list) else None
    return frozenset(found)


def has_image(message: Message) -> bool:
    """Whether a message carries an image."""
    return any(isinstance(block, ImageContent) for block in blocks(message))


def _without_images(message: Message) -> Message:
    if not isinstance(message, UserMessage | ToolResultMessage | CustomMessage):
        return message
    shown = (TextContent(text=WITHHELD) if isinstance(block, ImageContent) else block for block in blocks(message))
    return replace(message, content=tuple(shown))


def _shown(message: Message) -> Message | None:
    """The message as a provider may see it, or None when it has no place in a history."""
    if isinstance(message, BashExecutionMessage):
        if message.exclude_from_context:
            return None
        return _host_text(f"The user ran a command:\n{text_of(message)}", message.timestamp)
    if isinstance(message, CustomMessage):
        content = tuple(block for block in blocks(message) if not _is_blank(block))
        return UserMessage(content=content, timestamp=message.timestamp, synthetic=True) if content else None
    if isinstance(message, AssistantMessage):
        if message.stop_reason in ("error", "aborted"):
            said = tuple(b for b in blocks(message) if not isinstance(b, ThinkingContent) and not _is_blank(b))
            return replace(message, content=said) if said else None
        return None if is_empty(message) else message
    if isinstance(message, ToolResultMessage):
        return message
    return message if isinstance(message, UserMessage) and not is_empty(message) else None


def _without_failed_attempts(messages: Sequence[Message]) -> list[Message]:
    kept: list[Message] = []
    for message in messages:
        before = kept[-1] if kept and isinstance(message, AssistantMessage) else None
        if isinstance(before, AssistantMessage) and before.stop_reason == "error":
            kept.pop()
        kept.append(message)
    return kept


def _is_blank(block: Content) -> bool:
    return isinstance(block, TextContent) and not block.text.strip()


def _paired(messages: Sequence[Message]) -> list[Message]:
    """Each response's results right behind it, complete, under ids that are used once."""
    answers = _answers(messages)
    used: set[str] = set()
    result: list[Message] = []
    for index, message in enumerate(messages):
        if isinstance(message, ToolResultMessage):
            if index not in answers.taken and text_of(message).strip():
                text = f"A result of an earlier call of {message.tool_name}:\n{text_of(message)}"
                result.append(_host_text(text, message.timestamp))
        elif isinstance(message, AssistantMessage) and message.tool_calls:
            renamed = _unique_ids(message, used)
            result.append(renamed)
            for position, (old, new) in enumerate(zip(message.tool_calls, renamed.tool_calls, strict=True)):
                found = answers.of.get((index, position))
                result.append(_answer(old, new, found, message.timestamp))
        else:
            result.append(message)
    return result


class _Answers:
    """Which result answers which call. `of` maps (message index, call position) to a result."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], ToolResultMessage] = {}
        self.taken: set[int] = set()


def _answers(messages: Sequence[Message]) -> _Answers:
    """A result answers the newest open call of its id before it."""
    found = _Answers()
    open_calls: dict[str, list[tuple[int, int]]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            for position, call in enumerate(message.tool_calls):
                open_calls.setdefault(call.id, []).append((index, position))
        elif isinstance(message, ToolResultMessage) and open_calls.get(message.tool_call_id):
            waiting = open_calls[message.tool_call_id]
            newest = waiting[-1][0]
            key = next(key for key in waiting if key[0] == newest)
            waiting.remove(key)
            found.of[key] = message
            found.taken.add(index)
    return found


def _answer(old: ToolCall, new: ToolCall, found: ToolResultMessage | None, timestamp: int) -> ToolResultMessage:
    if found is None:
        return ToolResultMessage(
            tool_call_id=new.id,
            tool_name=new.name,
            content=(TextContent(text=UNKNOWN_OUTCOME),),
            is_error=True,
            timestamp=timestamp,
        )
    return found if old.id == new.id else replace(found, tool_call_id=new.id)


def _unique_ids(message: AssistantMessage, used: set[str]) -> AssistantMessage:
    """The message itself, or one whose call ids do not repeat those in `used`, which grows."""
    changed = False
    content: list[Content] = []
    for block in blocks(message):
        if isinstance(block, ToolCall):
            fresh, number = block.id, 1
            while fresh in used:
                number += 1
                fresh = f"{block.id}_{number}"
            used.add(fresh)
            if fresh != block.id:
                block = replace(block, id=fresh)
                changed = True
        content.append(block)
    return replace(message, content=tuple(content)) if changed else message


def _in_turns(messages: Sequence[Message]) -> Iterator[Message]:
    previous: Message | None = None
    for message in messages:
        if previous is None and not isinstance(message, UserMessage):
            yield _host_text(BEGINS, getattr(message, "timestamp", 0))
        elif isinstance(previous, AssistantMessage) and isinstance(message, AssistantMessage):
            yield _host_text(GOES_ON, message.timestamp)
        yield message
        previous = message


def _host_text(text: str, timestamp: int) -> UserMessage:
    return UserMessage(content=(TextContent(text=text),), timestamp=timestamp, synthetic=True)
