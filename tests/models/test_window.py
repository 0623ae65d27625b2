"""The context window: what is said explicitly, what a server says, what the library knows."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
import pytest

from selfcompact.models.registry import configured_model
from selfcompact.models.window import server_window
from selfcompact.settings.models import ModelOverrides
from selfcompact.testing import FakeProvider

PAGES: dict[str, dict[str, Any]] = {
    "vllm": {"/v1/models": {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 32_768}]}},
    "llama.cpp": {
        "/v1/models": {"data": [{"id": "file.gguf", "meta": {"n_ctx_train": 131_072}}]},
        "/props": {"default_generation_settings": {"n_ctx": 32_768}},
    },
    "lm studio": {
        "/api/v0/models": {"data": [{"id": "m", "max_context_length": 131_072, "loaded_context_length": 32_768}]},
        "/v1/models": {"data": [{"id": "m"}]},
    },
    "ollama": {
        "/api/ps": {"models": [{"name": "m:latest", "model": "m:latest", "context_length": 32_768}]},
        "/v1/models": {"data": [{"id": "m:latest"}]},
    },
    "groq": {"/v1/models": {"data": [{"id": "m", "context_window": 32_768}]}},
    "openrouter": {"/v1/models": {"data": [{"id": "m", "context_length": 32_768}]}},
    "mistral": {"/v1/models": {"data": [{"id": "m", "max_context_length": 32_768}]}},
}


async def asked(pages: dict[str, Any], model_name: str = "m") -> int | None:
    async with FakeProvider(pages=pages) as server:
        return await anyio.to_thread.run_sync(server_window, server.openai_url, model_name)


@pytest.mark.parametrize("kind", PAGES)
async def test_a_server_says_what_it_gives_the_model(kind: str) -> None:
    assert await asked(PAGES[kind]) == 32_768


@pytest.mark.parametrize(
    "pages",
    [
        {},
        {"/v1/models": {"data": [{"id": "a"}, {"id": "b", "max_model_len": 5}]}},
        {"/v1/models": ["not", "an", "object"], "/props": {"default_generation_settings": {"n_ctx": "many"}}},
        {"/api/ps": {"models": [{"name": "another", "context_length": 7}]}},
        {"/v1/models": {"data": [{"id": "m", "max_model_len": True}]}},
    ],
)
async def test_a_server_that_says_nothing_useful_leaves_the_window_open(pages: dict[str, Any]) -> None:
    assert await asked(pages) is None


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/v1", "nonsense", "http://[bad"])
def test_an_address_that_does_not_work_leaves_the_window_open(address: str) -> None:
    assert server_window(address, "m") is None


async def test_explicit_wins_over_the_settings_they_over_the_server_and_it_over_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    async with FakeProvider(pages=PAGES["vllm"]) as server:

        async def window(explicit: int | None, said: int | None) -> int | None:
            models = {"local:m": ModelOverrides(base_url=server.openai_url, context_window=said)}
            made = await anyio.to_thread.run_sync(
                lambda: configured_model(
                    "local:m", models, explicit=ModelOverrides(context_window=explicit), ask_server=True
                )
            )
            return made.context_window

        assert [await window(5, 6), await window(None, 6), await window(None, None)] == [5, 6, 32_768]
    assert configured_model("openai:gpt-4.1", {}).context_window == 1_000_000
    wrong = {"openai:gpt-4.1": ModelOverrides(context_window=7, max_output_tokens=3)}
    corrected = configured_model("openai:gpt-4.1", wrong)
    assert (corrected.context_window, corrected.max_output_tokens) == (7, 3)
