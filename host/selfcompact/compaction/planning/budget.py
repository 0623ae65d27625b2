"""Every number of tokens that a compaction decides by, each as a function of the settings and the window.

All figures are tokens. `window` is None where nobody knows it.
"""

from __future__ import annotations

from selfcompact.settings.compaction import CompactionSettings

SUMMARY_SHARE = 0.8
"""Share of the reserve that a summary may fill."""

MAX_SUMMARY_TOKENS = 16_384
"""No summary is longer, however large the reserve."""

MIN_RESERVE_SHARE = 0.15
"""Share of the window that planning a summary leaves free at least."""

MAX_RESERVE_SHARE = 0.75
"""Share of the window that the reserve may take: with a small window the threshold must stay above zero."""

KEEP_SHARE = 0.5
"""Share of the threshold that the kept tail may fill; with more, a compaction would fire again at once."""

PREFIX_SHARE = 0.5
"""Share of the reserve that the summary of a split turn's beginning may fill."""

INPUT_SHARE = 0.8
"""Share of the summariser's window that one request plans with; the rest is room for a wrong estimate."""

PROMPT_TOKENS = 16_384
"""Set aside in a summary request for the prompts and the previous summary."""

MAX_FLOOR_TOKENS, MIN_FLOOR_TOKENS, FLOOR_DIVISOR = 16_384, 1_024, 8
"""A request carries at least window / 8 tokens of conversation, between these two limits."""

OUTPUT_DIVISOR = 4
"""A summary may fill a quarter of the summariser's window: with small windows the input must still fit."""

ASSUMED_WINDOW_TOKENS = 128_000
"""Planned with when the summariser's window is unknown; an overflow halves it."""

USER_MESSAGE_DIVISOR = 4
"""The newest user message may fill a quarter of the window word for word; beyond, it is cut in the middle."""

MAX_MEDIA_BYTES, KEEP_MEDIA_BYTES = 20_000_000, 8_000_000
"""Base64 of images that a request may carry, and that a kept tail may; providers refuse bodies of 20 to 32 MB."""

MAX_INSTRUCTIONS_TOKENS = MAX_CONTEXT_TOKENS = 2_000
"""What of instructions and of file lists a summary request carries; a cell may send a quarter of a megabyte."""

KEPT_LITERALS_TOKENS = 2_000
"""What literal text that was asked to be kept may fill in one summary."""


def threshold_tokens(settings: CompactionSettings, window: int | None) -> int | None:
    """The context size above which threshold compaction fires, or None when nothing says so.

    A fixed number wins over a percentage, a percentage over window - reserve.
    """
    if settings.threshold_tokens is not None:
        limit = settings.threshold_tokens
        return limit if window is None else max(1, min(limit, window - 1))
    if window is None:
        return None
    if settings.threshold_percent is not None:
        return max(1, int(window * settings.threshold_percent / 100))
    return max(1, window - min(settings.reserve_tokens, int(window * MAX_RESERVE_SHARE)))


def exceeds(settings: CompactionSettings, window: int | None, tokens: int, media_bytes: int = 0) -> bool:
    """Whether a context of this size asks for a threshold compaction, by tokens or by bytes of images."""
    threshold = threshold_tokens(settings, window)
    return (threshold is not None and tokens > threshold) or media_bytes > MAX_MEDIA_BYTES


def effective_reserve_tokens(reserve_tokens: int, window: int | None) -> int:
    """The reserve, at least 15 % of the window."""
    return reserve_tokens if window is None else max(reserve_tokens, int(window * MIN_RESERVE_SHARE))


def effective_keep_recent_tokens(settings: CompactionSettings, window: int | None) -> int:
    """What stays word for word: the setting, but no more than half of the threshold."""
    threshold = threshold_tokens(settings, window)
    return (
        settings.keep_recent_tokens
        if threshold is None
        else min(settings.keep_recent_tokens, int(threshold * KEEP_SHARE))
    )


def summary_tokens(reserve_tokens: int, window: int | None = None, model_limit: int | None = None) -> int:
    """The most tokens a summary may have: 0.8 of the reserve, 16,384, a quarter of the window, what the model can."""
    limits = [int(SUMMARY_SHARE * reserve_tokens), MAX_SUMMARY_TOKENS]
    if window is not None:
        limits.append(window // OUTPUT_DIVISOR)
    if model_limit is not None:
        limits.append(model_limit)
    return max(1, min(limits))


def prefix_tokens(reserve_tokens: int, window: int | None = None, model_limit: int | None = None) -> int:
    """The most tokens of the summary of a split turn's beginning: half of the reserve, and a summary's limits."""
    return max(1, min(int(PREFIX_SHARE * reserve_tokens), summary_tokens(reserve_tokens, window, model_limit)))


def input_floor_tokens(window: int) -> int:
    """The least conversation that one summary request carries."""
    return min(MAX_FLOOR_TOKENS, max(MIN_FLOOR_TOKENS, window // FLOOR_DIVISOR))


def input_tokens(window: int, output_tokens: int) -> int:
    """The conversation that one summary request carries: max(floor, 0.8 x window - output - 16,384)."""
    return max(input_floor_tokens(window), int(INPUT_SHARE * window) - output_tokens - PROMPT_TOKENS)


def fitted_input_tokens(window: int, output_tokens: int, fixed_tokens: int) -> int:
    """`input_tokens`, but never more than the window has left beside the answer and the fixed part of the prompt.

    `fixed_tokens` are system prompt, template, instructions and previous summary. 0 or less: nothing fits.
    """
    spare = int(window * 0.9) - output_tokens - int(fixed_tokens * 1.1)
    return min(input_tokens(window, output_tokens), spare)


def user_message_tokens(window: int | None) -> int:
    """Up to this size the newest user message is carried word for word."""
    return (window or ASSUMED_WINDOW_TOKENS) // USER_MESSAGE_DIVISOR
