"""What holds in a session now: its settings, its model's window, the limits, and what they decide.

Everything here answers from values; nothing awaits. The session asks at each boundary, cells ask through the skill.
"""

from __future__ import annotations

from selfcompact.compaction.planning.budget import exceeds, threshold_tokens
from selfcompact.compaction.planning.plan import Plan, Skip
from selfcompact.compaction.planning.planner import Planner
from selfcompact.errors import ContextOverflow, SettingsError
from selfcompact.events import AutoCompactionDisarmed, ModelChanged, WarningRaised
from selfcompact.models.protocol import Model
from selfcompact.session.attempts import AttemptHistory
from selfcompact.session.boundary import BoundaryFacts, Compact, Decision, boundary
from selfcompact.session.conversation import Conversation
from selfcompact.session.requests import PendingRequest, RequestSlot, floor_reason
from selfcompact.session.status import ContextStatus, percent_of
from selfcompact.session.stream import EventHub
from selfcompact.session.turn import TurnRunner
from selfcompact.settings.compaction import CompactionSettings, settings_for_window
from selfcompact.settings.schema import Settings
from selfcompact.settings.watch import SettingsWatch
from selfcompact.text.secrets import Redactor

NEAR_SHARE = 0.9
"""Of the threshold: above it, the summary of the threshold compaction that is coming is begun ahead."""


class SessionPolicy:
    """Owns the settings in force, the model that is to answer next, and the newest plan."""

    def __init__(
        self,
        conversation: Conversation,
        turns: TurnRunner,
        hub: EventHub,
        slot: RequestSlot,
        *,
        settings: Settings,
        watch: SettingsWatch,
        redact: Redactor,
    ) -> None:
        self._conversation, self._turns, self._hub, self._slot = conversation, turns, hub, slot
        self.settings, self._watch = settings, watch
        self.next_model: Model | None = None
        self._told_disarmed = False
        self.redact, self.planner = redact, Planner(redact)

    @property
    def model(self) -> Model:
        """The model that answers the turns."""
        return self._turns.model

    @property
    def model_name(self) -> str:
        """The same as `provider:name`."""
        return f"{self.model.provider}:{self.model.model_id}"

    @property
    def context_window(self) -> int | None:
        """Tokens the next request may have, output included; None when neither settings nor model know."""
        return self.settings.context_window or self._turns.model.context_window

    def status(self) -> ContextStatus:
        """How full the context is; costs the same however old the session is."""
        ledger, window = self._conversation.ledger, self.context_window
        reason = self.refusal(None)
        newest = self._conversation.newest_response
        usage = newest.usage if newest is not None else None
        return ContextStatus(
            tokens=ledger.reported_tokens,
            context_window=window,
            percent=percent_of(ledger.reported_tokens, window),
            scheduled=self._slot.pending is not None,
            estimated_tokens=ledger.estimated_tokens,
            threshold_tokens=threshold_tokens(self.settings.compaction, window),
            would_compact=reason is None,
            reason=reason,
            cached_tokens=usage.cache_read if usage is not None else None,
        )

    def plan(self, instructions: str | None = None) -> Plan | Skip:
        """What a compaction would do now. Asking costs the same however old the session is."""
        settings, window = self.settings.compaction, self.context_window
        return self.planner.plan(self._conversation.ledger, settings, window, instructions=instructions)

    def refusal(self, instructions: str | None) -> str | None:
        """Why a cell's request would not be accepted now; None when it would."""
        planned = self.plan(instructions)
        if isinstance(planned, Skip):
            return planned.reason
        settings = self.settings.compaction
        tokens = self._conversation.ledger.estimated_tokens
        refusal = floor_reason(tokens, self.context_window, settings.agent_floor_percent)
        if refusal is None and settings.max_compactions is not None:
            done = self._conversation.attempts.history().completed
            if done >= settings.max_compactions:
                refusal = f"this session was compacted {done} times, which is as often as the operator allows"
        return refusal

    def decide(self, overflow: ContextOverflow | None, *, wants_more: bool, manual: PendingRequest | None) -> Decision:
        """What to do at this boundary; tells when the breaker opened."""
        settings, ledger = self.settings.compaction, self._conversation.ledger
        too_large = exceeds(settings, self._window_ahead(), ledger.estimated_tokens, ledger.media_bytes)
        attempts = self._conversation.attempts.history()
        self._report_disarmed(attempts)
        return boundary(
            BoundaryFacts(
                pending=self._slot.pending,
                manual=manual,
                overflow=str(overflow) if overflow else None,
                estimated_tokens=ledger.estimated_tokens,
                # When nothing can be summarised, firing would only make noise at every boundary.
                over_threshold=too_large and not isinstance(self.plan(), Skip),
                enabled=settings.enabled,
                attempts=attempts,
                max_in_a_row=settings.max_attempts_in_a_row,
                max_compactions=settings.max_compactions,
                wants_more=wants_more,
            )
        )

    def threshold_is_near(self) -> bool:
        """Whether the next boundary will probably compact by itself, going by the limits that it will ask."""
        settings, tokens = self.settings.compaction, self._conversation.ledger.estimated_tokens
        threshold = threshold_tokens(settings, self.context_window)
        if threshold is None or tokens <= NEAR_SHARE * threshold:
            return False
        facts = BoundaryFacts(
            estimated_tokens=tokens,
            over_threshold=True,
            enabled=settings.enabled,
            attempts=self._conversation.attempts.history(),
            max_in_a_row=settings.max_attempts_in_a_row,
            max_compactions=settings.max_compactions,
        )
        return isinstance(boundary(facts), Compact)

    def notice_settings(self) -> bool | None:
        """Take over what the project's settings file says now; whether cells may call the skill then, None when the
        file did not change."""
        changed = self._watch.changed(self.warn)
        if changed is None:
            return None
        self._use(changed)
        return changed.agent_callable

    def take_next_model(self) -> None:
        """Put a model change that was asked for into effect, record it and tell."""
        model, self.next_model = self.next_model, None
        if model is not None:
            self._turns.model = model
            self._use(self.settings.compaction)
            self._conversation.change_model(model.provider, model.model_id)
            self._hub.emit(ModelChanged(provider=model.provider, model_id=model.model_id))

    def warn(self, sentence: str) -> None:
        """Tell an operator something; the session goes on."""
        self._hub.emit(WarningRaised(message=sentence))

    def _use(self, compaction: CompactionSettings) -> None:
        try:
            fitting = settings_for_window(compaction, self.context_window)
        except SettingsError as error:
            self.warn(str(error))
            return
        self.settings = self.settings.model_copy(update={"compaction": fitting})

    def _window_ahead(self) -> int | None:
        """The window the next request must fit into: that of a model that is about to take over counts already."""
        ahead = self.next_model.context_window if self.next_model else None
        return self.settings.context_window or ahead or self._turns.model.context_window

    def _report_disarmed(self, attempts: AttemptHistory) -> None:
        if attempts.disarmed_until is None:
            self._told_disarmed = False
        elif not self._told_disarmed:
            self._told_disarmed = True
            self._hub.emit(
                AutoCompactionDisarmed(cause=attempts.disarmed_cause or "", until_tokens=attempts.disarmed_until)
            )
