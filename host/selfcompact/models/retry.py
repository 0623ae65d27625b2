"""When a request that failed is sent again: one rule for turns and for summaries."""

from __future__ import annotations

from selfcompact.errors import ModelError, RateLimited
from selfcompact.settings.retry import RetrySettings


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
