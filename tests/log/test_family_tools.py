"""Our logs in the session family's own tools, and theirs in ours.

The family's package comes from the npm registry; where node, npm or the package cannot be had, these are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import selfcompact as sc
from selfcompact.entries import CompactionEntry, MessageEntry, message_of
from selfcompact.log import read_live, read_session
from selfcompact.log.fork import migrate_session
from tests.end_to_end.helpers import FILL

PACKAGE = "@mariozechner/pi-coding-agent"
REAL = Path(__file__).parents[1] / "data/pi-v1-large.jsonl"
PROGRAM = """
import { SessionManager } from "%s";
const manager = SessionManager.open(process.argv[2]);
const context = manager.buildSessionContext();
if (process.argv[3] === "append") {
  manager.appendMessage({ role: "user", content: "said by the other tool", timestamp: 1 });
  manager.appendMessage({ role: "assistant", content: [{ type: "text", text: "answered there" }], api: "x",
    provider: "p", model: "m", usage: { input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2, cost: {} },
    stopReason: "stop", timestamp: 2 });
}
process.stdout.write(JSON.stringify({ messages: context.messages, branch: manager.getBranch().map((e) => e.id),
  entries: manager.getEntries().length }));
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package is installed."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"type": "module"}')
    command = [
        "npm",
        "install",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--cache",
        str(folder / "cache"),
        PACKAGE,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{PACKAGE} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
    (folder / "read.js").write_text(PROGRAM % PACKAGE)
    return folder


def theirs(node: Path, log: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        ["node", "read.js", str(log), *arguments], cwd=node, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def ours(log: Path) -> list[tuple[str, Any]]:
    """Role and content of what our reader takes for the live context, in the order it is sent."""
    entries = read_live(log).entries
    newest = max((n for n, e in enumerate(entries) if isinstance(e, CompactionEntry)), default=None)
    found: list[tuple[str, Any]] = []
    if newest is not None:
        compaction = entries[newest]
        assert isinstance(compaction, CompactionEntry)
        found.append(("compactionSummary", compaction.summary))
    for entry in entries:
        message = message_of(entry)
        if message is not None:
            found.append((message.role, message.to_json().get("content")))
    return found


def same(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(m["role"], m["summary"] if m["role"] == "compactionSummary" else m.get("content")) for m in messages]


async def write_session(path: Path, workspace: Path) -> None:
    model = sc.ScriptedModel(
        [
            sc.cell(FILL, thinking="hm"),
            sc.cell(FILL),
            sc.cell("await compact.run('keep `x`')"),
            sc.cell("1 + 1", say="näh \u2028 日本"),
            sc.say("done"),
        ]
    )
    settings = sc.Settings.model_validate({"compaction": {"keep_recent_tokens": 300}})
    async with sc.open_session(model, workspace=workspace, session_file=path, settings=settings) as session:
        result = await session.prompt("go")
    assert [outcome.status for outcome in result.compactions] == ["completed"]


async def test_a_log_of_ours_gives_the_same_context_there(node: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    await write_session(path, tmp_path)
    before = path.read_bytes()
    found = theirs(node, path)
    assert same(found["messages"]) == ours(path)
    assert found["entries"] == len(read_session(path)[1])
    assert path.read_bytes() == before


async def test_what_they_append_to_our_log_is_read_and_continued_here(node: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    await write_session(path, tmp_path)
    theirs(node, path, "append")
    assert ours(path)[-2:] == [
        ("user", "said by the other tool"),
        ("assistant", [{"type": "text", "text": "answered there"}]),
    ]
    model = sc.ScriptedModel([sc.say("and on here")])
    async with sc.open_session(model, workspace=tmp_path, session_file=path) as session:
        assert (await session.prompt("go on")).status == "done"
    assert same(theirs(node, path)["messages"]) == ours(path)


def test_an_old_session_of_theirs_is_migrated_as_they_do_it(node: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    shutil.copy(REAL, copy)
    found = theirs(node, copy)
    migrated = migrate_session(REAL, tmp_path / "v3.jsonl")
    assert same(found["messages"]) == ours(migrated)
    assert found["entries"] == 1018
    messages = [entry for entry in read_session(migrated)[1] if isinstance(entry, MessageEntry)]
    assert len(messages) == 914
