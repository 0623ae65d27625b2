"""`selfcompact chat` in a real terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pytest

pytestmark = pytest.mark.slow  # each of these starts programs of its own, or waits

FILL = "print('\\n'.join(f'line {i}: ' + 'some words of output ' * 4 for i in range(60)))"
SMALL = ["--set", "compaction.keepRecentTokens=300", "--set", "compaction.reserveTokens=4000"]


@contextmanager
def chat(folder: Path, steps: list[dict[str, Any]], *arguments: str) -> Iterator[Any]:
    """A chat in a terminal of its own."""
    script = folder / "script.json"
    script.write_text(json.dumps({"context_window": 32000, "steps": steps}))
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", "selfcompact", "chat", "--script", str(script), *arguments],
        cwd=str(folder),
        env={**os.environ, "TERM": "xterm", "COLUMNS": "110", "LINES": "40", "PROMPT_TOOLKIT_NO_CPR": "1"},
        encoding="utf-8",
        timeout=20,
        dimensions=(40, 110),
    )
    try:
        yield terminal
    finally:
        terminal.close(force=True)


def test_a_conversation_with_cells_a_compaction_and_commands(tmp_path: Path) -> None:
    steps = [
        {"cell": FILL, "say": "I fill the context."},
        {"cell": FILL},
        {"say": "All filled."},
        {"say": "And done."},
    ]
    with chat(tmp_path, steps, "--session", f"{tmp_path}.jsonl", *SMALL) as terminal:
        terminal.expect("›")
        terminal.send("fill it\r")
        terminal.expect("I fill the context")
        terminal.expect("All filled")
        terminal.expect("context.*tokens")
        terminal.send("/status\r")
        terminal.expect("context_window")
        terminal.send("/compact keep `line 7`\r")
        terminal.expect("compaction .*manual")
        terminal.expect("→")
        terminal.send("/search line 42\r")
        terminal.expect("toolResult")
        terminal.send("/agent-callable off\r")
        terminal.expect("skill is now off")
        terminal.send("/nonsense\r")
        terminal.expect("there is no command")
        terminal.send("go on\r")
        terminal.expect("And done")
        terminal.send("/rewind\r")
        terminal.expect("goes back to one of them")
        terminal.send("/quit\r")
        terminal.expect("session log")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 0
    kinds = [json.loads(line)["type"] for line in Path(f"{tmp_path}.jsonl").read_text().splitlines()]
    assert kinds.count("compaction") == 1


def test_ctrl_c_stops_the_turn_and_twice_at_the_prompt_leaves(tmp_path: Path) -> None:
    steps = [{"cell": "import time\nprint('begun', flush=True)\ntime.sleep(60)"}, {"say": "Still here."}]
    with chat(tmp_path, steps, "--session", f"{tmp_path}.jsonl") as terminal:
        terminal.expect("›")
        terminal.send("work\r")
        terminal.expect("cell")
        terminal.expect("time.sleep")
        terminal.sendintr()
        terminal.expect("aborted")
        terminal.expect("›")
        terminal.send("are you there?\r")
        terminal.expect("Still here")
        terminal.expect("›")
        terminal.sendintr()
        terminal.expect("Ctrl-C again leaves")
        terminal.sendintr()
        terminal.expect("session log")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 0


def test_alt_enter_begins_a_new_line(tmp_path: Path) -> None:
    with chat(tmp_path, [{"say": "ok then"}], "--session", f"{tmp_path}.jsonl") as terminal:
        terminal.expect("›")
        terminal.send("one\x1b\rtwo\r")
        terminal.expect("ok then")
        terminal.send("\x04")
        terminal.expect(pexpect.EOF)
    assert "one\\ntwo" in Path(f"{tmp_path}.jsonl").read_text()


def test_the_newest_session_is_continued(tmp_path: Path) -> None:
    for text in ("first", "second"):
        arguments = ["--continue"] if text == "second" else []
        with chat(tmp_path, [{"say": f"answer to {text}"}], *arguments) as terminal:
            terminal.expect("›")
            terminal.send(f"{text}\r")
            terminal.expect(f"answer to {text}")
            terminal.send("/quit\r")
            terminal.expect(pexpect.EOF)
    (log,) = Path(os.environ["XDG_DATA_HOME"]).rglob("*.jsonl")
    assert log.read_text().count("answer to") == 2


@pytest.mark.parametrize("arguments", [["--continue"]])
def test_a_chat_that_cannot_begin_says_why(tmp_path: Path, arguments: list[str]) -> None:
    with chat(tmp_path, [{"say": "x"}], *arguments) as terminal:
        terminal.expect("holds no session yet")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 2
