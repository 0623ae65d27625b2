"""The names that are alive in a kernel, as the kernel itself lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_kernel import MAX_NAMES
from selfcompact.kernel.output import plain

_MAX_FIELD = 120

ASK = "__import__('agent_kernel.names', fromlist=['names']).Listing()"
"""What the kernel evaluates, silently: no cell, no history, no `_`."""


@dataclass(frozen=True)
class LivingName:
    """One variable: its name, its type, and a short shape such as `DataFrame 1204×7`."""

    name: str
    type: str
    shape: str


@dataclass(frozen=True)
class StateManifest:
    """The names that are alive. When `known` is False the kernel could not be asked, and `reason` says why."""

    known: bool
    generation: int
    names: tuple[LivingName, ...] = ()
    omitted: int = 0
    """Names that are alive and not listed."""
    reason: str = ""

    def to_text(self) -> str:
        """The manifest as lines for a model; host-written data, never instructions."""
        if not self.known:
            return f"The state of the Python kernel is unknown: {self.reason}."
        if not self.names:
            return "No variables are defined in the Python kernel."
        lines = [f"- {entry.name}: {entry.shape or entry.type}" for entry in self.names]
        if self.omitted:
            lines.append(f"- … and {self.omitted} more")
        return "\n".join(lines)


def manifest_from(content: dict[str, Any] | None, generation: int) -> StateManifest:
    """Read the kernel's answer. Whatever it is, the result is a bounded manifest: the kernel is not trusted."""
    if content is None:
        return StateManifest(False, generation, reason="the kernel did not answer in time")
    try:
        data = content["user_expressions"]["names"]["data"]["application/json"]
        entries, omitted = data["names"], data["omitted"]
        names = tuple(
            LivingName(*(_short(entry[key]) for key in ("name", "type", "shape"))) for entry in entries[:MAX_NAMES]
        )
        return StateManifest(True, generation, names, max(0, int(omitted)) + max(0, len(entries) - MAX_NAMES))
    except (KeyError, TypeError, ValueError):
        return StateManifest(False, generation, reason="the kernel's answer cannot be read")


def _short(value: object) -> str:
    return " ".join(plain(str(value)).split())[:_MAX_FIELD]
