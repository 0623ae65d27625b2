"""The context window as a server of one's own tells it.

OpenAI-compatible servers list their models with a length, each under a key of its own. Ollama is asked what it has
loaded: what a model was trained for is not what the server gives it, and what is too long it cuts in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2

LIMIT_S = 5.0
"""Seconds for one answer: a server that is slower is not asked again; the window can be named."""

KEYS = ("max_model_len", "loaded_context_length", "context_length", "context_window", "max_context_length", "n_ctx")
"""vLLM and SGLang; LM Studio's loaded model; OpenRouter, Together and Fireworks; Groq; Mistral and LM Studio;
llama.cpp's `meta`. The first that is there wins."""


def server_window(base_url: str, model_name: str, key: str | None = None) -> int | None:
    """Tokens the server at `base_url` gives the model, None when it does not say. Never raises; blocks for seconds at
    most, when the server does not answer."""
    root = base_url.rstrip("/").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    asked = (
        (f"{root}/api/ps", _ollama),
        (f"{root}/api/v0/models", _listed),
        (f"{base_url.rstrip('/')}/models", _listed),
        (f"{root}/props", _llama_cpp),
    )
    try:
        with httpx2.Client(timeout=LIMIT_S, headers=headers) as client:
            for address, read in asked:
                found = read(_json(client, address), model_name)
                if found is not None:
                    return found
    except (httpx2.HTTPError, httpx2.InvalidURL):
        pass  # the caller asks for the window; an address that does not work is told by the first request
    return None


def _json(client: httpx2.Client, address: str) -> Any:
    response = client.get(address)
    try:
        return response.json() if response.status_code == 200 else None
    except ValueError:
        return None


def _entries(data: Any, key: str) -> list[Mapping[str, Any]]:
    listed = data.get(key) if isinstance(data, dict) else None
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _listed(data: Any, model_name: str) -> int | None:
    entries = _entries(data, "data")
    named = [entry for entry in entries if entry.get("id") == model_name]
    for entry in named or (entries if len(entries) == 1 else []):
        meta = entry.get("meta")
        for place in (entry, meta if isinstance(meta, dict) else {}):
            for key in KEYS:
                if _is_length(place.get(key)):
                    return int(place[key])
    return None


def _ollama(data: Any, model_name: str) -> int | None:
    for entry in _entries(data, "models"):
        names = {str(entry.get("name")), str(entry.get("model"))}
        if names & {model_name, f"{model_name}:latest"} and _is_length(entry.get("context_length")):
            return int(entry["context_length"])
    return None


def _llama_cpp(data: Any, model_name: str) -> int | None:
    del model_name  # it serves one model
    chosen = data.get("default_generation_settings") if isinstance(data, dict) else None
    length = chosen.get("n_ctx") if isinstance(chosen, dict) else None
    return int(length) if length is not None and _is_length(length) else None


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
