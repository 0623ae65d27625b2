"""Everything an operator can set, as one frozen value. Each part has its schema in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, StrictBool
from pydantic.alias_generators import to_camel

from selfcompact.sandbox.policy import SandboxPolicy
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.settings.kernel import KernelSettings
from selfcompact.settings.kernel_state import KernelStateSettings
from selfcompact.settings.models import ModelOverrides
from selfcompact.settings.retry import RetrySettings


class LogSettings(BaseModel):
    """The `log` object of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    fsync: StrictBool = True
    """Whether the disk must have stored everything at each turn boundary and compaction before work goes on."""


class Settings(BaseModel):
    """Everything an operator can set. Frozen; make another one with `model_copy(update=…)`."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    compaction: CompactionSettings = CompactionSettings()
    kernel: KernelSettings = KernelSettings()
    sandbox: SandboxPolicy = SandboxPolicy()
    kernel_state: KernelStateSettings = KernelStateSettings()
    retry: RetrySettings = RetrySettings()
    log: LogSettings = LogSettings()
    model: str | None = None
    """The model of the conversation, as `provider:name`."""

    models: Mapping[str, ModelOverrides] = Field(default_factory=dict)
    """What holds for one model, by its name as `model` has it: its window, its limit, its address, its key's place."""

    context_window: int | None = None
    """Tokens; overrides what any model says of itself."""
