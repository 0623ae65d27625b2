"""Whatever a kernel sends, the host gets checked values or nothing, and hears the next honest message."""

from __future__ import annotations

import json
import logging
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_bridge.host import zmtp
from host_bridge.host.comm import CommEnd
from host_bridge.host.connection import TimeShare
from host_bridge.host.dispatcher import Dispatcher
from host_bridge.host.line import Line
from selfcompact.kernel.cell import Cell
from selfcompact.kernel.channels import Channels, _Reply
from selfcompact.kernel.content import Display, ExecuteReply, Failure, Stream, content_of, reply_of
from selfcompact.kernel.output import shown
from selfcompact.kernel.snapshot import report_from
from selfcompact.kernel.state import manifest_from
from selfcompact.settings.kernel import KernelSettings

from .fuzzing import ASKED, CELL, KEY, nested, one, parts_of, torn

CHANNELS = ("shell", "control", "iopub")
QUICK, MANY = 1_500, 100_000


class FakeKernel:
    """The other end of the three channels, whose bytes a test chooses."""

    def __init__(self, folder: Path) -> None:
        self._listeners = {name: socket.socket(socket.AF_UNIX) for name in CHANNELS}
        self.peers: dict[str, socket.socket] = {}
        for name, listener in self._listeners.items():
            listener.bind(str(folder / f"k-{name}"))
            listener.listen()
            listener.setblocking(False)
        self.info = {"key": KEY, "ip": str(folder / "k"), **{f"{name}_port": name for name in CHANNELS}}

    async def accept(self, name: str) -> None:
        """Take the connection that the host made, or made anew, and shake hands."""
        if name in self.peers:
            self.peers[name].close()
        with anyio.fail_after(5):
            self.peers[name], _ = await anyio.to_thread.run_sync(self._blocking, self._listeners[name])
        self.peers[name].setblocking(True)
        await self.send(name, zmtp.GREETING + zmtp.ready(b"PUB" if name == "iopub" else b"ROUTER"))

    async def send(self, name: str, data: bytes) -> None:
        await anyio.to_thread.run_sync(self.peers[name].sendall, data)

    def close(self) -> None:
        for made in (*self._listeners.values(), *self.peers.values()):
            made.close()

    @staticmethod
    def _blocking(listener: socket.socket) -> tuple[socket.socket, Any]:
        listener.settimeout(5)
        return listener.accept()


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[FakeKernel, Channels]]:
    kernel = FakeKernel(folder)
    share = TimeShare(burst_s=1000, share=1)
    channels = Channels(kernel.info, KernelSettings(images_per_cell=2), share)
    try:
        async with anyio.create_task_group() as tasks:
            line = Line(Dispatcher(), key=KEY, generation=1, tasks=tasks)
            line.start()
            channels.on_comm = CommEnd(line, key=KEY, generation=1, send=lambda *_: None).receive
            for name in CHANNELS:
                await kernel.accept(name)
            yield kernel, channels
            tasks.cancel_scope.cancel()
    finally:
        channels.close()
        kernel.close()


async def heard(kernel: FakeKernel, channels: Channels) -> None:
    """An honest message at the end is heard on every channel."""
    cell = Cell(KernelSettings(), None)
    channels._cells["honest"] = cell
    await kernel.send("shell", zmtp.message(parts_of("execute_reply", "honest", b'{"status": "ok"}')[1:]))
    await kernel.send("iopub", zmtp.message(parts_of("stream", "honest", b'{"text": "42"}')))
    await kernel.send("iopub", zmtp.message(parts_of("status", "honest", b'{"execution_state": "idle"}')))
    with anyio.fail_after(20):
        await cell.over.wait()
        await cell.idle.wait()
    result = cell.result("ok", generation=1)
    assert result.text == "42"


def assert_plain(cell: Cell, settings: KernelSettings) -> None:
    result = cell.result("error", generation=1)
    said = "\n".join((result.text, result.error_name or "", result.error_value or ""))
    said.encode()
    assert "\x1b" not in said
    assert len(result.images) <= settings.images_per_cell
    assert len(result.text) < 4 * (settings.output_head_bytes + settings.output_tail_bytes)


