"""Models by name: `openai:gpt-5`, `anthropic:claude-sonnet-4-5`, `ollama:qwen3`, or any OpenAI-compatible address."""

from __future__ import annotations

import os
from collections.abc import Mapping

from selfcompact.errors import UsageError
from selfcompact.models.protocol import Model
from selfcompact.settings.models import ModelOverrides

PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "openai-chat": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "openrouter": ("OPENROUTER_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "moonshotai": ("MOONSHOTAI_API_KEY",),
    "bedrock": ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
    "azure": ("AZURE_OPENAI_API_KEY",),
    "zai": ("ZAI_API_KEY",),
    "alibaba": ("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
    "ollama": (),
}
"""Providers that `docs/models.md` has a line for, and the variables their keys are in. The library knows more."""

ONE_KEY = frozenset(PROVIDERS) - {"azure", "bedrock", "ollama"}
"""Providers that need one key and nothing else; what the others need, the library says."""


EXTRAS = ("anthropic", "bedrock", "google", "groq", "mistral", "openai")
"""Our extras, each of which brings the provider library with one vendor's client; most providers are reached with
OpenAI's."""


def not_installed(name: str) -> UsageError:
    """What to say when the provider library, or the vendor's client that a model needs, is not there."""
    family = name.partition(":")[0].partition("-")[0]
    extra = family if family in EXTRAS else "openai"
    return UsageError(f"model {name!r}: the vendor's client is not installed; run: pip install 'selfcompact[{extra}]'")


def keys_found(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The providers whose key is there, with the name of the variable (never its value)."""
    environment = os.environ if environment is None else environment
    found: dict[str, str] = {}
    for provider, names in PROVIDERS.items():
        name = next((name for name in names if environment.get(name)), None)
        if name is not None:
            found[provider] = name
    return found


def make_model(
    name: str,
    *,
    base_url: str | None = None,
    key_variable: str | None = None,
    context_window: int | None = None,
    max_output_tokens: int | None = None,
    ask_server: bool = False,
) -> Model:
    """A real model by its name, `provider:model`.

    `base_url` is the address of an OpenAI- or Anthropic-compatible server; `key_variable` names the environment
    variable with its key. With `ask_server` a server with an address of its own is asked for its window when none is
    given, which may take seconds. The provider library is imported here and not before.

    Raises:
        UsageError: the name, the provider or the key is missing or unknown, or the vendor's client is not installed.
    """
    provider, colon, model_name = name.partition(":")
    if not colon or not provider or not model_name:
        known = ", ".join(sorted(PROVIDERS))
        raise UsageError(f"model {name!r} should be provider:name, as in openai:gpt-5; providers: {known}")
    key = _key(name, key_variable)
    variables = PROVIDERS.get(provider, ())
    if key is None and base_url is None and provider in ONE_KEY and not any(map(os.environ.get, variables)):
        either = " or ".join(variables)
        raise UsageError(f"model {name!r}: its key is missing; set {either}, or name its variable with --key-variable")
    try:
        from selfcompact.models.providers import ProviderModel
        from selfcompact.models.vendor import library_model, ollama_url
    except ImportError as error:
        raise not_installed(name) from error
    inner = library_model(provider, model_name, base_url=base_url, key=key)
    if context_window is None and ask_server and (base_url is not None or provider == "ollama"):
        from selfcompact.models.window import server_window

        context_window = server_window(base_url or ollama_url(), model_name, key)
    return ProviderModel(
        inner,
        provider=provider,
        context_window=context_window,
        max_output_tokens=max_output_tokens,
        secrets=[key] if key else [],
    )


def configured_model(
    name: str, models: Mapping[str, ModelOverrides], *, explicit: ModelOverrides | None = None, ask_server: bool = False
) -> Model:
    """A real model with what the settings say of it under `models`; what is `explicit` wins over them.

    Raises:
        UsageError: as `make_model`.
    """
    merged = models.get(name, ModelOverrides()).model_dump(exclude_none=True)
    merged.update((explicit or ModelOverrides()).model_dump(exclude_none=True))
    return make_model(name, **merged, ask_server=ask_server)


def _key(name: str, variable: str | None) -> str | None:
    if variable is None:
        return None
    value = os.environ.get(variable)
    if not value:
        raise UsageError(f"model {name!r}: the environment variable {variable} is not set; set it to the key")
    return value
