"""Why a bubblewrap that is there cannot start, and what to do. Pure but for `look_around`, which reads switches.

What bubblewrap says is often the same for different reasons, so the machine's own switches decide between them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

NO_SANDBOX = "or choose to run without one: --sandbox none"

_SWITCHES = {
    "apparmor": "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "clone": "/proc/sys/kernel/unprivileged_userns_clone",
    "most": "/proc/sys/user/max_user_namespaces",
}
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True)
class Switches:
    """What this machine says of user namespaces; None where it has no such switch."""

    apparmor: int | None = None
    """1: only programs with a profile of AppArmor may make them (Ubuntu from 23.10 on)."""
    clone: int | None = None
    """0: only root may (Debian's own switch)."""
    most: int | None = None
    """How many a user may have."""
    in_container: bool = False


def look_around() -> Switches:
    """The switches as they are now; what cannot be read is not there."""
    found: dict[str, int] = {}
    for name, path in _SWITCHES.items():
        with contextlib.suppress(OSError, ValueError):
            found[name] = int(Path(path).read_text())
    return Switches(**found, in_container=any(Path(mark).exists() for mark in _CONTAINER_MARKS))


def explain(problem: str, switches: Switches) -> tuple[str, str]:
    """A reason and a remedy for what bubblewrap, or the attempt to run it, said when it failed."""
    text = problem.lower()
    if "too old" in text:
        return problem, f"install bubblewrap 0.8 or newer, {NO_SANDBOX}"
    if "errno 13" in text or "exec format" in text:
        return (
            f"bubblewrap is there and cannot be run ({problem})",
            f"install it where programs may be run (its file system may be mounted noexec), {NO_SANDBOX}",
        )
    if switches.most == 0 or "no space left" in text or "enospc" in text:
        return (
            f"user namespaces are switched off, or used up ({problem})",
            f"raise the limit: sysctl user.max_user_namespaces=10000, {NO_SANDBOX}",
        )
    if switches.clone == 0 or "unprivileged_userns_clone" in text:
        return (
            f"only root may make user namespaces here ({problem})",
            f"allow it: sysctl kernel.unprivileged_userns_clone=1, {NO_SANDBOX}",
        )
    denied = any(words in text for words in ("permission denied", "not permitted", "rtm_newaddr", "uid map"))
    if switches.apparmor == 1 and denied:
        return (
            f"AppArmor lets only programs with a profile make user namespaces here ({problem})",
            "give bwrap one (in /etc/apparmor.d/bwrap: `profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }`, "
            "then apparmor_parser -r that file), or switch it off: "
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0, " + NO_SANDBOX,
        )
    if switches.in_container and denied:
        return (
            f"this container may not make namespaces or mount ({problem})",
            "start it with: --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
            "--security-opt systempaths=unconfined (Docker and Podman), " + NO_SANDBOX,
        )
    if "does not support user namespaces" in text or "invalid argument" in text:
        return (
            f"this operating system was built without user namespaces ({problem})",
            f"install bubblewrap set-uid root, or use another kernel, {NO_SANDBOX}",
        )
    if denied:
        return (
            f"this machine does not let bubblewrap make namespaces ({problem})",
            "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, or "
            "kernel.apparmor_restrict_unprivileged_userns=0; in a container: --security-opt seccomp=unconfined), "
            + NO_SANDBOX,
        )
    return f"bubblewrap does not work here ({problem})", f"run it by hand to see why, {NO_SANDBOX}"
