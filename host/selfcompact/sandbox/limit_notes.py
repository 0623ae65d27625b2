"""Which limit of the sandbox a cell ran into, in a sentence. Pure.

The operating system only says "no space left" or "resource temporarily unavailable". A cell's result says
which setting that was, so that it is not taken for a fault of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pydantic import ByteSize

from selfcompact.sandbox.mounts import IN_MEMORY
from selfcompact.sandbox.policy import SandboxPolicy

_Sentence = Callable[[SandboxPolicy], str]


def _size(size: ByteSize | None) -> str:
    return "no limit" if size is None else size.human_readable()


def _count(number: int | None) -> str:
    return "any number of" if number is None else f"{number:,}"


def _space(policy: SandboxPolicy) -> str:
    places = ", ".join(map(str, IN_MEMORY))
    return (
        f"{places} each hold {_size(policy.tmp_size)} (sandbox.tmpSize) in {_count(policy.tmp_files)} files "
        "(sandbox.tmpFiles); elsewhere, the disk is full"
    )


_SENTENCES: Mapping[str, _Sentence] = {
    "memory": lambda policy: f"a process may have {_size(policy.memory)} of memory (sandbox.memory)",
    "processes": lambda policy: f"there may be {_count(policy.processes)} processes and threads (sandbox.processes)",
    "file_size": lambda policy: f"a file may have {_size(policy.file_size)} (sandbox.fileSize)",
    "open_files": lambda policy: f"a process may have {_count(policy.open_files)} files open (sandbox.openFiles)",
    "tmp_size": _space,
    "cpu_seconds": lambda policy: (
        f"a process may use {_count(policy.cpu_seconds)} seconds of a processor (sandbox.cpuSeconds)"
    ),
}

_ERRORS = (
    ("memory", r"^\w*MemoryError\b|\[Errno 12\]"),
    ("processes", r"^BlockingIOError: \[Errno 11\]|can't start new thread"),
    ("file_size", r"\[Errno 27\]|SIGXFSZ"),
    ("open_files", r"\[Errno 24\]"),
    ("tmp_size", r"\[Errno 28\]"),
    ("cpu_seconds", r"SIGXCPU"),
)
"""What an exception's name and text look like when this limit raised it."""

_OUTPUT = (
    ("memory", r": Cannot allocate memory$"),
    ("processes", r"fork: .*Resource temporarily unavailable$|Cannot fork$"),
    ("file_size", r": File too large$|File size limit exceeded"),
    ("open_files", r": Too many open files$"),
    ("tmp_size", r": No space left on device$"),
    ("cpu_seconds", r"CPU time limit exceeded"),
)
"""What shells and programs print at the end of a line."""


def limit_reached(policy: SandboxPolicy, error_name: str | None, error_value: str | None, text: str) -> str | None:
    """A sentence that names the limit which a cell's error or output tells of; None when it tells of none."""
    error = f"{error_name}: {error_value}" if error_name else ""
    for patterns, where in ((_ERRORS, error), (_OUTPUT, text)):
        for name, pattern in patterns:
            # A limit that is not set cannot have been reached; nor is there a private /tmp without a sandbox.
            unset = getattr(policy, name) is None or (name == "tmp_size" and policy.kind == "none")
            if not unset and re.search(pattern, where, re.MULTILINE):
                return f"A limit was reached: {_SENTENCES[name](policy)}."
    return None
