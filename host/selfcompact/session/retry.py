"""Sending a request again after a failure that passes by itself.

Nothing but the model was asked until then, so nothing happens twice.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from selfcompact.errors import ModelError, RateLimited


class RetrySettings(BaseModel):
    """The `retry` object of the settings: for requests of turns; summaries have limits of their own."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    max_retries: int = Field(default=3, ge=0)
    """Attempts after the first one; rate limits of a minute outlast fewer."""

    first_delay_s: float = Field(default=1.0, ge=0)
    """Seconds before the first retry; each further one waits twice as long."""

    max_delay_s: float = Field(default=60.0, ge=0)
    """The longest wait, whatever the server asks for."""


def retry_delay_s(settings: RetrySettings, attempt: int, error: ModelError, jitter: float) -> float | None:
    """Seconds to wait before retry number `attempt` (from 0); None when the request must not be sent again.

    `jitter` is between 0 and 1 and spreads the waits of many clients over half of each. What the server asks for
    (`retry-after`) holds up to the limit.
    """
    if not error.transient or attempt >= settings.max_retries:
        return None
    if isinstance(error, RateLimited) and error.retry_after_s is not None:
        return min(settings.max_delay_s, error.retry_after_s)
    return min(settings.max_delay_s, settings.first_delay_s * float(2**attempt)) * (0.5 + jitter / 2)
