from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcompact.compaction.planning import budget
from selfcompact.settings.compaction import CompactionSettings

DEFAULT = CompactionSettings()


@pytest.mark.parametrize(
    ("settings", "window", "tokens"),
    [
        ({}, 200_000, 183_616),
        ({}, 32_000, 15_616),
        ({}, 8_000, 2_000),
        ({}, None, None),
        ({"reserve_tokens": 1_000}, 10_000, 9_000),
        ({"threshold_percent": 80}, 200_000, 160_000),
        ({"threshold_percent": 80}, None, None),
        ({"threshold_tokens": 50_000}, 200_000, 50_000),
        ({"threshold_tokens": 50_000, "threshold_percent": 80}, 200_000, 50_000),
        ({"threshold_tokens": 50_000}, 40_000, 39_999),
        ({"threshold_tokens": 50_000}, None, 50_000),
    ],
)
def test_the_threshold_is_a_fixed_number_else_a_percentage_else_window_minus_reserve(
    settings: dict[str, int], window: int | None, tokens: int | None
) -> None:
    assert budget.threshold_tokens(CompactionSettings(**settings), window) == tokens  # type: ignore[arg-type] # pydantic checks the values


def test_a_context_exceeds_its_budget_by_tokens_or_by_bytes_of_images() -> None:
    assert not budget.exceeds(DEFAULT, 200_000, 183_616)
    assert budget.exceeds(DEFAULT, 200_000, 183_617)
    assert budget.exceeds(DEFAULT, 200_000, 10, 34_000_000)
    assert budget.exceeds(DEFAULT, None, 10**9) is False


@pytest.mark.parametrize(
    ("reserve", "window", "tokens"), [(16_384, 200_000, 30_000), (16_384, 100_000, 16_384), (16_384, None, 16_384)]
)
def test_the_effective_reserve_is_at_least_15_percent_of_the_window(
    reserve: int, window: int | None, tokens: int
) -> None:
    assert budget.effective_reserve_tokens(reserve, window) == tokens


@pytest.mark.parametrize(("window", "tokens"), [(200_000, 20_000), (32_000, 7_808), (None, 20_000)])
def test_the_kept_tail_is_at_most_half_of_the_threshold(window: int | None, tokens: int) -> None:
    assert budget.effective_keep_recent_tokens(DEFAULT, window) == tokens


@pytest.mark.parametrize(
    ("reserve", "window", "limit", "tokens"),
    [
        (16_384, 200_000, None, 13_107),
        (100_000, 200_000, None, 16_384),
        (16_384, 200_000, 4_096, 4_096),
        (16_384, 32_000, None, 8_000),
        (1, None, None, 1),
    ],
)
def test_a_summary_is_limited_by_reserve_window_model_and_an_absolute_figure(
    reserve: int, window: int | None, limit: int | None, tokens: int
) -> None:
    assert budget.summary_tokens(reserve, window, limit) == tokens


def test_a_turn_prefix_gets_half_of_the_reserve() -> None:
    assert budget.prefix_tokens(16_384) == 8_192


@pytest.mark.parametrize(("window", "floor"), [(4_000, 1_024), (16_000, 2_000), (128_000, 16_000), (1_000_000, 16_384)])
def test_the_floor_of_a_requests_conversation_is_an_eighth_of_the_window(window: int, floor: int) -> None:
    assert budget.input_floor_tokens(window) == floor


@pytest.mark.parametrize(
    ("window", "output", "tokens"), [(200_000, 13_107, 130_509), (32_000, 8_000, 4_000), (8_000, 2_000, 1_024)]
)
def test_a_request_carries_what_is_left_of_four_fifths_of_the_window(window: int, output: int, tokens: int) -> None:
    assert budget.input_tokens(window, output) == tokens


@given(st.integers(1_000, 2_000_000), st.integers(1, 500_000), st.integers(0, 20_000))
def test_a_fitted_request_never_passes_the_window(window: int, reserve: int, fixed: int) -> None:
    output = budget.summary_tokens(reserve, window)
    assert budget.fitted_input_tokens(window, output, fixed) + fixed + output <= window
