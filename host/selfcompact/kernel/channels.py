"""The client's end of a kernel's channels: shell, control and IOPub, one reader each for as long as they live."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import anyio
import msgspec

from host_bridge.host.connection import Client, TimeShare
from host_bridge.host.zmtp import Bounds, PassedOver
from selfcompact.kernel.cell import Cell
from selfcompact.kernel.content import CommContent, Stream, reply_of
from selfcompact.kernel.output import TextCapture
from selfcompact.kernel.receive import Checking, Received
from selfcompact.kernel.wire import Wire
from selfcompact.settings.kernel import KernelSettings

MAX_FRAMES = 64
"""Of one message: six and the buffers of widgets. What has more is passed over."""

MAX_ANSWER_BYTES = 1024 * 1024
"""Of what the kernel answers to a question of the host: a hundred names, the report of a snapshot."""

_LATE_BYTES = 2048

_MOMENT_S = 0.02

Channel = Literal["shell", "control"]
ChannelName = Literal["shell", "control", "iopub"]


class Channels:
    """Sends requests to one kernel and hands what comes back to the caller that waits for it.

    The event loop's thread owns it. Output is routed by the request it belongs to; what belongs to no running cell
    is kept apart and never enters another cell's result.
    """

    def __init__(self, info: Mapping[str, Any], settings: KernelSettings, share: TimeShare) -> None:
        self._info, self._share = info, share
        key = info["key"]
        self._wire = Wire(key if isinstance(key, bytes) else str(key).encode())
        self._bounds = Bounds(message_bytes(settings), MAX_FRAMES)
        self._cells: dict[str, Cell] = {}
        self._replies: dict[str, _Reply] = {}
        self._late = TextCapture(_LATE_BYTES // 2, _LATE_BYTES // 2)
        self.heard_iopub = anyio.Event()
        self.on_comm: Callable[[str, Mapping[str, Any]], None] = lambda _type, _content: None
        """What is called with each comm message of the kernel."""
        self.received = self.dropped = self.passed_over = 0
        """Messages, those among them that were not signed with the kernel's key, and those that were too long."""

        self._replying = Checking(self._wire, self._on_reply, self._wants_images, settings.image_bytes)
        self._showing = Checking(self._wire, self._on_iopub, self._wants_images, settings.image_bytes)
        self._sockets: dict[ChannelName, Client] = {name: self._open(name) for name in ("shell", "control", "iopub")}

    def close(self) -> None:
        """Close the sockets. A caller that still waits for a reply waits until its own limit."""
        for socket in self._sockets.values():
            socket.close()

    async def reopen(self, timeout_s: float) -> bool:
        """Connect anew, and say whether the kernel is heard again on every channel."""
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
            while seen != self.received or self._showing.busy:
                seen = self.received
                await anyio.sleep(_MOMENT_S)

    def _open(self, name: ChannelName) -> Client:
        return Client(
            f"{self._info['ip']}-{self._info[f'{name}_port']}",
            "SUB" if name == "iopub" else "DEALER",
            self._bounds,
            self._share,
            self._showing if name == "iopub" else self._replying,
            lambda _connection, note: self._on_passed_over(name, note),
        )

    def send(self, channel: Channel, message_type: str, content: Mapping[str, Any]) -> str:
        """Send a request and return its id; whether it arrives shows in its reply."""
        message_id, parts = self._wire.pack(message_type, content)
        self._sockets[channel].send(parts)
        return message_id

    async def ask(
        self, channel: Channel, message_type: str, content: Mapping[str, Any], timeout_s: float
    ) -> bytes | None:
        """Send a request and return the content of its reply, not decoded yet, of at most `MAX_ANSWER_BYTES`.

        None when none came within `timeout_s` seconds.
        """
        message_id, parts = self._wire.pack(message_type, content)
        reply = self._replies[message_id] = _Reply()
        try:
            self._sockets[channel].send(parts)
            with anyio.move_on_after(timeout_s):
                await reply.arrived.wait()
            return reply.content
        finally:
            del self._replies[message_id]

    async def evaluate(self, expressions: Mapping[str, str], timeout_s: float) -> bytes | None:
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

    def _wants_images(self, message_id: str) -> bool:
        cell = self._cells.get(message_id)
        return cell is not None and cell.wants_images

    def _on_passed_over(self, name: ChannelName, _note: PassedOver) -> None:
        """Whatever it was, it cannot be missed in silence: a reply that will not come ends its cell."""
        self.passed_over += 1
        for cell in self._cells.values():
            cell.lost = True
            if name == "shell":
                cell.end()

    def _on_reply(self, found: Received | None) -> None:
        self._count(found)
        if found is None:
            return
        message = found.message
        cell, reply = self._cells.get(message.parent_id), self._replies.get(message.parent_id)
        if cell is not None and message.type == "execute_reply":
            cell.take_reply(reply_of(message.raw_content))
        elif reply is not None:
            reply.content = message.raw_content if len(message.raw_content) <= MAX_ANSWER_BYTES else b""
            reply.arrived.set()

    def _on_iopub(self, found: Received | None) -> None:
        self._count(found)
        if found is None:
            return
        self.heard_iopub.set()
        cell, content = self._cells.get(found.message.parent_id), found.content
        if cell is not None:
            cell.take_output(content)
        if isinstance(content, CommContent):
            self.on_comm(found.message.type, msgspec.structs.asdict(content))
        elif cell is None and isinstance(content, Stream):
            self._late.feed(content.text)

    def _count(self, found: Received | None) -> None:
        self.received += 1
        self.dropped += found is None


def message_bytes(settings: KernelSettings) -> int:
    """What one message of a kernel may have: the largest image that is kept, as base64, and some text beside it."""
    return settings.image_bytes * 4 // 3 + 2 * 1024 * 1024


class _Reply:
    def __init__(self) -> None:
        self.arrived = anyio.Event()
        self.content: bytes | None = None
