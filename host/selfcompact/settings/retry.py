"""The `retry` object of the settings: sending a request again after a failure that passes by itself."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class RetrySettings(BaseModel):
    """For requests of turns; those for summaries have limits of their own. Nothing but the model was asked until then,
    so nothing happens twice."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    max_retries: int = Field(default=3, ge=0)
    """Attempts after the first one; rate limits of a minute outlast fewer."""

    first_delay_s: float = Field(default=1.0, ge=0)
    """Seconds before the first retry; each further one waits twice as long."""

    max_delay_s: float = Field(default=60.0, ge=0)
    """The longest wait, whatever the server asks for."""
