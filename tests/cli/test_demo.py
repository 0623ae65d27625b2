"""The demo: the main job once, end to end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from selfcompact.workspace import sessions_folder

from .test_run import selfcompact


@pytest.mark.slow
def test_the_demo_compacts_itself_goes_on_and_writes_its_report(tmp_path: Path) -> None:
    done = selfcompact("demo", "--workspace", str(tmp_path / "work"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "work/stdlib-audit.md").read_text()
    assert "## Longest functions" in report
    assert "## Import cycles" in report
    (log,) = sessions_folder(tmp_path / "work").iterdir()
    records = [json.loads(line) for line in log.read_text().splitlines()]
    (compaction,) = [record for record in records if record["type"] == "compaction"]
    assert compaction["customInstructions"].startswith("keep `longest_functions`")
    assert "longest_functions" in compaction["summary"]
    assert "stdlib-audit.md" in compaction["summary"]
    turns = [r for r in records if r["type"] == "message" and r["message"]["role"] == "assistant"]
    assert len(turns) >= 12
    assert "same kernel process" in done.stdout
    before, after = re.findall(r"([\d,]+) → ([\d,]+) tokens", done.stdout)[0]
    assert int(before.replace(",", "")) > 16_000
    assert int(after.replace(",", "")) < int(before.replace(",", "")) / 2
