"""The provider library's model for a name; every way this can fail is one sentence.

Keys go only where they belong: the usual variable of a provider is read for the provider's own address. With another
address the key comes from the variable that was named, or none is sent.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from selfcompact.errors import UsageError
from selfcompact.models.registry import not_installed

PLACEHOLDER_KEY = "not-needed"
"""What servers of one's own get: the vendor's client insists on a key, the server does not look at it."""

OLLAMA_URL = "http://localhost:11434/v1"
"""Where Ollama listens unless its variable says otherwise."""


def library_model(provider: str, model_name: str, *, base_url: str | None, key: str | None) -> LibraryModel:
    """Make the model. A provider that nobody knows is fine when it has an address: it then speaks Chat Completions.

    Raises:
        UsageError: the provider is not known, its key is missing, or the vendor's client is not installed.
    """
    name = f"{provider}:{model_name}"
    if provider == "ollama" and base_url is None:
        base_url = ollama_url()
    try:
        if base_url is not None and (provider == "openai-chat" or _class(provider) is None):
            return _compatible(provider, model_name, base_url, key)
        if base_url is None and key is None:
            return infer_model(name)
        return infer_model(name, provider_factory=lambda _: _made(provider, base_url, key))
    except ImportError as error:
        raise not_installed(name) from error
    except UserError as error:
        raise UsageError(f"model {name}: {' '.join(str(error).split())}") from error


def ollama_url() -> str:
    """The address of Ollama's OpenAI-compatible API."""
    return os.environ.get("OLLAMA_BASE_URL") or OLLAMA_URL


def _class(provider: str) -> type[Provider[Any]] | None:
    try:
        return infer_provider_class(provider)
    except ValueError:
        return None


def _made(provider: str, base_url: str | None, key: str | None) -> Provider[Any]:
    """The provider with an address or a key of its own; the parameters' names differ from class to class."""
    found = _class(provider)
    if found is None:
        raise UserError(f"{provider!r} is not a provider that is known; name its address with --base-url")
    accepted = inspect.signature(found.__init__).parameters
    values: dict[str, Any] = {}
    if base_url is None:
        values["api_key"] = key
    else:
        address = next((name for name in ("base_url", "api_base", "azure_endpoint") if name in accepted), None)
        if address is not None:
            values.update({address: base_url, "api_key": key or PLACEHOLDER_KEY})
        else:
            from openai import AsyncOpenAI

            values["openai_client"] = AsyncOpenAI(base_url=base_url, api_key=key or PLACEHOLDER_KEY)
    return found(**values)


def _compatible(provider: str, model_name: str, base_url: str, key: str | None) -> LibraryModel:
    """Chat Completions at any address. `max_tokens` is the older of two names for the limit, which all servers know."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    made = OpenAICompatibleProvider(provider, base_url=base_url, api_key=key or PLACEHOLDER_KEY, profile=profile)
    return OpenAIChatModel(model_name, provider=made)
