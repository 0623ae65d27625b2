"""A writer that is killed at any durable step leaves the old view or the new one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from selfcompact.log import SessionLog

pytestmark = pytest.mark.slow  # each of these starts programs of its own, or waits

PROGRAM = """
import os, sys
from pathlib import Path
import selfcompact.log.writing as module
from tests.log.test_blobs import with_image
from tests.log.test_reading import say
from selfcompact.entries import CompactionEntry, now_iso

calls, fatal = 0, int(sys.argv[2])

def killing(real):
    def call(*arguments, **keywords):
        global calls
        calls += 1
        if calls == fatal:
            if real is os_write:  # killed in the middle of the write
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            os.kill(os.getpid(), 9)
        return real(*arguments, **keywords)
    return call

os_write = os.write
os.write, os.fsync, os.ftruncate, Path.replace = map(killing, (os.write, os.fsync, os.ftruncate, Path.replace))
with module.SessionLog.open(Path(sys.argv[1]), cwd=Path("/")) as log:
    log.append(say(1, None)); log.sync()
    log.append(with_image("e2", b"x" * 100_000, "e1")); log.sync()
    log.append(CompactionEntry(id="e3", parent_id="e2", timestamp=now_iso(), summary="s", first_kept_entry_id="e2",
                               tokens_before=9))
    log.sync()
print(calls)
"""

EXPECTED = [[], ["e1"], ["e1", "e2"], ["e2", "e3"]]


def write_until(path: Path, fatal: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(fatal)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


@pytest.mark.timeout(120)
def test_killing_the_writer_at_every_durable_step_leaves_the_old_or_the_new_view(tmp_path: Path) -> None:
    whole = write_until(tmp_path / "whole.jsonl", 0)
    assert whole.returncode == 0, whole.stderr
    steps = int(whole.stdout)
    assert steps >= 8
    seen = []
    for fatal in range(1, steps + 1):
        path = tmp_path / f"killed-{fatal}.jsonl"
        assert write_until(path, fatal).returncode == -9
        with SessionLog.open(path, cwd=tmp_path) as log:
            assert log.damage == ()
            view = [entry.id for entry in log.entries]
        assert view in EXPECTED
        seen.append(EXPECTED.index(view))
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2, 3}
