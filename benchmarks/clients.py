"""jupyter_client's blocking client, on a kernel that it started itself or on one of ours that runs already."""

from __future__ import annotations

import queue
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from selfcompact.kernel import Kernel

STOCK = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
NO_DEBUGGER = [
    sys.executable,
    "-c",
    "import sys; sys.modules['debugpy'] = None; from ipykernel.kernelapp import launch_new_instance as f; f()",
    "-f",
    "{connection_file}",
]
NO_HISTORY, NO_COLOURS = "--HistoryManager.enabled=False", "--InteractiveShell.colors=nocolor"
STRIPPED = [*NO_DEBUGGER, NO_HISTORY, NO_COLOURS, "--IPCompleter.use_jedi=False"]
"""The options of our own kernels, without our launcher."""

LIMIT_S = 30.0


class Client:
    """A blocking client that runs `1+1`."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client

    def reply(self) -> None:
        """One cell, until its reply; its output is not read."""
        reply = self._client.execute("1+1", reply=True, allow_stdin=False, stop_on_error=False, timeout=LIMIT_S)
        assert reply["content"]["status"] == "ok"

    def whole(self) -> None:
        """One cell, its output collected, until the kernel is idle."""
        said: list[dict[str, Any]] = []
        reply = self._client.execute_interactive(
            "1+1", output_hook=said.append, allow_stdin=False, stop_on_error=False, timeout=LIMIT_S
        )
        assert reply["content"]["status"] == "ok"
        assert [m["content"]["data"]["text/plain"] for m in said if m["msg_type"] == "execute_result"] == ["2"]

    def drain(self) -> None:
        """Read what is left on IOPub, so that a later cell does not pay for it."""
        try:
            while True:
                self._client.get_iopub_msg(timeout=0.05)
        except queue.Empty:
            return

    def close(self) -> None:
        self._client.stop_channels()


def attached(kernel: Kernel) -> Client:
    """A client of a kernel of ours, beside our own client."""
    generation = kernel._current
    assert generation is not None
    client = BlockingKernelClient()
    client.load_connection_file(str(generation.shared_file("connection.json")[0]))
    client.start_channels()
    client.wait_for_ready(timeout=LIMIT_S)
    return Client(client)


class Started(Client):
    """A kernel of jupyter_client's own, without a sandbox, over the same kind of sockets as ours."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(dir="/tmp")
        began = time.perf_counter()
        self._manager = KernelManager(transport="ipc", ip=str(Path(self._folder.name) / "k"))
        self._manager._kernel_spec = KernelSpec(argv=list(argv), display_name="plain", language="python")
        self._manager.start_kernel()
        client: BlockingKernelClient = self._manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=LIMIT_S)
        self.start_s = time.perf_counter() - began
        super().__init__(client)

    def close(self) -> None:
        super().close()
        self._manager.shutdown_kernel(now=True)
        self._folder.cleanup()
