"""The running account of the live context: what it holds and how many tokens it is.

A provider's own count is the best figure there is, but it covers only what was sent with that request, and after a
compaction it describes a history that is gone. So the account is anchored: the newest trustworthy report, plus an
estimate of what came after it. Estimates are scaled by how far they were off from earlier reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from selfcompact.compaction.planning.path import LivePath
from selfcompact.compaction.style.frame import framed
from selfcompact.details import CompactionDetails
from selfcompact.entries import CompactionEntry, Entry, MessageEntry
from selfcompact.messages import AssistantMessage, Usage
from selfcompact.text.tokens import Estimator, ScriptAwareEstimator

MIN_CALIBRATION_TOKENS = 2_000
"""Below this a report says more about fixed overhead than about the estimator."""

MIN_RATIO, MAX_RATIO = 0.5, 3.0
"""How far one report may move the estimates: a proxy that reports nonsense must not turn planning over."""

SMOOTHING = 0.5
"""Weight of the newest report in the running ratio."""

HIDDEN_OUTPUT_SLACK = 256
"""Output tokens that may be missing from a message before the rest is taken for reasoning that is not sent again."""

_ESTIMATOR = ScriptAwareEstimator()


class Ledger:
    """The live path with its token account. One append per entry; nothing walks the history again.

    Owned by the session's task; `plan` reads it. It may be read between any two appends.
    """

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        *,
        overhead_tokens: int = 0,
        estimator: Estimator = _ESTIMATOR,
        calibrate: bool = True,
    ) -> None:
        """Take in the live path, oldest first, from the newest compaction's first kept entry on.

        `overhead_tokens` are system prompt and tool schemas; they count wherever no report covers them.
        `calibrate` scales estimates by what reports say about them.
        """
        self.overhead_tokens = overhead_tokens
        self.path = LivePath(estimator)
        self.version = 0
        """Counts the appends: while it is the same, so is everything that can be read here."""
        self._calibrate = calibrate
        self._ratios: dict[str, float] = {}
        self._model = ""
        self._compaction_id: str | None = None
        self._compaction: CompactionEntry | None = None
        self._anchor_id: str | None = None
        self._anchor_tokens = 0
        self._summary_tokens = 0
        live = list(entries)
        newest = max((i for i, entry in enumerate(live) if isinstance(entry, CompactionEntry)), default=-1)
        for index, entry in enumerate(live):
            # An older compaction on the path says nothing any more: its first kept entry may be gone from it.
            if index < newest and isinstance(entry, CompactionEntry):
                self.path.append(entry)
            else:
                self.append(entry)

    @property
    def estimator(self) -> Estimator:
        """What estimates are made with."""
        return self.path.estimator

    @property
    def entries(self) -> Sequence[Entry]:
        """The live path, oldest first. Read only."""
        return self.path.entries

    @property
    def newest_compaction(self) -> CompactionEntry | None:
        """The compaction that the context begins with, if any."""
        return self._compaction

    @property
    def ratio(self) -> float:
        """Reported tokens over estimated tokens for the model that answers now; 1.0 until something is known."""
        return self._ratios.get(self._model, 1.0)

    @property
    def ratios(self) -> Mapping[str, float]:
        """The same per model, as `provider:model`. A compaction entry remembers it across restarts."""
        return dict(self._ratios)

    def append(self, entry: Entry) -> None:
        """Take in the entry that the log got last. O(1) amortised.

        A compaction moves the start of the live path to its first kept entry, and makes every earlier report void.
        """
        self.version += 1
        if isinstance(entry, CompactionEntry):
            self._begin_anew(entry)
        elif isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage):
            self._take_report(entry, entry.message)
        else:
            self.path.append(entry)

    @property
    def estimated_tokens(self) -> int:
        """The size of the context, always known: the newest report plus an estimate of what came after it."""
        anchor = self._anchor()
        if anchor is not None:
            return self._anchor_tokens + self.scaled(self.path.context_tokens(anchor + 1))
        return self.overhead_tokens + self.scaled(self._summary_tokens + self.path.context_tokens())

    @property
    def reported_tokens(self) -> int | None:
        """The size of the context as `compact.status()` tells it, or None when only a guess could be told.

        None after a compaction until a response has reported usage.
        """
        if self._compaction is not None and self._anchor() is None:
            return None
        return self.estimated_tokens

    @property
    def media_bytes(self) -> int:
        """Bytes of base64 images in the context; the second budget beside tokens (`budget.MAX_MEDIA_BYTES`)."""
        return self.path.media_bytes()

    def scaled(self, estimate: int) -> int:
        """An estimate as the model's tokeniser would probably count it."""
        return round(estimate * self.ratio)

    def compaction_position(self) -> int | None:
        """Where the newest compaction stands on the live path."""
        return None if self._compaction_id is None else self.path.position_of(self._compaction_id)

    def _anchor(self) -> int | None:
        return None if self._anchor_id is None else self.path.position_of(self._anchor_id)

    def _begin_anew(self, entry: CompactionEntry) -> None:
        kept = self.path.position_of(entry.first_kept_entry_id)
        self.path.drop_before(len(self.path) if kept is None else kept)
        self.path.append(entry)
        self._compaction, self._compaction_id = entry, entry.id
        self._summary_tokens = self.estimator.text(framed(entry.summary))
        self._anchor_id = None
        if not self._ratios:
            self._ratios.update(remembered_ratios(entry))

    def _take_report(self, entry: MessageEntry, message: AssistantMessage) -> None:
        before = self.path.context_tokens()
        self.path.append(entry)
        self._model = f"{message.provider}:{message.model}"
        usage = message.usage
        if usage is None or not is_trustworthy(message):
            return
        own = self.path.context_tokens() - before
        self._learn(usage.prompt, self._summary_tokens + before)
        self._anchor_id = entry.id
        self._anchor_tokens = usage.total - hidden_output_tokens(usage, own)

    def _learn(self, reported: int, estimate: int) -> None:
        if not self._calibrate or reported <= 0 or estimate < MIN_CALIBRATION_TOKENS:
            return
        ratio = max(MIN_RATIO, min(MAX_RATIO, (reported - self.overhead_tokens) / estimate))
        known = self._ratios.get(self._model)
        self._ratios[self._model] = ratio if known is None else known + SMOOTHING * (ratio - known)


def is_trustworthy(message: AssistantMessage) -> bool:
    """Whether a response's usage says how large the context was: it ended well and reported something."""
    return message.stop_reason not in ("error", "aborted") and message.usage is not None and message.usage.total > 0


def hidden_output_tokens(usage: Usage, message_estimate: int) -> int:
    """Output that was billed but is not part of the message, so that the next request does not carry it."""
    visible = 2 * message_estimate + HIDDEN_OUTPUT_SLACK
    return usage.output - message_estimate if usage.output > visible else 0


def remembered_ratios(entry: CompactionEntry) -> dict[str, float]:
    """The ratios that a compaction entry remembers, within the bounds."""
    ratios = CompactionDetails.noted_on(entry).ratios or {}
    return {model: max(MIN_RATIO, min(MAX_RATIO, ratio)) for model, ratio in ratios.items()}
