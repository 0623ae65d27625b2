"""The two calls, and the shapes of what they return. Standard library and `host_bridge` only; Python 3.9."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Optional, TypedDict, Union, cast

from compact._request import HostCall
from host_bridge.kernel.requests import host_request
from host_bridge.wire.errors import HostRequestError
from host_bridge.wire.protocol import DEFAULT_TIMEOUT_S, CompactType, ErrorCode

DISABLED = "the compact skill is disabled in this session"


class _StatusAlways(TypedDict):
    tokens: Optional[int]  # noqa: UP045 - evaluated by get_type_hints on Python 3.9
    context_window: Optional[int]  # noqa: UP045 - the same
    percent: Optional[float]  # noqa: UP045 - the same
    scheduled: bool


class Status(_StatusAlways, total=False):
    """How full the context is.

    `tokens` and `percent` are None after a compaction until the next response; `estimated_tokens` is always a number.
    `would_compact` says whether `run()` would be accepted now, `reason` why not.
    `cached_tokens` of the newest prompt came from the provider's cache; a compaction makes it begin anew.
    """

    estimated_tokens: int
    threshold_tokens: Optional[int]  # noqa: UP045 - the same
    would_compact: bool
    reason: str
    cached_tokens: Optional[int]  # noqa: UP045 - the same


class Scheduled(TypedDict):
    """The compaction will run when this turn is over. `scheduled` is True."""

    scheduled: bool
    note: str


class NotScheduled(TypedDict):
    """No compaction will run, and why. `scheduled` is False. Carry on."""

    scheduled: bool
    reason: str


RunResult = Union[Scheduled, NotScheduled]  # evaluated at run time, on Python 3.9 too


def status() -> Coroutine[Any, Any, Status]:
    """How full the context is: `await compact.status()`.

    Returns a dict: `tokens` (int or None), `context_window` (int or None), `percent` (float or None), `scheduled`
    (bool: is a compaction asked for already), and more keys, `estimated_tokens` among them. Changes nothing.

    Raises:
        BridgeUnavailable: no host answers.
        RuntimeError: the operator switched this skill off.
    """

    async def ask() -> Status:
        return cast("Status", await ask_host(CompactType.STATUS, {}))

    return HostCall("compact.status()", ask)


def run(instructions: str | None = None) -> Coroutine[Any, Any, RunResult]:
    """Ask for a compaction when this turn is over: `await compact.run("keep the failing test names")`.

    `instructions` says in words what the summary must keep; what stands in `backticks` or "quotes" is kept word for
    word. Returns at once with `{"scheduled": True, "note": …}` or `{"scheduled": False, "reason": …}`. A second call in
    the same turn replaces the instructions of the first. Variables and files are not touched.

    Raises:
        TypeError: the instructions are not a str; nothing was sent.
        BridgeUnavailable: no host answers.
        RuntimeError: the operator switched this skill off.
    """
    __tracebackhide__ = True  # a traceback ends in the cell that made the mistake
    if instructions is not None and not isinstance(instructions, str):
        raise TypeError(
            f"compact.run() takes its instructions as a str, not {type(instructions).__name__}; nothing was sent"
        )
    payload: dict[str, Any] = {}
    if instructions is not None:
        # Half of a surrogate pair cannot be sent on; the rest of the instructions still is.
        payload["instructions"] = instructions.encode("utf-8", "replace").decode("utf-8")

    async def ask() -> RunResult:
        return cast("RunResult", await ask_host(CompactType.RUN, payload))

    return HostCall("compact.run()", ask)


async def ask_host(request_type: str, payload: dict[str, Any], timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
    """Ask the host; a type that it does not answer means that the skill is switched off."""
    try:
        return await host_request(request_type, payload, timeout_s=timeout_s)
    except HostRequestError as error:
        if error.code == ErrorCode.UNKNOWN_TYPE:
            raise RuntimeError(DISABLED) from None
        raise
