"""What a compaction would do, as a value. A dry run and the real thing are this same call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from selfcompact.codec import Json
from selfcompact.compaction.planning import budget, hostblocks
from selfcompact.compaction.planning.cut import Cut, find_cut
from selfcompact.compaction.planning.files import FileOps, files_of
from selfcompact.compaction.planning.hostblocks import HostBlock
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.path import LivePath, Span, starts_turn
from selfcompact.compaction.planning.rebuild import USER_MESSAGES, USER_MESSAGES_TOKENS, carried_user_messages
from selfcompact.compaction.style.forms import Form
from selfcompact.compaction.style.loading import Rebuild, style_of
from selfcompact.details import CompactionDetails
from selfcompact.entries import CompactionEntry
from selfcompact.messages import ImageContent, Message, blocks, text_of
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.text.clip import clip_tokens
from selfcompact.text.tokens import Estimator

TOO_SHORT = "session is too short to compact: everything in it would be kept word for word"
ALREADY_COMPACTED = "already compacted: nothing was said since the last compaction"


ACCURACY_WARNING = (
    "Long threads and many compactions cost accuracy; begin a new session when the task changes, "
    "and give it what it needs."
)


@dataclass(frozen=True)
class Skip:
    """There is nothing to do, and why, in words for the caller."""

    reason: str


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything a compaction needs to know. Immutable; the message sequences are made when they are looked at.

    `tokens_before` and `expected_tokens_after` are whole contexts, system prompt and tools included; `kept_tokens` is
    the part of the history that stays. `newest_user_message` is set when that message would not be in the kept tail.
    `removed` is all that leaves the context: what is summarised and the turn prefix, unless a part of it was summarised
    before (see `background`); files and literals are looked up in it.
    With the rebuild strategy `user-messages` nothing stays, `user_messages` are what is carried, oldest first, and
    `first_kept_entry_id` is empty: the compaction entry names itself. `number` counts the compactions of the session
    from 1; `warning` is for the user, where the style has one.
    """

    to_summarise: Span
    turn_prefix: Span
    removed: Span
    first_kept_entry_id: str
    is_split_turn: bool
    previous_summary: str | None
    tokens_before: int
    expected_tokens_after: int
    kept: Span
    kept_tokens: int
    overhead_tokens: int
    window: int | None
    style: str
    form: Form
    estimator: Estimator
    rebuild: Rebuild = "keep-recent"
    ratio: float = 1.0
    ratios: Mapping[str, float] = field(default_factory=dict)
    instructions: str | None = None
    newest_user_message: str | None = None
    user_messages: tuple[str, ...] = ()
    earlier_literals: tuple[str, ...] = ()
    earlier_details: Mapping[str, Json] | None = None
    compaction_id: str | None = None
    number: int = 1
    warning: str | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that the summariser is asked about, oldest first."""
        return (*self.to_summarise, *self.turn_prefix)

    @cached_property
    def files(self) -> FileOps:
        """The files that the summarised part read and changed, and those that earlier compactions carried."""
        return files_of(self.removed).with_earlier(self.earlier_details)

    def scaled(self, estimate: int) -> int:
        """An estimate as the model's tokeniser would probably count it."""
        return round(estimate * self.ratio)


def plan(
    ledger: Ledger,
    settings: CompactionSettings,
    window: int | None,
    *,
    instructions: str | None = None,
    redact: Callable[[str], str] = str,
) -> Plan | Skip:
    """What a compaction of this context would do, or why there is nothing to do.

    Pure and without waiting; the cost does not grow with the session. `window` is the context window of the model
    that the session talks to, in tokens, None when nobody knows it. `redact` takes secrets out of the user's words
    before they are cut.
    """
    if is_just_compacted(ledger):
        return Skip(ALREADY_COMPACTED)
    keep = int(budget.effective_keep_recent_tokens(settings, window) / ledger.ratio)
    cut = find_cut(ledger.path, keep, keep_media_bytes=budget.KEEP_MEDIA_BYTES)
    if cut is None or ledger.path.message_count(0, cut.first_kept) == 0:
        return Skip(TOO_SHORT)
    if style_of(settings).rebuild == USER_MESSAGES:
        cut = Cut(len(ledger.path))
    return plan_at(ledger, cut, settings, window, instructions=instructions, redact=redact)


