"""Run as a file: `python -I -S memory_stage.py MOUNTS PROGRAM ARGUMENT…` mounts file systems and becomes PROGRAM.

A file system in memory takes a limit for the number of its files only when it is mounted, and bubblewrap has no option
for it. So they are mounted before, in a user and a mount namespace of our own, where this needs no rights; bubblewrap
then takes them into the sandbox, whose processes live one user namespace further down and can neither mount nor change
them. The process number stays the same, and what was opened for the program goes on to it.

MOUNTS is a JSON list of `[directory, options]`. When the namespaces or mounts cannot be had, it ends with 71 and a
sentence.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

FAILED = 71
"""The exit code for "the operating system would not", from sysexits.h."""

# include/uapi/linux/sched.h, mount.h, prctl.h
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_NO_SUID, _NO_DEVICES, _RECURSIVE, _PRIVATE = 2, 4, 0x4000, 0x40000
_SET_DEATH_SIGNAL = 1


def main(arguments: list[str]) -> None:
    """Mount, and become the program. Does not return."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")

    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(_NEW_USER | _NEW_MOUNTS), "no namespaces")
    # The namespace took the parent's death signal away, and until the program asks for its own nothing would end it.
    check(libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "no death signal")
    if os.getppid() != parent:
        os._exit(1)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - imports little, it is part of every start
            file.write(text)
    check(libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None), "mounts cannot be made private")
    for directory, options in json.loads(arguments[0]):
        place = os.fsencode(directory)
        check(libc.mount(b"tmpfs", place, b"tmpfs", _NO_SUID | _NO_DEVICES, os.fsencode(options)), directory)
    os.execv(arguments[1], arguments[1:])  # noqa: S606 - the command line is the host's


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as problem:
        sys.stderr.write(f"memory_stage: {problem}\n")
        sys.exit(FAILED)
