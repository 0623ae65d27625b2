"""The `kernelState` object of the settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, StrictBool
from pydantic.alias_generators import to_camel


class KernelStateSettings(BaseModel):
    """The `kernelState` object of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    keep: StrictBool = False
    """Whether variables are saved beside the log when a session closes and restored when it is opened again. The
    kernel's environment needs dill for that."""

    timeout_s: float = Field(default=90.0, gt=0)
    """Seconds that closing waits for the variables to be saved."""
