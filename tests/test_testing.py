"""What other people's tests get: the examples of docs/testing.md run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each of these starts programs of its own, or waits

PAGE = Path(__file__).parents[1] / "docs/testing.md"


def test_the_examples_of_the_page_pass_in_a_project_of_their_own(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_plugin_needs_no_web_server(tmp_path: Path) -> None:
    """Pytest loads it in every project of an environment that has selfcompact."""
    program = "import sys; sys.modules['starlette'] = sys.modules['uvicorn'] = None; import selfcompact.testing.plugin"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
