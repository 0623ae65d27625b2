"""Start an IPython kernel for an agent: `python -I launch.py -f CONNECTION_FILE`.

Run as a file in isolated mode, so that neither the working directory nor variables decide what is imported before the
kernel is up. It reports how far it came on the descriptor that `HOST_BRIDGE_STATUS_FD` names, one word per message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path


def _reporter() -> Callable[[str], None]:
    """A function that tells the host a stage; it does nothing when nobody asked for it."""
    number = os.environ.pop("HOST_BRIDGE_STATUS_FD", "")
    if not number:
        return lambda _stage: None
    import socket

    channel = socket.socket(fileno=int(number))
    channel.set_inheritable(False)

    def report(stage: str) -> None:
        try:
            channel.send(stage.encode())
            if stage == "ready":
                channel.close()
        except OSError:  # the host went away, which ends this process by other means
            pass

    return report


def main() -> None:
    """Report, become a process group of our own, import, and serve until the host says stop."""
    report = _reporter()
    report("interpreter")
    if os.getpid() != os.getpgrp():
        os.setpgid(0, 0)  # an interrupt is for this process and its children, not for the sandbox around it
    # Not resolved: without a sandbox this directory is made of links, and what they lead to has other neighbours.
    sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

    from agent_kernel.limits import apply_limits

    apply_limits(os.environ.pop("HOST_BRIDGE_LIMITS", ""))
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # ipykernel then leaves its debugger out
    report("libraries")
    from agent_kernel.app import KernelApp

    app = KernelApp.instance()
    report("kernel")
    app.initialize(sys.argv[1:])
    del sys.modules["debugpy"]
    report("ready")
    app.start()


if __name__ == "__main__":
    main()
