"""`selfcompact sandbox` and `doctor` as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path

from .test_run import selfcompact


def test_the_table_of_the_default_sandbox_holds_line_by_line(tmp_path: Path) -> None:
    done = selfcompact("sandbox", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["topic"] for row in rows} >= {"read", "write", "reach", "use", "limit"}
    assert [row for row in rows if row["verified"] is False] == []
    assert {row["topic"] for row in rows if row["verified"] is None} <= {"limit"}  # what needs a control group
    assert list(tmp_path.iterdir()) == []


def test_without_a_sandbox_the_table_says_that_there_is_none(tmp_path: Path) -> None:
    done = selfcompact("sandbox", "--set", "sandbox.kind=none", cwd=tmp_path)
    assert done.returncode == 0
    assert "there is none" in done.stdout


def test_the_doctor_says_that_this_machine_can(tmp_path: Path) -> None:
    done = selfcompact("doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "bubblewrap" in done.stdout
    assert "every promise holds" in done.stdout
