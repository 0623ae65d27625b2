"""The second way to rebuild a context: the user's own messages, then the summary, and no tail of other messages.

The record carries the user's messages as blocks, so that one appended entry still is the whole beginning of the next
context. They are taken newest first up to a budget; the last that no longer fits is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selfcompact.compaction.planning import hostblocks
from selfcompact.compaction.planning.hostblocks import HostBlock
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.style.frame import handed_over
from selfcompact.details import CompactionDetails
from selfcompact.entries import CompactionEntry, iso_to_ms
from selfcompact.messages import TextContent, UserMessage, text_of
from selfcompact.text.clip import clip_tokens

USER_MESSAGES_TOKENS = 20_000
"""The user's messages that are carried; the figure of the system this strategy comes from."""

USER_MESSAGES = "user-messages"
"""The strategy's name in a style and in a compaction entry's details."""

MIN_CUT_TOKENS = 64
"""With less room than this the message that does not fit is left out instead of cut."""


def carried_user_messages(
    ledger: Ledger,
    earlier: Sequence[str],
    budget_tokens: int = USER_MESSAGES_TOKENS,
    redact: Callable[[str], str] = str,
) -> tuple[str, ...]:
    """The user's messages for the next context, oldest first. What the host wrote and earlier summaries are left out.

    `earlier` are those that the previous compaction carried. Walks back only as far as the budget goes.
    """
    chosen: list[str] = []
    room = budget_tokens

    def take(text: str) -> bool:
        nonlocal room
        tokens = ledger.scaled(ledger.estimator.text(text))
        if tokens > room:
            cut = clip_tokens(text, int(room / ledger.ratio), ledger.estimator.text) if room >= MIN_CUT_TOKENS else ""
            chosen.extend([cut] if cut else [])
            return False
        chosen.append(text)
        room -= tokens
        return True

    path = ledger.path
    position = path.turn_start_before(len(path))
    while position is not None:
        text = redact(text_of(path.span(position, position + 1)[0])).strip("\n")
        if text.strip() and not take(text):
            return tuple(reversed(chosen))
        position = path.turn_start_before(position)
    for text in reversed(earlier):
        if not take(text):
            break
    return tuple(reversed(chosen))


def is_user_messages(compaction: CompactionEntry) -> bool:
    """Whether a compaction was made for this strategy."""
    return CompactionDetails.noted_on(compaction).rebuild == USER_MESSAGES


def rebuilt(compaction: CompactionEntry) -> tuple[UserMessage, ...]:
    """The messages that such a compaction stands for: the user's words, the initial context before the last of them,
    and the summary with its hand-over line last."""
    summary, blocks = hostblocks.split(compaction.summary)
    timestamp = iso_to_ms(compaction.timestamp)

    def message(text: str, *, synthetic: bool) -> UserMessage:
        content = (TextContent(text=text),)
        return UserMessage(content=content, timestamp=timestamp, synthetic=True if synthetic else None)

    said = [message(block.text, synthetic=False) for block in blocks if block.name == hostblocks.USER_MESSAGE]
    context = [message(_shown(block), synthetic=True) for block in blocks if block.name == hostblocks.KERNEL]
    kept = [block.text for block in blocks if block.name == hostblocks.KEPT]
    last = message(handed_over("\n\n".join((summary, *kept))), synthetic=True)
    return (*said[:-1], *context, *said[-1:], last)


def _shown(block: HostBlock) -> str:
    return f"[Note of the host: {block.name}]\n{block.text}"
