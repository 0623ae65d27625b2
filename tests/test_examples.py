"""Every example runs as it stands, and says what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAID = {
    "harness.py": ["compaction (requested): completed", "rows has 4000 squares; the last is 15992001."],
    "custom_model.py": ["It has 6 words."],
    "test_my_agent.py": ["1 passed"],
}


def test_each_example_is_run_here() -> None:
    assert sorted(SAID) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAID))
def test_the_example_runs_and_says_what_it_promises(name: str, tmp_path: Path) -> None:
    runner = (
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        if name.startswith("test_")
        else [sys.executable]
    )
    done = subprocess.run(
        [*runner, str(EXAMPLES / name)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in SAID[name]:
        assert said in done.stdout
