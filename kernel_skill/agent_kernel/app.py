"""The application around an agent's kernel: no history database, no colours, no debugger, no files of the user's.

Python 3.9+; ipykernel 6.29 and newer. The classes override hooks that all those versions have.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import IPython
import zmq
from ipykernel.kernelapp import IPKernelApp
from jupyter_client.session import Session
from traitlets import default
from traitlets.config import Config

from agent_kernel.kernel import AgentKernel
from agent_kernel.streams import remember_threads

IOPUB_QUEUE = 50_000
"""Messages that IOPub keeps for a slow reader before it drops one. Their size is bounded, so this is bounded too."""

MESSAGE_LIMIT = int(os.environ.pop("HOST_BRIDGE_MESSAGE", "") or 8 * 1024 * 1024) - 64 * 1024
"""Bytes of one message, less what its headers have; the host passes over what is longer than it says."""

TOO_LONG = "[left out: too long to send]"


class BoundedSession(Session):
    """Never sends a message that its receiver would refuse, and with it the connection."""

    def serialize(self, msg: dict[str, Any], ident: Any = None) -> list[bytes]:
        """The message's parts; one that is too long goes without the longest forms of what it displays, or without
        its content."""
        parts: list[bytes] = super().serialize(msg, ident)
        if sum(map(len, parts)) > MESSAGE_LIMIT:
            data = msg["content"].get("data") if isinstance(msg.get("content"), dict) else None
            if isinstance(data, dict) and len(str(data.get("text/plain", ""))) < MESSAGE_LIMIT // 8:
                short = {form: value for form, value in data.items() if len(str(value)) < MESSAGE_LIMIT // 8}
                left = ", ".join(sorted(map(str, data.keys() - short.keys())))
                short["text/plain"] = f"{short.get('text/plain', '')}\n[left out, too long to send: {left}]".lstrip()
                return super().serialize({**msg, "content": {**msg["content"], "data": short}}, ident)
            status = {"status": "error", "ename": "MessageTooLong", "evalue": TOO_LONG, "traceback": [TOO_LONG]}
            text = {"data": {"text/plain": TOO_LONG}, "metadata": {}, "name": "stderr", "text": TOO_LONG}
            parts = super().serialize({**msg, "content": {**status, **text}}, ident)
        return parts


class KernelApp(IPKernelApp):
    """The application around the kernel."""

    kernel_class = AgentKernel
    outstream_class = "agent_kernel.streams.CappedStream"
    name = "ipython-kernel"

    def load_config_file(self, *_args: Any, **_kwargs: Any) -> None:
        """The host's settings, and no file of the user's, decide how an agent's kernel behaves."""
        self.update_config(_config())

    @default("session")
    def _default_session(self) -> Session:
        return BoundedSession(parent=self, config=self.config)

    def init_path(self) -> None:
        """Let cells import from the working directory, after the standard library, as in any other kernel.

        We start isolated, so that nothing there is imported while the kernel starts; newer IPythons take that as a
        wish to leave the directory out for good.
        """
        if "" not in sys.path:
            packages = [n for n, path in enumerate(sys.path) if path.endswith(("site-packages", "dist-packages"))]
            sys.path.insert(packages[0] if packages else len(sys.path), "")

    def init_iopub(self, context: Any) -> None:
        """Give IOPub a longer queue: what it drops is lost without a trace."""
        context.sockopts[zmq.SNDHWM] = IOPUB_QUEUE
        try:
            super().init_iopub(context)
        finally:
            del context.sockopts[zmq.SNDHWM]
        # Its thread opens this socket when it first sends something. A cell may have used up all descriptors by then.
        thread: Any = self.iopub_thread
        thread.schedule(lambda: thread._event_pipe)

    def init_code(self) -> None:
        """Import the skill under its name before anything runs, hidden from `%who` and from the list of names."""
        import compact

        shell: Any = self.shell
        shell.user_ns["compact"] = compact
        shell.user_ns_hidden["compact"] = compact
        remember_threads()
        super().init_code()


def _config() -> Config:
    config = Config()
    config.HistoryManager.enabled = False  # a database on disk, of cells that nobody will search
    config.InteractiveShell.colors = "nocolor" if IPython.version_info[0] >= 9 else "NoColor"
    config.InteractiveShell.history_load_length = 0
    config.IPCompleter.use_jedi = False
    return config
