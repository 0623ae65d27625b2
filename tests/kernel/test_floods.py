"""A host beside a kernel that floods it, in a process of its own: its memory, its limits, and its other sessions."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .flooding import FLOODS

GROWN_MIB, LATE_S, SIBLING = 128, 1.0, 5.0


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_costs_little_memory_delays_no_limit_and_no_other_session(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel.flooding", name], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cost = json.loads(done.stdout)
    assert cost["grown_mib"] < GROWN_MIB, cost
    assert cost["late_s"] < LATE_S, cost
    assert cost["abort_late_s"] < LATE_S, cost
    assert cost["sibling"] <= SIBLING, cost
    assert (cost["status"], cost["after"], cost["generation"]) == ("timeout", "42", 1), "the kernel goes on"
