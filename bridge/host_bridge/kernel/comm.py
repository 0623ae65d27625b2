"""The kernel's end of the comm transport, for kernels whose environment names no bridge.

Opens a comm on the target `host.request` with data `{**payload, "type": …}`, which is what other runtimes understand as
well, and takes the answer from the control channel: the shell channel is busy with the very cell that waits. ipykernel
has no comm handlers on control, so they are put there at first use; they run on the control thread, and hand over to
the waiting loop.

Runs inside the kernel: Python 3.9; ipykernel when it is there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import uuid
from collections.abc import Mapping
from typing import Any

from host_bridge.wire.errors import BridgeTimeout, BridgeUnavailable, HostRequestError
from host_bridge.wire.protocol import COMM_TARGET, ErrorCode

_waiting: dict[str, concurrent.futures.Future[dict[str, Any]]] = {}


def available() -> bool:
    """Whether this process is an IPython kernel, so that a comm can be opened."""
    return _kernel() is not None


async def comm_request(request_type: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Ask the host through a comm; guarantees and errors as in `requests.host_request`."""
    with _Call(request_type, payload) as call:
        try:
            data = await asyncio.wait_for(asyncio.wrap_future(call.future), timeout_s)
        except asyncio.TimeoutError:
            raise BridgeTimeout(request_type, timeout_s) from None
    return _result(data)


def comm_request_blocking(request_type: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """The same for a thread that cannot await."""
    with _Call(request_type, payload) as call:
        try:
            data = call.future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            raise BridgeTimeout(request_type, timeout_s) from None
    return _result(data)


class _Call:
    """One comm: opened with the request, closed when nobody waits any more, which tells the host to stop.

    The messages are made here and not by the comm package, whose objects need a parent message; some versions of
    ipykernel have none in threads, and raise.
    """

    def __init__(self, request_type: str, payload: Mapping[str, Any]) -> None:
        self.future: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()
        self._id = uuid.uuid4().hex
        self._data = {**payload, "type": request_type}
        self._kernel = _kernel()

    def __enter__(self) -> _Call:
        if self._kernel is None:
            raise BridgeUnavailable("this process is not an IPython kernel")
        _install(self._kernel)
        _waiting[self._id] = self.future  # before it is opened: the answer may come at once
        try:
            self._send("comm_open", {"target_name": COMM_TARGET, "target_module": None, "data": self._data})
        except BaseException:  # an interrupt may come at any point, and the host must hear of it
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        _waiting.pop(self._id, None)
        with contextlib.suppress(Exception):  # a kernel that is shutting down may refuse
            self._send("comm_close", {"data": {}})

    def _send(self, message_type: str, content: dict[str, Any]) -> None:
        try:
            parent = self._kernel.get_parent()
        except LookupError:
            parent = {}
        self._kernel.session.send(
            self._kernel.iopub_socket,
            message_type,
            {"comm_id": self._id, **content},
            parent=parent,
            ident=f"comm-{self._id}".encode(),
        )


def _install(kernel: Any) -> None:
    for message_type in ("comm_msg", "comm_close"):
        present = kernel.control_handlers.get(message_type)
        if getattr(present, "host_bridge", False):
            continue
        fallback = present or getattr(kernel.comm_manager, message_type)
        kernel.control_handlers[message_type] = _handler(message_type, fallback)


def _handler(message_type: str, fallback: Any) -> Any:
    def handle(stream: Any, ident: Any, message: dict[str, Any]) -> Any:
        content = message["content"]
        future = _waiting.pop(content.get("comm_id", ""), None)
        if future is None:
            return fallback(stream, ident, message)
        if not future.done():
            if message_type == "comm_msg":
                future.set_result(dict(content.get("data") or {}))
            else:
                future.set_exception(BridgeUnavailable("the host closed the comm"))
        return None

    handle.host_bridge = True  # type: ignore[attr-defined]  # marks our handler, whichever module object made it
    return handle


def _result(data: Mapping[str, Any]) -> dict[str, Any]:
    if data.get("status") != "ok":
        error = data.get("error")
        if isinstance(error, Mapping):
            raise HostRequestError(str(error.get("code", "")), str(error.get("message", "")))
        raise HostRequestError(str(data.get("code") or ErrorCode.HANDLER_FAILED), str(error or "no reason given"))
    if isinstance(data.get("result"), Mapping) and "v" in data:
        return dict(data["result"])
    return {key: value for key, value in data.items() if key != "status"}


def _kernel() -> Any:
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return getattr(shell, "kernel", None)
