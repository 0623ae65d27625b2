"""The client's end of a kernel's channels: shell, control and IOPub, one reader each for as long as they live."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import anyio
import zmq

from host_bridge.wire.loop_socket import LoopSocket
from selfcompact.kernel.cell import Cell
from selfcompact.kernel.output import TextCapture
from selfcompact.kernel.wire import Message, Wire

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""What one message may have. Our kernels stay far below; a hostile one is cut off rather than read."""

_IOPUB_QUEUE = 1000
_LATE_BYTES = 2048

_MOMENT_S = 0.02

Channel = Literal["shell", "control"]
ChannelName = Literal["shell", "control", "iopub"]


class Channels:
    """Sends requests to one kernel and hands what comes back to the caller that waits for it.

    The event loop's thread owns it. Output is routed by the request it belongs to; what belongs to no running cell
    is kept apart and never enters another cell's result.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], info: Mapping[str, Any]) -> None:
        self._context, self._info = context, info
        key = info["key"]
        self._wire = Wire(key if isinstance(key, bytes) else str(key).encode())
        self._cells: dict[str, Cell] = {}
        self._replies: dict[str, _Reply] = {}
        self._late = TextCapture(_LATE_BYTES // 2, _LATE_BYTES // 2)
        self.heard_iopub = anyio.Event()
        self.on_comm: Callable[[str, Mapping[str, Any]], None] = lambda _type, _content: None
        """What is called with each comm message of the kernel."""
        self.received = self.dropped = 0
        """Messages, and those among them that were not signed with the kernel's key."""

        self._sockets: dict[ChannelName, LoopSocket] = {}
        self._sockets["shell"] = self._open("shell")
        self._sockets["control"] = self._open("control")
        self._sockets["iopub"] = self._open("iopub")

    def close(self) -> None:
        """Close the sockets. A caller that still waits for a reply waits until its own limit."""
        for socket in self._sockets.values():
            socket.close()

    async def reopen(self, timeout_s: float) -> bool:
        """Connect anew, and say whether the kernel is heard again on every channel.

        ZeroMQ gives a connection up, without a word, when a message on it is longer than we read.
        """
        for name, socket in self._sockets.items():
            socket.close()
            self._sockets[name] = self._open(name)
        self.heard_iopub = anyio.Event()
        with anyio.move_on_after(timeout_s):
            while await self.ask("shell", "kernel_info_request", {}, 0.1) is None or not self.heard_iopub.is_set():
                pass
            return True
        return False

    async def until_quiet(self, limit_s: float) -> None:
        """Read until nothing has come for a moment, at most `limit_s` seconds: the last words of a kernel that died."""
        with anyio.move_on_after(limit_s):
            seen = -1
            while seen != self.received:
                seen = self.received
                await anyio.sleep(_MOMENT_S)

    def _open(self, name: ChannelName) -> LoopSocket:
        socket: zmq.Socket[bytes] = self._context.socket(zmq.SUB if name == "iopub" else zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, 10)
        if name == "iopub":
            socket.setsockopt(zmq.RCVHWM, _IOPUB_QUEUE)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(f"ipc://{self._info['ip']}-{self._info[f'{name}_port']}")
        return LoopSocket(socket, self._on_iopub if name == "iopub" else self._on_reply)

    def send(self, channel: Channel, message_type: str, content: Mapping[str, Any]) -> str:
        """Send a request and return its id; whether it arrives shows in its reply."""
        message_id, parts = self._wire.pack(message_type, content)
        self._sockets[channel].send(parts)
        return message_id

    async def ask(
        self, channel: Channel, message_type: str, content: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any] | None:
        """Send a request and return the content of its reply; None when none came within `timeout_s` seconds."""
        message_id, parts = self._wire.pack(message_type, content)
        reply = self._replies[message_id] = _Reply()
        try:
            self._sockets[channel].send(parts)
            with anyio.move_on_after(timeout_s):
                await reply.arrived.wait()
            return reply.content
        finally:
            del self._replies[message_id]

    async def evaluate(self, expressions: Mapping[str, str], timeout_s: float) -> dict[str, Any] | None:
        """Evaluate expressions of ours silently: no cell, no history, no `_`, no execution count."""
        content = {
            "code": "",
            "silent": True,
            "store_history": False,
            "user_expressions": dict(expressions),
            "allow_stdin": False,
            "stop_on_error": False,
        }
        return await self.ask("shell", "execute_request", content, timeout_s)

    def start_cell(self, code: str, cell: Cell) -> str:
        """Send a cell to be run; its output and its reply go to `cell` until `forget_cell`."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,  # it would abort the next cell too, when that comes quickly after an error
        }
        message_id, parts = self._wire.pack("execute_request", content)
        self._cells[message_id] = cell
        self._sockets["shell"].send(parts)
        return message_id

    def forget_cell(self, message_id: str) -> None:
        """What still comes for this cell is late."""
        self._cells.pop(message_id, None)

    def take_late(self) -> str:
        """What cells printed after they had ended, since this was last asked."""
        text = self._late.text()
        self._late = TextCapture(_LATE_BYTES // 2, _LATE_BYTES // 2)
        return text.strip("\n")

    def _on_reply(self, parts: list[bytes]) -> None:
        message = self._read(parts)
        if message is None:
            return
        cell, reply = self._cells.get(message.parent_id), self._replies.get(message.parent_id)
        if cell is not None and message.type == "execute_reply":
            cell.take_reply(message)
        elif reply is not None:
            reply.content = message.content
            reply.arrived.set()

    def _on_iopub(self, parts: list[bytes]) -> None:
        message = self._read(parts)
        if message is None:
            return
        self.heard_iopub.set()
        cell = self._cells.get(message.parent_id)
        if cell is not None:
            cell.take_output(message)
        if message.type in ("comm_open", "comm_msg", "comm_close"):
            self.on_comm(message.type, message.content)
        elif cell is None and message.type == "stream":
            self._late.feed(str(message.content.get("text", "")))

    def _read(self, parts: list[bytes]) -> Message | None:
        message = self._wire.unpack(parts)
        self.received += 1
        self.dropped += message is None
        return message


class _Reply:
    def __init__(self) -> None:
        self.arrived = anyio.Event()
        self.content: dict[str, Any] | None = None
