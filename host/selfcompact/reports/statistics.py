"""What a session was, in figures: one pass over the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from selfcompact.codec import Json
from selfcompact.compaction.planning.files import files_of
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.details import CompactionDetails
from selfcompact.entries import CompactionEntry, Entry, MessageEntry, ModelChangeEntry, SessionInfoEntry, message_of
from selfcompact.log.reading import read_header, read_live, stream_entries
from selfcompact.messages import AssistantMessage, Message, UserMessage, is_real_user
from selfcompact.session.history import build_history


@dataclass(frozen=True)
class CompactionFigures:
    """One compaction. Tokens are the context's; `saved_percent` is None where the size afterwards was not noted."""

    entry_id: str
    timestamp: str
    after_turn: int
    reason: str | None
    tokens_before: int
    tokens_after: int | None
    instructions: str | None

    @property
    def saved_percent(self) -> float | None:
        """How much smaller the context became."""
        if self.tokens_after is None or not self.tokens_before:
            return None
        return round(100 * (self.tokens_before - self.tokens_after) / self.tokens_before, 1)


@dataclass(frozen=True)
class SessionFigures:
    """A session in figures. `context_tokens` has one pair (turn, tokens) for each response that reported usage;
    `live_tokens` is the estimated size of the live context by role."""

    path: str
    session_id: str
    name: str | None
    workspace: str
    began: str
    ended: str | None
    size_bytes: int
    entries: int
    turns: int
    prompts: int
    cells: int
    failed_cells: int
    models: tuple[str, ...]
    compactions: tuple[CompactionFigures, ...]
    context_tokens: tuple[tuple[int, int], ...]
    live_messages: int
    live_tokens: dict[str, int]
    live_total: int
    read_files: tuple[str, ...]
    modified_files: tuple[str, ...]
    summary: str | None = None
    damage: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """The same as a JSON object."""
        data = dict(vars(self))
        data["compactions"] = [{**vars(each), "saved_percent": each.saved_percent} for each in self.compactions]
        return data


@dataclass
class _Count:
    entries: int = 0
    turns: int = 0
    prompts: int = 0
    cells: int = 0
    failed: int = 0
    ended: str | None = None
    name: str | None = None
    models: dict[str, None] = field(default_factory=dict)
    compactions: list[CompactionFigures] = field(default_factory=list)
    context: list[tuple[int, int]] = field(default_factory=list)

    def take(self, entry: Entry) -> None:
        self.entries += 1
        self.ended = entry.timestamp
        match entry:
            case ModelChangeEntry():
                self.models[f"{entry.provider}:{entry.model_id}"] = None
            case SessionInfoEntry():
                self.name = entry.name
            case CompactionEntry():
                self.compactions.append(_compaction(entry, self.turns))
            case MessageEntry():
                self._message(entry.message)
            case _:
                pass

    def _message(self, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            self.turns += 1
            self.cells += len(message.tool_calls)
            if message.provider and message.model:
                self.models[f"{message.provider}:{message.model}"] = None
            if message.usage is not None and message.usage.total and message.stop_reason not in ("error", "aborted"):
                self.context.append((self.turns, message.usage.total))
        elif isinstance(message, UserMessage):
            self.prompts += is_real_user(message)
        elif getattr(message, "is_error", False):
            self.failed += 1


def session_figures(path: Path, on_progress: Callable[[int], None] | None = None) -> SessionFigures:
    """Read a whole session file and count. `on_progress` is called with the offset reached, now and then.

    Raises:
        SessionFileError: it cannot be read or is not a session file of our version.
    """
    header, live, count = read_header(path), read_live(path), _Count()
    damage: list[str] = []

    def messages() -> Iterator[Message]:
        for number, (offset, entry) in enumerate(stream_entries(path, damage=damage)):
            if on_progress is not None and number % 5_000 == 0:
                on_progress(offset)
            count.take(entry)
            message = message_of(entry)
            if message is not None:
                yield message

    files = files_of(messages())
    ledger = Ledger(live.entries)
    history = build_history(live.entries)
    by_role: dict[str, int] = {}
    for message in history:
        by_role[message.role] = by_role.get(message.role, 0) + ledger.estimator.message(message)
    newest = ledger.newest_compaction
    return SessionFigures(
        path=str(path),
        session_id=header.id,
        name=count.name,
        workspace=header.cwd,
        began=header.timestamp,
        ended=count.ended,
        size_bytes=path.stat().st_size,
        entries=count.entries,
        turns=count.turns,
        prompts=count.prompts,
        cells=count.cells,
        failed_cells=count.failed,
        models=tuple(count.models),
        compactions=tuple(count.compactions),
        context_tokens=tuple(count.context),
        live_messages=len(history),
        live_tokens=by_role,
        live_total=sum(by_role.values()),
        read_files=tuple(files.read_files),
        modified_files=tuple(files.modified_files),
        summary=newest.summary if newest is not None else None,
        damage=tuple(damage),
    )


def _compaction(entry: CompactionEntry, turns: int) -> CompactionFigures:
    noted = CompactionDetails.noted_on(entry)
    return CompactionFigures(
        entry_id=entry.id,
        timestamp=entry.timestamp,
        after_turn=turns,
        reason=noted.reason,
        tokens_before=entry.tokens_before,
        tokens_after=noted.tokens_after,
        instructions=entry.custom_instructions,
    )
