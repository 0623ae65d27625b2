"""The system calls that a Python kernel never needs, refused by a filter. Pure: it makes the filter's bytes.

A deny-list on top of namespaces and dropped capabilities: it closes what has opened sandboxes before (key rings, BPF,
performance events, io_uring, user faults, mounting, new namespaces, typing into a terminal, looking into other
processes, sockets that no namespace holds), and leaves everything that a library might want. Debuggers and samplers of
other processes (gdb, strace, py-spy) are what that costs. Refused calls fail with EPERM, as they do for any program
without the right; `clone3` is said not to exist, because its flags cannot be looked at, and every C library then uses
`clone`.

Numbers: the Linux system call tables, arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

X86_64: Mapping[str, int] = {
    "modify_ldt": 154, "pivot_root": 155, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
    "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172,
    "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179, "nfsservctl": 180, "vhangup": 153,
    "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
    "unshare": 272, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308, "finit_module": 313,
    "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "syslog": 103, "chroot": 161,
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
}  # fmt: skip
AARCH64: Mapping[str, int] = {
    "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "chroot": 51, "vhangup": 58,
    "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
    "clock_settime": 112, "syslog": 116, "reboot": 142, "sethostname": 161, "setdomainname": 162, "settimeofday": 170,
    "add_key": 217, "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225, "perf_event_open": 241,
    "open_by_handle_at": 265, "setns": 268, "finit_module": 273, "bpf": 280, "userfaultfd": 282,
    "kexec_file_load": 294, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
}  # fmt: skip
EVERYWHERE: Mapping[str, int] = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "quotactl_fd": 443,
    "pidfd_getfd": 438,
}  # fmt: skip
"""Newer calls have one number on all architectures."""

_ARCHITECTURES = {
    "x86_64": (0xC000003E, X86_64, {"clone": 56, "ioctl": 16, "socket": 41}),
    "aarch64": (0xC00000B7, AARCH64, {"clone": 220, "ioctl": 29, "socket": 198}),
}
_CLONE3 = 435
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET,TIME}
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_ODD_SOCKETS = (38, 40)  # AF_ALG, the operating system's ciphers; AF_VSOCK, which leads past network namespaces

_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets into struct seccomp_data; low halves of arguments


def seccomp_filter(machine: str) -> bytes | None:
    """The filter for an architecture, as bubblewrap's --seccomp reads it; None where the numbers are not known."""
    if machine not in _ARCHITECTURES:
        return None
    architecture, own, special = _ARCHITECTURES[machine]
    refused = sorted({**own, **EVERYWHERE}.values())
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
    ]
    for number in refused:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    code += [
        (_EQUAL, 0, 4, special["socket"]),
        (_LOAD, 0, 0, _FIRST),
        (_EQUAL, 1, 0, _ODD_SOCKETS[0]),
        (_EQUAL, 0, 9, _ODD_SOCKETS[1]),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_EQUAL, 0, 3, special["clone"]),
        (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 5, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_EQUAL, 0, 3, special["ioctl"]),
        (_LOAD, 0, 0, _SECOND),
        (_EQUAL, 2, 0, _TERMINAL_INPUT[0]),
        (_EQUAL, 1, 0, _TERMINAL_INPUT[1]),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
