"""What a session that is opened again says about its kernel: the truth, and never what the history suggests.

A new kernel has none of the names that the conversation speaks of. When the operator wants them kept
(`kernelState.keep`), they are saved beside the log when the session closes, and restored when it opens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import anyio

from selfcompact.kernel.snapshot import SnapshotReport
from selfcompact.settings.kernel_state import KernelStateSettings

NOTE = "selfcompact.kernel"
"""The custom message that tells the model about the kernel of a session that was opened again."""

NEW_KERNEL = (
    "[Note of the host] This session was opened again with a new kernel. Variables, imports and functions that were "
    "made before are gone; files are as they were. Run again what you still need."
)


class StatefulKernel(Protocol):
    """What this needs of a kernel."""

    async def snapshot(self, path: Path) -> SnapshotReport:
        """Save the variables."""

    async def restore(self, path: Path) -> SnapshotReport:
        """Bring them back."""


def snapshot_file(log: Path) -> Path:
    """Where the variables of a session are kept."""
    return log.with_name(f"{log.name}.variables")


async def opening_note(kernel: StatefulKernel, log: Path, settings: KernelStateSettings) -> str:
    """What to tell the model when a session with a past is opened; restores the variables when they were kept."""
    saved = snapshot_file(log)
    if not settings.keep or not saved.exists():
        return NEW_KERNEL
    report = await kernel.restore(saved)
    return f"[Note of the host] This session was opened again with a new kernel. {report.to_text()}"


async def save_state(kernel: StatefulKernel, log: Path, settings: KernelStateSettings) -> str | None:
    """Save the variables; a sentence when that went wrong or left some out, None otherwise. Never raises for it."""
    with anyio.move_on_after(settings.timeout_s):
        report = await kernel.snapshot(snapshot_file(log))
        if report.problem:
            return f"the variables were not saved: {report.problem}"
        if report.skipped:
            left_out = "; ".join(f"{entry.name} ({entry.reason})" for entry in report.skipped)
            return f"some variables were not saved: {left_out}"
        return None
    return f"the variables were not saved: it took longer than {settings.timeout_s:g} s"
