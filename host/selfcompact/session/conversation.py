"""The conversation: the log and the accounts that are kept of it, always in step.

Everything that writes history goes through `append`, which does not await: a record is in the log and in the accounts
(ledger, attempts, newest response), or in none of them, whatever is cancelled around it. So what is asked at a boundary
reads an account and never walks the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selfcompact.codec import Json
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.entries import (
    BranchSummaryEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    message_of,
    new_entry_id,
    now_iso,
)
from selfcompact.log import LiveLog, SessionLog
from selfcompact.log.reading import model_in_force
from selfcompact.messages import AssistantMessage, Message, TextContent, ToolCall
from selfcompact.session.attempts import AttemptAccount
from selfcompact.session.history import IMAGES_WITHHELD, build_history, has_image, withheld_images
from selfcompact.text.tokens import Estimator, ScriptAwareEstimator


class Conversation:
    """Owns the log and the ledger of one session. Not shared between sessions; no method awaits."""

    def __init__(
        self,
        log: SessionLog,
        *,
        overhead_tokens: int,
        estimator: Estimator | None = None,
        report: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self._report = report
        self._log, self._overhead_tokens = log, overhead_tokens
        self._estimator = estimator or ScriptAwareEstimator()
        self._begin_with(log.entries)

    def _begin_with(self, entries: Sequence[Entry]) -> None:
        self._taken = {entry.id for entry in entries}
        self.ledger = Ledger(entries, overhead_tokens=self._overhead_tokens, estimator=self._estimator)
        self.attempts = AttemptAccount(entries)
        self._leaf_id = entries[-1].id if entries else None
        self._newest_response = next(map(_response, filter(_response, reversed(entries))), None)
        self._call_ids = {call.id for entry in entries for call in _calls(entry)}

    @property
    def entries(self) -> Sequence[Entry]:
        """The live path, oldest first."""
        return self.ledger.entries

    @property
    def leaf_id(self) -> str | None:
        """The newest entry, which the next one points to."""
        return self._leaf_id

    @property
    def newest_response(self) -> AssistantMessage | None:
        """The newest response, failed ones included. Looked up, not searched for."""
        return self._newest_response

    def history(self) -> tuple[Message, ...]:
        """The messages of the next request."""
        return build_history(self.entries)

    def append(self, entry: Entry) -> None:
        """Write one entry to the log, then count it.

        Raises:
            SessionFileError: it could not be written; nothing changed.
        """
        self._log.append(entry)
        self._taken.add(entry.id)
        self._leaf_id = entry.id
        self.ledger.append(entry)
        self.attempts.append(entry)
        self._newest_response = _response(entry) or self._newest_response

    def say(self, message: Message) -> MessageEntry:
        """Append a message."""
        entry = MessageEntry(id=self.new_id(), parent_id=self._leaf_id, timestamp=now_iso(), message=message)
        self.append(entry)
        return entry

    def add_context(self, custom_type: str, text: str) -> None:
        """Append a message that the host, or a hook, puts into the context."""
        self.append(
            CustomMessageEntry(
                id=self.new_id(),
                parent_id=self._leaf_id,
                timestamp=now_iso(),
                custom_type=custom_type,
                content=(TextContent(text=text),),
            )
        )

    def note(self, custom_type: str, data: Json) -> None:
        """Append a record of our own that is not part of the context."""
        self.append(
            CustomEntry(
                id=self.new_id(), parent_id=self._leaf_id, timestamp=now_iso(), custom_type=custom_type, data=data
            )
        )

    def change_model(self, provider: str, model_id: str) -> None:
        """Record which model answers from here on, unless it is the one that answers already."""
        if model_in_force(self.entries) == f"{provider}:{model_id}":
            return
        self.append(
            ModelChangeEntry(
                id=self.new_id(), parent_id=self._leaf_id, timestamp=now_iso(), provider=provider, model_id=model_id
            )
        )

    def withhold_images(self, said: str) -> int:
        """Record that images are not sent any more, and return of how many messages.

        Those that no response has followed yet, as the others were taken before; all of them when there are none such.
        """
        withheld = withheld_images(self.entries)
        fresh: list[str] = []
        older: list[str] = []
        answered = False
        for entry in reversed(self.entries):
            message = message_of(entry)
            if isinstance(message, AssistantMessage):
                answered = answered or message.stop_reason not in ("error", "aborted")
            elif message is not None and entry.id not in withheld and has_image(message):
                (older if answered else fresh).append(entry.id)
        found = fresh or older
        if found:
            self.note(IMAGES_WITHHELD, {"entryIds": [*found], "said": said})
        return len(found)

    def new_id(self) -> str:
        """An id that no live entry has."""
        return new_entry_id(self._taken)

    def go_back(self, live: LiveLog) -> None:
        """Take an earlier view for the live one; what is appended next goes on from its leaf."""
        self._begin_with(live.entries)

    def summarise_branch(self, from_id: str, summary: str) -> None:
        """Append what happened on a branch that was left; `from_id` was its leaf."""
        self.append(
            BranchSummaryEntry(
                id=self.new_id(), parent_id=self._leaf_id, timestamp=now_iso(), from_id=from_id, summary=summary
            )
        )

    def label(self, target_id: str, label: str | None) -> None:
        """Append a name for an entry; None takes it away."""
        self.append(
            LabelEntry(id=self.new_id(), parent_id=self._leaf_id, timestamp=now_iso(), target_id=target_id, label=label)
        )

    def name(self, name: str | None) -> None:
        """Append the session's display name."""
        self.append(SessionInfoEntry(id=self.new_id(), parent_id=self._leaf_id, timestamp=now_iso(), name=name))

    def claim_call_id(self, wanted: str) -> str:
        """The id a tool call gets: the one it came with, or that one with a suffix when it was used before."""
        call_id = wanted or "call"
        while call_id in self._call_ids:
            call_id = f"{wanted or 'call'}_{new_entry_id()}"
        self._call_ids.add(call_id)
        return call_id

    def sync(self) -> None:
        """Have the disk store everything, and report what somebody did to the file meanwhile."""
        said = self._log.sync()
        if said is not None:
            self._report(said)


def _response(entry: Entry) -> AssistantMessage | None:
    message = entry.message if isinstance(entry, MessageEntry) else None
    return message if isinstance(message, AssistantMessage) else None


def _calls(entry: Entry) -> Sequence[ToolCall]:
    response = _response(entry)
    return response.tool_calls if response is not None else ()
