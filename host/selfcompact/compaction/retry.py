"""Asking again after failures that pass by themselves: rate limits, 5xx, silence."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from selfcompact.errors import ModelError, RateLimited, SelfcompactError, described

RETRIES = 2
"""Attempts after the first one."""

FIRST_DELAY_S, MAX_DELAY_S = 1.0, 30.0
"""Delays double from the first up to the limit; a provider's own wish is respected up to the limit."""

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


def delay_s(attempt: int, error: ModelError, jitter: float) -> float:
    """Seconds to wait after attempt number `attempt` (from 0). `jitter` is between 0 and 1."""
    if isinstance(error, RateLimited) and error.retry_after_s is not None:
        return min(MAX_DELAY_S, error.retry_after_s)
    return float(min(MAX_DELAY_S, FIRST_DELAY_S * 2**attempt) * (0.5 + jitter / 2))


async def with_retries(ask: Callable[[], Awaitable[T]], *, name: str, sleep: Sleep | None = None) -> T:
    """The first answer that succeeds. Errors that are not transient, and the last transient one, pass through.

    `name` is who is asked. What a custom summariser or model raises of its own is a failed request like any other: it
    comes out as a `ModelError` with its cause, and is not asked again.
    """
    for attempt in range(RETRIES):
        try:
            return await _attempt(ask, name)
        except ModelError as error:
            if not error.transient:
                raise
            await (sleep or anyio.sleep)(delay_s(attempt, error, random.random()))  # noqa: S311 - jitter, not a secret
    return await _attempt(ask, name)


async def _attempt(ask: Callable[[], Awaitable[T]], name: str) -> T:
    try:
        return await ask()
    except SelfcompactError:
        raise
    except Exception as error:
        raise ModelError(f"{name} failed: {described(error)}") from error