async def fuzzed(folder: Path, seed: int, count: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)
    settings = KernelSettings(images_per_cell=2)
    async with connected(folder) as (kernel, channels):
        for _ in range(count // 500):
            cell = Cell(settings, None)
            channels._cells[CELL] = cell
            asked = channels._replies[ASKED] = _Reply()
            messages = [one(chance) for _ in range(500)]
            for name in ("iopub", "shell"):
                await kernel.send(name, b"".join(messages[name == "shell" :: 2]))
            await heard(kernel, channels)
            assert_plain(cell, settings)
            channels.take_late().encode()
            manifest_from(asked.content, 1).to_text().encode()
            report_from(asked.content).to_text().encode()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("seed", "count"), [(1, QUICK), *(pytest.param(seed, MANY // 5, marks=pytest.mark.slow) for seed in range(2, 7))]
)
@pytest.mark.timeout(300)
async def test_whatever_a_kernel_sends_becomes_checked_values_and_the_next_message_is_heard(
    socket_path: Path, caplog: pytest.LogCaptureFixture, seed: int, count: int
) -> None:
    await fuzzed(socket_path.parent, seed, count, caplog)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))])
async def test_bytes_that_break_the_protocol_cost_a_connection_and_the_next_one_is_heard(
    socket_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    chance = random.Random(seed)
    async with connected(socket_path.parent) as (kernel, channels):
        for _ in range(4):
            data = b"".join(one(chance) for _ in range(5))
            try:
                await kernel.send("iopub", torn(data, chance) + b"\xff" * 4)
                kernel.peers["iopub"].settimeout(5)
                await anyio.to_thread.run_sync(_to_the_end, kernel.peers["iopub"])
            except OSError:
                pass
            await kernel.accept("iopub")
        await heard(kernel, channels)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def _to_the_end(peer: socket.socket) -> None:
    """Until the host has closed its end; a frame that claims more than there is would wait, so ours ends here."""
    peer.shutdown(socket.SHUT_WR)
    while peer.recv(65536):
        pass


TYPES = [
    "stream",
    "display_data",
    "execute_result",
    "error",
    "clear_output",
    "status",
    "comm_open",
    "comm_msg",
    "other",
]
KEYS = ["text", "data", "text/plain", "image/png", "ename", "evalue", "traceback", "wait", "execution_state", "comm_id"]

any_text = st.text(st.characters(exclude_categories=()), max_size=20)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner),
    max_leaves=20,
)


@given(
    st.sampled_from(TYPES),
    any_json.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) | st.binary(),
)
def test_any_content_is_read_or_is_none_and_its_text_can_be_encoded(kind: str, raw: bytes) -> None:
    content = content_of(kind, raw)
    reply = reply_of(raw)
    manifest_from(raw, 1)
    report_from(raw)
    for said in (content, reply):
        if isinstance(said, Stream | Failure | ExecuteReply):
            "".join(text for text in msgspec.structs.astuple(said) if isinstance(text, str)).encode()
        if isinstance(said, Display):
            shown(said.data, 1000).text.encode()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"text": "a\xe9b"}', "a\\xe9b"),
        (b'{"text": "a\\udfffb"}', "a\ufffdb"),
        (b'{"text": "a\\ud83d\\ude00b"}', "a\U0001f600b"),
        (b'{"text": "a\xed\xbf\xbfb"}', "a\\xed\\xbf\\xbfb"),
        (b'{"text": "a\xe9\\\\xff"}', "a\\xe9\\xff"),
    ],
)
def test_text_that_no_encoder_takes_is_shown_with_escapes(raw: bytes, text: str) -> None:
    assert content_of("stream", raw) == Stream(text)


@pytest.mark.parametrize("kind", ["[]", "{}"])
def test_content_that_is_nested_too_deep_is_none(kind: str) -> None:
    raw = b'{"data": {"text/plain": "x", "k": ' + nested(200_000, kind).encode() + b"}}"
    assert content_of("display_data", raw) is None
    assert content_of("comm_msg", raw[:300_000]) is None
