"""What happens at a turn boundary, decided by one pure function.

A boundary lies between the results of a turn and the next model request; before the first request of a run; after
an overflow error; and between the last response and the end of a run. Every one of them asks `boundary()`, so no
path can skip the check, and at most one compaction runs at each.
"""

from __future__ import annotations

from dataclasses import dataclass

from selfcompact.events import CompactionReason
from selfcompact.session.attempts import AttemptHistory
from selfcompact.session.requests import PendingRequest


@dataclass(frozen=True)
class BoundaryFacts:
    """All that the decision depends on.

    `overflow` is the provider's message when the last request was longer than the window. `attempts` is what the
    log says about earlier compactions. `over_threshold`: the context is too large, in tokens or in bytes of images,
    and something could be summarised. `max_compactions` caps the compactions of a session. `wants_more`: the response
    asked for tools, or input is waiting.
    """

    pending: PendingRequest | None = None
    manual: PendingRequest | None = None
    overflow: str | None = None
    estimated_tokens: int = 0
    over_threshold: bool = False
    enabled: bool = True
    attempts: AttemptHistory = AttemptHistory()
    max_in_a_row: int = 2
    max_compactions: int | None = None
    wants_more: bool = True


@dataclass(frozen=True)
class Compact:
    """Compact now, for this reason; then go on if `wants_more`, or send the failed request again if `retry`."""

    reason: CompactionReason
    instructions: str | None = None
    retry: bool = False


@dataclass(frozen=True)
class Continue:
    """Send the next request."""


@dataclass(frozen=True)
class Stop:
    """The run ends. `error` says why when it did not end by itself; `limit` when the attempts are used up."""

    error: str | None = None
    limit: bool = False


Decision = Compact | Continue | Stop


def boundary(facts: BoundaryFacts) -> Decision:
    """Decide what to do at a boundary: overflow first, then what was asked for, then the threshold."""
    exhausted = facts.attempts.in_a_row >= facts.max_in_a_row
    capped = facts.max_compactions is not None and facts.attempts.completed >= facts.max_compactions
    if facts.overflow is not None:
        if facts.attempts.for_overflow or exhausted or capped:
            return Stop(facts.overflow, limit=not capped)
        asked = facts.manual or facts.pending
        return Compact("overflow", asked.instructions if asked else None, retry=True)
    if not exhausted:
        if facts.manual is not None:
            return Compact("manual", facts.manual.instructions)
        if facts.pending is not None and not capped:
            return Compact("requested", facts.pending.instructions)
        if _over_threshold(facts) and not capped:
            return Compact("threshold")
    return Continue() if facts.wants_more else Stop()


def _over_threshold(facts: BoundaryFacts) -> bool:
    rearmed = facts.attempts.disarmed_until is None or facts.estimated_tokens >= facts.attempts.disarmed_until
    return facts.enabled and facts.over_threshold and rearmed
