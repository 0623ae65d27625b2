"""Asking a summariser again after failures that pass by themselves: rate limits, 5xx, silence."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from selfcompact.errors import ModelError, SelfcompactError, described
from selfcompact.models.retry import retry_delay_s
from selfcompact.settings.retry import RetrySettings

SUMMARY_RETRIES = RetrySettings(max_retries=2, first_delay_s=1.0, max_delay_s=30.0)
"""A run may be waiting for the summary, so fewer and shorter waits than a turn's; after them comes the fallback."""

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


async def with_retries(ask: Callable[[], Awaitable[T]], *, name: str, sleep: Sleep | None = None) -> T:
    """The first answer that succeeds. Errors that are not transient, and the last transient one, pass through.

    `name` is who is asked. What a custom summariser or model raises of its own is a failed request like any other: it
    comes out as a `ModelError` with its cause, and is not asked again.
    """
    for attempt in itertools.count():
        try:
            return await _attempt(ask, name)
        except ModelError as error:
            delay_s = retry_delay_s(SUMMARY_RETRIES, attempt, error, random.random())  # noqa: S311 - jitter, no secret
            if delay_s is None:
                raise
        await (sleep or anyio.sleep)(delay_s)
    raise AssertionError("the loop has no end of its own")


async def _attempt(ask: Callable[[], Awaitable[T]], name: str) -> T:
    try:
        return await ask()
    except SelfcompactError:
        raise
    except Exception as error:
        raise ModelError(f"{name} failed: {described(error)}") from error
