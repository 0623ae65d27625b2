"""The exit code of `selfcompact run` after each way a compaction can end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .test_run import FILL, SMALL, events, script, selfcompact

pytestmark = pytest.mark.slow  # each of these starts programs of its own, or waits

VETO = {"beforeCompact": [{"argv": [sys.executable, "-c", "import sys; sys.exit(2)"]}]}
ASK = {"cell": "await compact.run()"}
OVERFLOW = {"overflow": "prompt is too long"}
DONE = {"say": "done"}


@pytest.mark.parametrize(
    ("steps", "settings", "code", "ended"),
    [
        ([ASK, DONE], {}, 0, [("requested", "completed")]),
        ([ASK, DONE], {"offlineFallback": False, "summaries": ["", ""]}, 0, [("requested", "failed")]),
        ([ASK, DONE], {"hooks": VETO}, 0, [("requested", "vetoed")]),
        ([OVERFLOW, DONE], {}, 0, [("overflow", "completed")]),
        ([OVERFLOW, DONE], {"hooks": VETO}, 1, [("overflow", "vetoed")]),
        ([OVERFLOW, DONE], {"offlineFallback": False, "summaries": ["", ""]}, 1, [("overflow", "failed")]),
        ([OVERFLOW, OVERFLOW, DONE], {}, 1, [("overflow", "completed")]),
    ],
)
def test_the_exit_code_tells_whether_the_run_was_done(
    tmp_path: Path, steps: list[Any], settings: dict[str, Any], code: int, ended: list[tuple[str, str]]
) -> None:
    settings = dict(settings)
    summaries = settings.pop("summaries", None)
    (tmp_path / ".selfcompact").mkdir()
    (tmp_path / ".selfcompact/settings.json").write_text(json.dumps({"compaction": settings}))
    data: dict[str, Any] = {"context_window": 32000, "steps": [{"cell": FILL}, {"cell": FILL}, *steps]}
    if summaries is not None:
        data["summaries"] = summaries
    done = selfcompact(
        "run",
        "x",
        "--script",
        script(tmp_path, data),
        "--session",
        f"{tmp_path}.jsonl",
        "--json",
        *SMALL,
        cwd=tmp_path,
    )
    assert done.returncode == code, done.stderr
    found = [event for event in events(done) if event["type"] == "compaction_end"]
    assert [(event["reason"], event["status"]) for event in found] == ended
    assert (done.stderr == "") == (code == 0)
    if code:
        assert "prompt is too long" in done.stderr
