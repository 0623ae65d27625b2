"""What running a cell gave, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from selfcompact.messages import ImageContent

CellStatus = Literal["ok", "error", "timeout", "aborted", "died"]


@dataclass(frozen=True)
class CellResult:
    """What running one cell gave.

    `status`: `ok`; `error`, an exception ended it; `timeout`, it ran over its limit and was stopped; `aborted`,
    somebody interrupted it; `died`, its kernel ended under it.
    """

    status: CellStatus
    text: str
    """What the model is shown: output, value and traceback, cut to head and tail, without colours."""
    images: tuple[ImageContent, ...] = ()
    execution_count: int | None = None
    omitted_bytes: int = 0
    duration_s: float = 0.0
    generation: int = 0
    """The kernel that ran it, counted from 1."""
    note: str | None = None
    """What the host has to say about it, such as that a new kernel was started."""
    error_name: str | None = None
    error_value: str | None = None
