"""What bubblewrap says when it cannot start, in its own words, and the remedy that is printed."""

from __future__ import annotations

import pytest

from selfcompact.sandbox.refusals import Switches, explain, look_around

UID_MAP = "bwrap: setting up uid map: Permission denied"
LOOPBACK = "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"
NAMESPACE = "bwrap: Creating new namespace failed: Operation not permitted"
PROC = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"
DEBIAN = (
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user "
    "namespaces. On e.g. debian this can be enabled with 'sysctl kernel.unprivileged_userns_clone=1'."
)
NONE = (
    "bwrap: Creating new namespace failed, likely because the kernel does not support user namespaces. bwrap must be "
    "installed setuid on such systems."
)
USED_UP = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"


@pytest.mark.parametrize(
    ("said", "switches", "remedy"),
    [
        (UID_MAP, Switches(apparmor=1), "apparmor_restrict_unprivileged_userns=0"),
        (LOOPBACK, Switches(apparmor=1), "/etc/apparmor.d/bwrap"),
        (NAMESPACE, Switches(apparmor=1, in_container=True), "apparmor_restrict_unprivileged_userns=0"),
        (NAMESPACE, Switches(apparmor=0, in_container=True), "seccomp=unconfined"),
        (PROC, Switches(in_container=True), "systempaths=unconfined"),
        (NAMESPACE, Switches(most=0), "user.max_user_namespaces=10000"),
        (USED_UP, Switches(most=5000), "user.max_user_namespaces=10000"),
        (NAMESPACE, Switches(clone=0), "kernel.unprivileged_userns_clone=1"),
        (DEBIAN, Switches(), "kernel.unprivileged_userns_clone=1"),
        (NONE, Switches(), "set-uid root"),
        ("[Errno 13] Permission denied: '/mnt/bin/bwrap'", Switches(apparmor=1), "noexec"),
        ("/usr/bin/bwrap is version 0.4.1, too old", Switches(), "0.8 or newer"),
        (UID_MAP, Switches(), "allow unprivileged user namespaces"),
        ("bwrap: something new", Switches(), "run it by hand"),
    ],
)
def test_each_usual_reason_is_told_with_its_own_remedy(said: str, switches: Switches, remedy: str) -> None:
    reason, found = explain(said, switches)
    assert remedy in found
    assert said in reason
    assert found.endswith("--sandbox none")


def test_this_machines_switches_are_numbers_or_not_there() -> None:
    switches = look_around()
    assert all(value is None or value >= 0 for value in (switches.apparmor, switches.clone, switches.most))
