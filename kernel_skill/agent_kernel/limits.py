"""The limits that the kernel puts on itself before anything of the agent runs; the operating system keeps them.

Python 3.9, standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_RESOURCES = {
    "memory": resource.RLIMIT_AS,
    "processes": resource.RLIMIT_NPROC,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "cpu_seconds": resource.RLIMIT_CPU,
}

SPARE_DESCRIPTORS = 64
"""Kept from cells, so that one that has used up its own does not keep the kernel from answering: ZeroMQ ends the whole
process when it cannot open what it needs."""

_MORE = {"cpu_seconds": 1, "open_files": SPARE_DESCRIPTORS}
"""How far the hard limit is above the soft one. With a second between them, the signal says what it is for."""

_open_files = 0
"""The limit for cells; 0 when none was set."""

_PR_SET_PDEATHSIG = 1


def apply_limits(text: str) -> None:
    """Set the limits in this JSON object, hard and soft; `{"parent": pid}` ends this process with that parent."""
    global _open_files
    limits = json.loads(text) if text else {}
    _open_files = limits.get("open_files") or 0
    for name, kind in _RESOURCES.items():
        wanted = limits.get(name)
        if wanted is not None:
            _, hard = resource.getrlimit(kind)
            unbounded = hard == resource.RLIM_INFINITY
            value = wanted if unbounded else min(wanted, hard)
            highest = value + _MORE.get(name, 0)
            resource.setrlimit(kind, (value, highest if unbounded else min(highest, hard)))
    # A file that grew too large raises an OSError in the cell; the signal would end the kernel.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.get("parent"):
        _die_with(limits["parent"])


@contextmanager
def spare_descriptors_kept() -> Iterator[None]:
    """Keep the spare descriptors from what runs in the block, and give them to the kernel afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not 0 < _open_files < hard:  # not our limits, or a machine with lower ones
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, _open_files), hard))
    try:
        yield
    finally:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # the cell may have lowered it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _die_with(parent: int) -> None:
    """Without a sandbox nobody else ends this process when the host is killed."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(1)
