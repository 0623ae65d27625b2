"""The kernel's end of the comm transport, for kernels whose environment names no bridge.

Opens a comm on the target `host.request` with data `{**payload, "type": …}`, which is what other runtimes understand as
well, and takes the answer from the control channel: the shell channel is busy with the very cell that waits. ipykernel
has no comm handlers on control, so they are put there at first use; they run on the control thread, and hand over to
the waiting loop.

Runs inside the kernel: Python 3.9; ipykernel and comm when they are there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
from collections.abc import Mapping
from typing import Any

from host_bridge.errors import BridgeTimeout, BridgeUnavailable, HostRequestError
from host_bridge.protocol import ErrorCode

TARGET = "host.request"

_waiting: dict[str, concurrent.futures.Future[dict[str, Any]]] = {}


def available() -> bool:
    """Whether this process is an IPython kernel, so that a comm can be opened."""
    return _kernel() is not None


async def comm_request(request_type: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Ask the host through a comm; guarantees and errors as in `kernel_end.host_request`."""
    comm, future = _open(request_type, payload)
    try:
        data = await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
    except asyncio.TimeoutError:
        raise BridgeTimeout(request_type, timeout_s) from None
    finally:
        _close(comm)
    return _result(data)


def comm_request_blocking(request_type: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """The same for a thread that cannot await."""
    comm, future = _open(request_type, payload)
    try:
        data = future.result(timeout_s)
    except concurrent.futures.TimeoutError:
        raise BridgeTimeout(request_type, timeout_s) from None
    finally:
        _close(comm)
    return _result(data)


def _open(request_type: str, payload: Mapping[str, Any]) -> tuple[Any, concurrent.futures.Future[dict[str, Any]]]:
    from comm import create_comm

    kernel = _kernel()
    if kernel is None:
        raise BridgeUnavailable("this process is no IPython kernel")
    _install(kernel)
    future: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()
    comm = create_comm(target_name=TARGET, data=None, primary=False)
    _waiting[comm.comm_id] = future  # before it is opened: the answer may come at once
    try:
        comm.open(data={**payload, "type": request_type})
    except BaseException:  # an interrupt may come at any point, and the host must hear that nobody waits any more
        _close(comm)
        raise
    return comm, future


def _close(comm: Any) -> None:
    _waiting.pop(comm.comm_id, None)
    with contextlib.suppress(Exception):  # closing tells the host to stop; a kernel that is shutting down may refuse
        comm.close()


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
