"""The provider library's model for a name; every way this can fail is one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import infer_model

from selfcompact.errors import UsageError
from selfcompact.models.registry import PLACEHOLDER_KEY

EXTRAS = {"openai-chat": "openai", "openrouter": "openai", "ollama": "openai", "deepseek": "openai", "azure": "openai"}


def library_model(provider: str, model_name: str, *, base_url: str | None, key: str | None) -> LibraryModel:
    """Make the model.

    Raises:
        UsageError: the provider is not known, its key is missing, or the vendor's client is not installed.
    """
    name = f"{provider}:{model_name}"
    try:
        if base_url is not None or key is not None:
            return _explicit(provider, model_name, base_url, key)
        if provider == "ollama" and not os.environ.get("OLLAMA_BASE_URL"):
            return _explicit("openai-chat", model_name, "http://localhost:11434/v1", PLACEHOLDER_KEY)
        return infer_model(name)
    except ImportError as error:
        extra = EXTRAS.get(provider, provider)
        raise UsageError(
            f"model {name}: the vendor's client is not installed; run: pip install 'pydantic-ai-slim[{extra}]'"
        ) from error
    except UserError as error:
        raise UsageError(f"model {name}: {' '.join(str(error).split())}") from error


def _explicit(provider: str, model_name: str, base_url: str | None, key: str | None) -> LibraryModel:
    makers: dict[str, Callable[[], LibraryModel]] = {
        "anthropic": lambda: _anthropic(model_name, base_url, key),
        "openai": lambda: _openai_responses(model_name, base_url, key),
    }
    if provider in makers:
        return makers[provider]()
    return _openai_chat(model_name, base_url, key)


def _openai_chat(model_name: str, base_url: str | None, key: str | None) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(model_name, provider=OpenAIProvider(base_url=base_url, api_key=key or _local_key()))


def _openai_responses(model_name: str, base_url: str | None, key: str | None) -> LibraryModel:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIResponsesModel(model_name, provider=OpenAIProvider(base_url=base_url, api_key=key or _local_key()))


def _anthropic(model_name: str, base_url: str | None, key: str | None) -> LibraryModel:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    key = key or os.environ.get("ANTHROPIC_API_KEY") or PLACEHOLDER_KEY
    if base_url is None:
        return AnthropicModel(model_name, provider=AnthropicProvider(api_key=key))
    return AnthropicModel(model_name, provider=AnthropicProvider(api_key=key, base_url=base_url))


def _local_key() -> str:
    return os.environ.get("OPENAI_API_KEY") or PLACEHOLDER_KEY
