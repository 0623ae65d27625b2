"""The names that are alive in a kernel, as the kernel itself lists them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agent_kernel import MAX_NAMES
from selfcompact.kernel.content import MAX_CONTENT_BYTES, Count, decoded
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


class _Listing(msgspec.Struct, frozen=True):
    names: tuple[LivingName, ...]
    omitted: Count


class _Bundle(msgspec.Struct, frozen=True):
    listing: _Listing = msgspec.field(name="application/json")


class _Evaluated(msgspec.Struct, frozen=True):
    data: _Bundle


class _Expressions(msgspec.Struct, frozen=True):
    names: _Evaluated


class _Reply(msgspec.Struct, frozen=True):
    user_expressions: _Expressions


_reply = msgspec.json.Decoder(_Reply)


def manifest_from(content: bytes | None, generation: int) -> StateManifest:
    """Read the kernel's answer. Whatever it is, the result is a bounded manifest: the kernel is not trusted."""
    if content is None:
        return StateManifest(False, generation, reason="the kernel did not answer in time")
    reply = decoded(_reply, content, MAX_CONTENT_BYTES)
    if reply is None:
        return StateManifest(False, generation, reason="the kernel's answer cannot be read")
    listing = reply.user_expressions.names.data.listing
    names = tuple(
        LivingName(_short(entry.name), _short(entry.type), _short(entry.shape)) for entry in listing.names[:MAX_NAMES]
    )
    return StateManifest(True, generation, names, listing.omitted + max(0, len(listing.names) - MAX_NAMES))


def _short(value: str) -> str:
    return " ".join(plain(value).split())[:_MAX_FIELD]
