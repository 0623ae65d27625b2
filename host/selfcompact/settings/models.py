"""What an operator says about a model: the `models` object of the settings, one entry for each name."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class ModelOverrides(BaseModel):
    """How one model is reached, and what it can do. What is not said here comes from its server or the library."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    context_window: int | None = Field(default=None, ge=1)
    """Tokens of prompt and output together."""

    max_output_tokens: int | None = Field(default=None, ge=1)
    """The most tokens one response may have."""

    base_url: str | None = None
    """The address of the server, when it is not the provider's own."""

    key_variable: str | None = None
    """The name of the environment variable with the key. The key itself never stands in a settings file."""
