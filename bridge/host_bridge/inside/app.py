"""The IPython kernel as an agent needs it: bounded messages, no history database, no colours, no debugger.

Python 3.9+; ipykernel 6.29 and newer. The classes override documented hooks only, so that one file fits all versions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import IPython
import zmq
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.error import StdinNotImplementedError
from traitlets.config import Config

from host_bridge.inside.clip import clip, clip_data

OMITTED_KEY = "host_bridge_omitted"
"""Where an execute_reply says how many characters of the cell's output were left out at the source."""

IOPUB_QUEUE = 50_000
"""Messages that IOPub keeps for a slow reader before it drops one. Their size is bounded, so this is bounded too."""

NO_INPUT = "input() cannot be used here: nobody is there to type; put the value into the code"

_TRACEBACK_LINES = 60


class AgentShell(ZMQInteractiveShell):
    """An interactive shell whose displayed values and tracebacks fit into a message."""

    def init_environment(self) -> None:
        """Undo what a notebook's kernel tells programs: nobody here wants colours or pages."""
        before = dict(os.environ)
        super().init_environment()
        for name in ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "GIT_PAGER", "PAGER", "TERM"):
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)

    def init_display_formatter(self) -> None:
        """Bound every value that is displayed, whoever displays it."""
        super().init_display_formatter()
        formatter: Any = self.display_formatter
        unbounded = formatter.format

        def bounded(*args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            data, metadata = unbounded(*args, **kwargs)
            return clip_data(data), metadata

        formatter.format = bounded

    def _showtraceback(self, etype: type, evalue: object, stb: Sequence[str]) -> None:
        super()._showtraceback(etype, clip(_text(evalue)), _clip_traceback(stb))


class AgentKernel(IPythonKernel):
    """A kernel whose replies are bounded, and that says how much output its cell had left out."""

    shell_class = AgentShell

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
        reply: dict[str, Any] = await super().do_execute(
            code, silent, store_history, user_expressions, allow_stdin, **more
        )
        if "evalue" in reply:
            reply["evalue"] = clip(str(reply["evalue"]))
            reply["traceback"] = _clip_traceback(reply.get("traceback") or [])
        streams = (sys.stdout, sys.stderr)
        reply[OMITTED_KEY] = sum(stream.end_cell() for stream in streams if hasattr(stream, "end_cell"))
        return reply

    def raw_input(self, *_prompt: object) -> str:
        """Nobody is there who could type."""
        raise StdinNotImplementedError(NO_INPUT)

    def getpass(self, *_prompt: object, **_options: object) -> str:
        """The same, for passwords."""
        raise StdinNotImplementedError(NO_INPUT)

    async def poll_stopped_queue(self) -> None:
        """There is no debugger to poll."""


class KernelApp(IPKernelApp):
    """The application around the kernel."""

    kernel_class = AgentKernel
    outstream_class = "host_bridge.inside.streams.CappedStream"
    name = "ipython-kernel"

    def load_config_file(self, *_args: Any, **_kwargs: Any) -> None:
        """The host's settings, and no file of the user's, decide how an agent's kernel behaves."""
        self.update_config(_config())

    def init_iopub(self, context: Any) -> None:
        """Give IOPub a longer queue: what it drops is lost without a trace."""
        context.sockopts[zmq.SNDHWM] = IOPUB_QUEUE
        try:
            super().init_iopub(context)
        finally:
            del context.sockopts[zmq.SNDHWM]

    def init_code(self) -> None:
        """Import the skill under its name before anything runs, hidden from `%who` and from the list of names."""
        import compact

        shell: Any = self.shell
        shell.user_ns["compact"] = compact
        shell.user_ns_hidden["compact"] = compact
        super().init_code()


def _config() -> Config:
    config = Config()
    config.HistoryManager.enabled = False  # a database on disk, of cells that nobody will search
    config.InteractiveShell.colors = "nocolor" if IPython.version_info[0] >= 9 else "NoColor"
    config.InteractiveShell.history_load_length = 0
    config.IPCompleter.use_jedi = False
    return config


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - an exception's own __str__ may do anything
        return f"<no text: {type(error).__name__}>"


def _clip_traceback(lines: Sequence[str]) -> list[str]:
    clipped = [clip(str(line)) for line in lines]
    if len(clipped) <= _TRACEBACK_LINES:
        return clipped
    half = _TRACEBACK_LINES // 2
    return [*clipped[:half], f"[… {len(clipped) - 2 * half} frames left out …]", *clipped[-half:]]
