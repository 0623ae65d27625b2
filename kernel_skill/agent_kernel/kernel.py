"""A kernel whose replies are bounded and whose cells can be interrupted. Python 3.9+; ipykernel 6.29 and newer."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import zmq
from ipykernel.ipkernel import IPythonKernel
from IPython.core.error import StdinNotImplementedError

from agent_kernel import OMITTED_KEY
from agent_kernel.clip import clip
from agent_kernel.limits import spare_descriptors_kept
from agent_kernel.shell import AgentShell, capped_streams, clip_traceback

NO_INPUT = "input() cannot be used here: nobody is there to type; put the value into the code"


class CellInterrupted(Exception):
    """Raised in a cell that blocks the event loop while it is interrupted."""


class AgentKernel(IPythonKernel):
    """A kernel whose replies are bounded, and that says how much output its cell had left out."""

    shell_class = AgentShell

    def start(self) -> None:
        """Start, with a send path that does not make the shell channel deaf.

        ipykernel 7.0 sends replies raw on the shell socket. ZeroMQ's descriptor tells of changes only, and that send
        swallows the change which a request that arrives at the same moment makes: the request is never read. Later
        versions send through the stream that reads, and so do we.
        """
        super().start()
        manager: Any = getattr(getattr(self, "shell_channel_thread", None), "manager", None)
        if isinstance(getattr(manager, "_shell_socket", None), zmq.Socket):
            manager._shell_socket = self.shell_stream

    def set_parent(self, ident: Any, parent: Any, channel: str = "shell") -> None:
        """Remember the newest cell, for threads that know none."""
        super().set_parent(ident, parent, channel)
        if channel == "shell":
            self._newest_parent = parent

    def get_parent(self, channel: str | None = None) -> Any:
        """The message that is being answered. ipykernel 7.0 knows none in threads, and raises there."""
        try:
            return super().get_parent(channel)
        except LookupError:
            return getattr(self, "_newest_parent", {})

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, str] | None = None,
        allow_stdin: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        """Run a cell, then send what its streams keep back, so that it arrives before the reply."""
        with spare_descriptors_kept():
            reply: dict[str, Any] = await super().do_execute(
                code, silent, store_history, user_expressions, allow_stdin, **more
            )
        if "evalue" in reply:
            reply["evalue"] = clip(str(reply["evalue"]))
            reply["traceback"] = clip_traceback(reply.get("traceback") or [])
        reply[OMITTED_KEY] = sum(stream.end_cell() for stream in capped_streams())
        return reply

    @contextmanager
    def _cancel_on_sigint(self, future: Any) -> Iterator[None]:
        """Interrupt what blocks the loop, too.

        In a cell that awaits, ipykernel turns SIGINT into a cancellation, which waits for the loop; a blocking call in
        a gathered task never lets it come. So when the signal finds code of a cell running, it raises there, and the
        tasks that this cell has started are cancelled before they block as well. Not a KeyboardInterrupt, which would
        leave the loop and end the kernel.
        """
        with super()._cancel_on_sigint(future):
            cancel: Any = signal.getsignal(signal.SIGINT)
            older = asyncio.all_tasks()

            loop = asyncio.get_running_loop()

            def interrupt(number: int, frame: FrameType | None) -> None:
                cancel(number, frame)
                loop.call_soon_threadsafe(lambda: None)  # wake a loop that waits; the cancellation alone does not
                if self._is_cell_code(frame):
                    for task in asyncio.all_tasks() - older:
                        if task is not future and self._is_cell_code(getattr(task.get_coro(), "cr_frame", None)):
                            task.cancel()
                    raise CellInterrupted("the cell was interrupted")

            signal.signal(signal.SIGINT, interrupt)
            yield

    def _is_cell_code(self, frame: FrameType | None) -> bool:
        shell: Any = self.shell
        while frame is not None:
            if frame.f_globals is shell.user_ns:
                return True
            frame = frame.f_back
        return False

    def raw_input(self, *_prompt: object) -> str:
        """Nobody is there who could type."""
        raise StdinNotImplementedError(NO_INPUT)

    def getpass(self, *_prompt: object, **_options: object) -> str:
        """The same, for passwords."""
        raise StdinNotImplementedError(NO_INPUT)

    async def poll_stopped_queue(self) -> None:
        """There is no debugger to poll."""
