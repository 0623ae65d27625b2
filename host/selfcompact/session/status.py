"""How full the context is: the value that operators, programs and cells get."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from selfcompact.codec import Json


@dataclass(frozen=True)
class ContextStatus:
    """Figures are tokens. `tokens` and `percent` are None from a compaction until the model's next report.

    `estimated_tokens` is the ledger's own figure and always there. `reason` says why `would_compact` is false.
    `cached_tokens` of the newest prompt were read from the provider's cache; None when it reported nothing.
    """

    tokens: int | None
    context_window: int | None
    percent: float | None
    scheduled: bool
    estimated_tokens: int
    threshold_tokens: int | None
    would_compact: bool
    reason: str | None
    cached_tokens: int | None = None

    def to_json(self) -> dict[str, Json]:
        """The form that crosses the bridge; keys are the contract's."""
        return asdict(self)


def percent_of(tokens: int | None, window: int | None) -> float | None:
    """The share of the window in percent, with one decimal; None when either is not known."""
    if tokens is None or not window:
        return None
    return round(100 * tokens / window, 1)
