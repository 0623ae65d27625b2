"""The `kernel` object of the settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_MIB = 1024**2


class KernelSettings(BaseModel):
    """How kernels are started and how much of what they print is kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    python: Path | None = None
    """The interpreter; it needs ipykernel and nothing else. None: the one this program runs in."""

    start_timeout_s: float = Field(default=30.0, gt=0)
    """How long a start may take, in seconds. One takes under a second; a cold disk or a loaded machine takes longer."""

    cell_timeout_s: float | None = Field(default=600.0, gt=0)
    """How long a cell may run, in seconds, unless the call says otherwise. None: no limit."""

    interrupt_grace_s: float = Field(default=2.0, gt=0)
    """How long a cell may take to settle after an interrupt, in seconds, before its kernel is killed."""

    output_head_bytes: int = Field(default=16 * 1024, ge=256)
    """What is kept of the beginning of a cell's output, as UTF-8."""
    output_tail_bytes: int = Field(default=8 * 1024, ge=256)
    """What is kept of its end. Both together are about 8,000 tokens, a quarter of a small context window."""

    image_bytes: int = Field(default=4 * _MIB, ge=0)
    """The largest image that is kept; providers take about 5 MB each."""
    images_per_cell: int = Field(default=8, ge=0)
