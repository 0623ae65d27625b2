"""What providers really answer, row by row: tests/data/provider_errors.json has status and body as publicly documented
or reported, with names and ids of organisations taken out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import exceptions

from selfcompact.errors import (
    AuthenticationFailed,
    ContextOverflow,
    ImageRefused,
    ModelError,
    PermissionDenied,
    ProviderUnavailable,
    RateLimited,
    Refused,
)
from selfcompact.models.failures import UNMISTAKABLE, meaning_of, silently_overflowed
from selfcompact.models.providers import error_of

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data/provider_errors.json").read_text(encoding="utf-8")
)

CLASSES: dict[str, type[ModelError]] = {
    "overflow": ContextOverflow,
    "rate_limit": RateLimited,
    "quota": PermissionDenied,
    "refused": Refused,
    "authentication": AuthenticationFailed,
    "permission": PermissionDenied,
    "unavailable": ProviderUnavailable,
    "not_found": ModelError,
    "image": ImageRefused,
    "unknown": ModelError,
}

PROVIDERS = [
    "openai",
    "anthropic",
    "google",
    "bedrock",
    "azure",
    "mistral",
    "groq",
    "openrouter",
    "vllm",
    "llama.cpp",
    "ollama",
    "kimi",
    "deepseek",
    "qwen",
    "z.ai",
]


def name(row: dict[str, Any]) -> str:
    return f"{row['provider']}-{row['status']}-{row['means']}"


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_an_answer_means_what_its_provider_says(row: dict[str, Any]) -> None:
    body = row["body"] if isinstance(row["body"], str) else json.dumps(row["body"])
    assert meaning_of(row["status"], body) == row["means"]


@pytest.mark.parametrize("row", [row for row in ROWS if row["status"]], ids=name)
def test_the_librarys_error_becomes_ours_with_status_and_words(row: dict[str, Any]) -> None:
    """Also when only the provider's own message is looked at, without the rest of the body."""
    error = error_of(exceptions.ModelHTTPError(row["status"], "a-model", row["body"]))
    assert type(error) is CLASSES[row["means"]]
    assert error.status == row["status"]
    inner = row["body"].get("error", row["body"]) if isinstance(row["body"], dict) else row["body"]
    said = inner.get("message", "") if isinstance(inner, dict) else inner
    assert said in error.provider_message
    assert error.provider_message


@pytest.mark.parametrize("provider", [*PROVIDERS, "lm studio"])
def test_every_provider_has_a_row_for_overflow(provider: str) -> None:
    assert any(row["provider"] == provider and row["means"] == "overflow" for row in ROWS)


OVERFLOWS = [json.dumps(row["body"]) for row in ROWS if row["means"] == "overflow"]


@given(st.sampled_from(OVERFLOWS), st.sampled_from([401, 403, 404, 429]))
def test_no_wording_makes_an_overflow_of_a_status_that_is_none(body: str, status: int) -> None:
    """A 401 or 429 whose body quotes the prompt must not compact anything, unless it carries the code itself."""
    if not any(code in body.lower() for code in UNMISTAKABLE):
        assert meaning_of(status, body) != "overflow"


@given(st.one_of(st.none(), st.integers(100, 599)), st.text(max_size=200))
def test_any_answer_has_a_meaning(status: int | None, body: str) -> None:
    meaning_of(status, body)


@pytest.mark.parametrize(
    ("prompt", "stop", "text", "calls", "overflowed"),
    [
        (8_193, "stop", "an answer", 0, True),  # z.ai: more was sent than the window holds
        (8_192, "stop", "an answer", 0, False),
        (8_150, "length", "", 0, True),  # the prompt was cut to fill the window, nothing could be said
        (8_150, "length", "half a sent", 0, False),
        (8_150, "length", "", 1, False),
        (2_000, "length", "", 0, False),  # reasoning used up the output limit
        (8_150, "stop", "", 0, False),
    ],
)
def test_silent_overflow_is_told_by_usage_and_by_a_stop_with_nothing_said(
    prompt: int, stop: str, text: str, calls: int, overflowed: bool
) -> None:
    found = silently_overflowed(prompt_tokens=prompt, window=8_192, stop_reason=stop, text=text, calls=calls)
    assert found is overflowed
    assert not silently_overflowed(prompt_tokens=prompt, window=None, stop_reason=stop, text=text, calls=calls)
