"""The registry of what a kernel may ask its host, shared by every transport.

A dispatcher knows types, payload models and handlers; it knows no socket, key or generation. Whatever happens in a
handler becomes an answer. Host only.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from host_bridge.wire.protocol import MAX_IN_FLIGHT, ErrorCode

P = TypeVar("P", bound=BaseModel)
Handler = Callable[[P], Awaitable[BaseModel | Mapping[str, Any]]]

HANDLER_TIMEOUT_S = 10.0
"""A handler answers from memory; whatever takes longer hangs, and the cell should hear so before its own limit."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """How much one kernel may ask at a time."""

    in_flight: int = MAX_IN_FLIGHT
    """Requests that may be unanswered; the next one is answered with `busy`."""
    remembered: int = 1024
    """Answers that are kept so that a repeated request is answered and not carried out again."""


class RequestRefused(Exception):
    """Raised by a handler, or by the dispatcher, to answer with an error code and a sentence of its choice."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


@dataclass(frozen=True)
class _Entry:
    payload: type[BaseModel]
    handler: Callable[[Any], Awaitable[BaseModel | Mapping[str, Any]]]
    timeout_s: float


class Dispatcher:
    """Calls the handler that is registered for a request's type.

    The event loop's thread owns the registry. Handlers run as tasks of the transport that received the request, and
    any number of them at once; `register` and `unregister` take effect for the next request.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._entries: dict[str, _Entry] = {}

    @property
    def types(self) -> tuple[str, ...]:
        """What can be asked for now, sorted."""
        return tuple(sorted(self._entries))

    def register(
        self, request_type: str, payload: type[P], handler: Handler[P], *, timeout_s: float = HANDLER_TIMEOUT_S
    ) -> None:
        """Answer requests of this type with `handler`, which gets a validated `payload` and may be cancelled.

        A handler returns a pydantic model or a mapping that is JSON; it has `timeout_s` seconds.

        Raises:
            ValueError: the type is taken. Unregister it first.
        """
        if request_type in self._entries:
            raise ValueError(f"{request_type} already has a handler; unregister it first")
        self._entries[request_type] = _Entry(payload, handler, timeout_s)

    def unregister(self, request_type: str) -> None:
        """Refuse requests of this type from now on. Unknown types are ignored."""
        self._entries.pop(request_type, None)

    def prepare(self, request_type: str, payload: Mapping[str, Any]) -> Job:
        """Find the handler and check the payload; nothing runs yet.

        Raises:
            RequestRefused: nothing answers this type, or the payload has the wrong shape.
        """
        entry = self._entries.get(request_type)
        if entry is None:
            raise RequestRefused(ErrorCode.UNKNOWN_TYPE, f"nothing here answers {request_type!r}")
        try:
            value = entry.payload.model_validate(payload)
        except ValidationError as error:
            raise RequestRefused(ErrorCode.BAD_PAYLOAD, _first_problem(request_type, error)) from None
        return Job(request_type, entry, value)


@dataclass(frozen=True)
class Job:
    """One request that can be carried out. Its runner keeps its limit of `timeout_s` seconds."""

    request_type: str
    _entry: _Entry
    _value: BaseModel

    @property
    def timeout_s(self) -> float:
        """How long the handler may take."""
        return self._entry.timeout_s

    async def run(self) -> dict[str, Any]:
        """Carry it out and return its result as plain values.

        Raises:
            RequestRefused: for every failure; its code and sentence are the answer. What an exception of a handler
                said stays in the host's log, since the kernel may not be told everything the host knows.
        """
        try:
            return _plain(self.request_type, await self._entry.handler(self._value))
        except RequestRefused:
            raise
        except Exception as error:
            log.exception("the handler for %s failed", self.request_type)
            raise RequestRefused(
                ErrorCode.HANDLER_FAILED,
                f"the host's handler for {self.request_type} failed ({type(error).__name__})",
            ) from None

    def overdue(self) -> RequestRefused:
        """The answer when its time is up."""
        return RequestRefused(
            ErrorCode.TIMEOUT, f"the host's handler for {self.request_type} took over {self.timeout_s:g} s"
        )


def _plain(request_type: str, result: Any) -> dict[str, Any]:
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json", by_alias=True)
    if isinstance(result, Mapping):
        return dict(result)
    raise RequestRefused(
        ErrorCode.BAD_RESULT, f"the host's handler for {request_type} returned {type(result).__name__}"
    )


def _first_problem(request_type: str, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{request_type}: {where or 'payload'}: {first['msg']}{more}"