def plan_at(
    ledger: Ledger,
    cut: Cut,
    settings: CompactionSettings,
    window: int | None,
    *,
    instructions: str | None = None,
    redact: Callable[[str], str] = str,
) -> Plan:
    """What a compaction with this very cut would do. The cost does not grow with the session."""
    path = ledger.path
    style = style_of(settings)
    rebuild = style.rebuild
    compaction = ledger.newest_compaction
    noted = CompactionDetails.noted_on(compaction)
    previous, blocks = stored_parts(compaction) if compaction is not None else ("", ())
    carried = tuple(block.text for block in blocks if block.name == hostblocks.USER_MESSAGE)
    user_message: str | None = None
    user_messages: tuple[str, ...] = ()
    if rebuild == USER_MESSAGES:
        user_messages = carried_user_messages(
            ledger, carried, min(USER_MESSAGES_TOKENS, budget.user_message_tokens(window)), redact
        )
    else:
        user_message = _carried_user_message(ledger, cut, window, carried, redact)
    kept_tokens = ledger.scaled(path.context_tokens(cut.first_kept))
    removed = ledger.scaled(path.context_tokens(0, cut.first_kept))
    written = min(budget.summary_tokens(settings.reserve_tokens, window), max(removed // 4, 1))
    return Plan(
        to_summarise=path.span(0, cut.history_end),
        turn_prefix=path.span(cut.history_end, cut.first_kept),
        removed=path.span(0, cut.first_kept),
        first_kept_entry_id=path.entries[cut.first_kept].id if cut.first_kept < len(path) else "",
        is_split_turn=cut.is_split_turn,
        previous_summary=previous or None,
        tokens_before=ledger.estimated_tokens,
        expected_tokens_after=ledger.overhead_tokens
        + kept_tokens
        + written
        + ledger.scaled(sum(ledger.estimator.text(text) for text in (*user_messages, user_message or ""))),
        kept=path.span(cut.first_kept, len(path)),
        kept_tokens=kept_tokens,
        overhead_tokens=ledger.overhead_tokens,
        window=window,
        style=settings.style,
        form=style.form,
        number=(noted.number or 0) + 1,
        warning=ACCURACY_WARNING if style.warns_of_many and compaction is not None else None,
        estimator=ledger.estimator,
        rebuild=rebuild,
        ratio=ledger.ratio,
        ratios=ledger.ratios,
        instructions=(instructions or "").strip() or None,
        newest_user_message=user_message,
        user_messages=user_messages,
        earlier_literals=noted.kept_verbatim or (),
        earlier_details=compaction.details if compaction is not None else None,
        compaction_id=compaction.id if compaction is not None else None,
    )


def is_just_compacted(ledger: Ledger) -> bool:
    """Whether the context has nothing newer than its compaction; settings changes and notes to the log do not count."""
    compaction = ledger.compaction_position()
    newest = ledger.path.newest_message_position()
    return compaction is not None and (newest is None or newest < compaction)


def stored_parts(compaction: CompactionEntry) -> tuple[str, tuple[HostBlock, ...]]:
    """The summariser's part and the host's blocks of a compaction. Text of other programs has no blocks of ours,
    whatever it looks like."""
    if CompactionDetails.of(compaction) is None:
        return compaction.summary.strip(), ()
    return hostblocks.split(compaction.summary)


def _carried_user_message(
    ledger: Ledger, cut: Cut, window: int | None, carried: Sequence[str], redact: Callable[[str], str]
) -> str | None:
    """The newest real user message when the kept tail does not have it.

    It is on the summarised part of the path, or the previous compaction carries it. One that would fill more than
    a quarter of the window is cut in the middle: the whole of it stays in the log.
    """
    path: LivePath = ledger.path
    position = path.turn_start_before(len(path))
    if position is not None:
        if position >= cut.first_kept:
            return None
        text = redact(_words(path, position))
        return clip_tokens(
            text,
            budget.user_message_tokens(window),
            lambda part: ledger.scaled(ledger.estimator.text(part)),
            where=f"the whole is entry {path.entries[position].id} of the session log",
        )
    return carried[-1] if carried else None


def _words(path: LivePath, position: int) -> str:
    """What the user said there, together with messages of the user directly before it, which nobody answered either."""
    first = position
    while first > 0 and starts_turn(path.entries[first - 1]):
        first -= 1
    messages = path.span(first, position + 1)
    images = sum(isinstance(block, ImageContent) for message in messages for block in blocks(message))
    note = [f"[{images} image(s) of this message are in the session log]"] if images else []
    return "\n\n".join([*(said for message in messages if (said := text_of(message)).strip()), *note])
