"""The limits that the kernel puts on itself before anything of the agent runs; the operating system keeps them.

Python 3.9, standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal

_RESOURCES = {
    "memory": resource.RLIMIT_AS,
    "processes": resource.RLIMIT_NPROC,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "cpu_seconds": resource.RLIMIT_CPU,
}

_PR_SET_PDEATHSIG = 1


def apply_limits(text: str) -> None:
    """Set the limits in this JSON object, hard and soft. `{"parent": pid}` ends this process with that parent."""
    limits = json.loads(text) if text else {}
    for name, kind in _RESOURCES.items():
        wanted = limits.get(name)
        if wanted is not None:
            _, hard = resource.getrlimit(kind)
            unbounded = hard == resource.RLIM_INFINITY
            value = wanted if unbounded else min(wanted, hard)
            # A second between the two: the first signal says what it is for, and the second one cannot be caught.
            more = 1 if name == "cpu_seconds" and (unbounded or value < hard) else 0
            resource.setrlimit(kind, (value, value + more))
    # A file that grew too large shall raise an OSError in the cell and not end the kernel by a signal.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.get("parent"):
        _die_with(limits["parent"])


def _die_with(parent: int) -> None:
    """Without a sandbox nobody else ends this process when the host is killed."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(1)
