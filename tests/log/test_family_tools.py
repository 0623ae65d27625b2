"""Our logs in the session family's own program, and theirs in ours.

Where that program cannot be installed (`tests.log.family`), these are skipped; in CI that is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import selfcompact as sc
from selfcompact.entries import MessageEntry
from selfcompact.log import read_session
from selfcompact.log.fork import migrate_session
from selfcompact.messages import encode_message, text_of
from selfcompact.session.history import GOES_ON, UNKNOWN_OUTCOME
from tests.end_to_end.helpers import FILL
from tests.log.family import QUIET, CannotBeHadError, Family, install

REAL = Path(__file__).parents[1] / "data/pi-v1-large.jsonl"
PROGRAM = """
import { SessionManager, convertToLlm } from "@mariozechner/pi-coding-agent";
const manager = SessionManager.open(process.argv[1]);
const context = manager.buildSessionContext();
if (process.argv[2] === "append") {
  manager.appendMessage({ role: "user", content: "said by the other tool", timestamp: 1 });
  manager.appendMessage({ role: "assistant", content: [{ type: "text", text: "answered there" }], api: "x",
    provider: "p", model: "m", usage: { input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2, cost: {} },
    stopReason: "stop", timestamp: 2 });
}
process.stdout.write(JSON.stringify({ messages: context.messages, sent: convertToLlm(context.messages),
  entries: manager.getEntries().length }));
"""

OURS_ALONE = {GOES_ON, UNKNOWN_OUTCOME}
"""What we put in where a provider would refuse the history: their program does so when it sends."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def family() -> Family:
    try:
        found = install()
    except CannotBeHadError as problem:
        if os.environ.get("CI"):
            pytest.fail(f"the family's own program cannot be had: {problem}")
        pytest.skip(f"the family's own program cannot be had: {problem}")
    return found


@dataclass(frozen=True)
class Theirs:
    """What their program makes of a session file: its context, what of it is sent, and the number of entries."""

    messages: list[dict[str, Any]]
    sent: list[dict[str, Any]]
    entries: int


def theirs(family: Family, log: Path, *arguments: str) -> Theirs:
    command = [str(family.node), "--input-type=module", "--eval", PROGRAM, str(log), *arguments]
    environment = {**os.environ, **QUIET}
    done = subprocess.run(command, cwd=family.folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Theirs(**json.loads(done.stdout))


def work_in(folder: Path) -> Path:
    """A workspace, in which no log may lie."""
    (folder / "work").mkdir(exist_ok=True)
    return folder / "work"


async def ours(log: Path, workspace: Path) -> list[sc.Message]:
    """What a session of ours that continues the file would send, without what it puts in by itself."""
    model = sc.ScriptedModel([])
    copy = log.with_name(f"{log.name}.opened")
    shutil.copy(log, copy)
    async with sc.open_session(model, workspace=workspace, session_file=copy) as session:
        return [message for message in session.history if text_of(message) not in OURS_ALONE]


def assert_same(found: Theirs, mine: list[sc.Message]) -> None:
    """Message by message the same, but for the frame around a summary and the message's role there."""
    told = [(inner, sent) for inner, sent in zip(found.messages, found.sent, strict=True) if is_sent(sent)]
    assert len(told) == len(mine)
    for (inner, sent), message in zip(told, mine, strict=True):
        assert sent["role"] == message.role
        if inner["role"] in ("compactionSummary", "branchSummary"):
            assert inner["summary"] in text_of(message)
        elif inner["role"] == "custom":
            assert sent["content"] == encode_message(message)["content"]
        else:
            wanted = {key: sent.get(key) for key in ("content", "toolCallId", "toolName", "isError", "stopReason")}
            data = encode_message(message)
            assert {key: data.get(key) for key in wanted} == wanted


def is_sent(message: dict[str, Any]) -> bool:
    """Whether a message has anything in it; an empty response of a request that was aborted is sent by nobody."""
    return bool(message["content"])


async def write_session(path: Path, workspace: Path) -> None:
    """A compaction, a branch that was left and told of, and a message that a hook put into the context."""
    model = sc.ScriptedModel(
        [
            sc.cell(FILL, thinking="hm"),
            sc.cell(FILL),
            sc.cell("await compact.run('keep `x`')"),
            sc.cell("1 + 1", say="näh \u2028 日本"),
            sc.say("done"),
            sc.cell("print('a side way')"),
            sc.say("not this way"),
            sc.say("this way"),
        ]
    )

    async def add(_result: sc.events.CompactionResult) -> str:
        return "said by a hook"

    settings = sc.Settings.model_validate({"compaction": {"keep_recent_tokens": 300}})
    async with sc.open_session(
        model, workspace=workspace, session_file=path, settings=settings, hooks=sc.Hooks(after_compact=(add,))
    ) as session:
        result = await session.prompt("go")
        leaf = (await session.tree()).leaf_id
        assert leaf is not None
        await session.prompt("try something")
        await session.rewind(leaf, summarise=True)
        await session.prompt("go on")
    assert [outcome.status for outcome in result.compactions] == ["completed"]


async def test_a_log_of_ours_gives_the_same_context_there(family: Family, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    await write_session(path, work_in(tmp_path))
    before = path.read_bytes()
    found = theirs(family, path)
    assert {message["role"] for message in found.messages} == {
        *("compactionSummary", "branchSummary", "custom", "user", "assistant", "toolResult")
    }
    assert_same(found, await ours(path, work_in(tmp_path)))
    assert found.entries == len(read_session(path)[1])
    assert path.read_bytes() == before


async def test_what_they_append_to_our_log_is_read_and_continued_here(family: Family, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    await write_session(path, work_in(tmp_path))
    theirs(family, path, "append")
    said, answered = (await ours(path, work_in(tmp_path)))[-2:]
    assert [(m.role, text_of(m)) for m in (said, answered)] == [
        ("user", "said by the other tool"),
        ("assistant", "answered there"),
    ]
    model = sc.ScriptedModel([sc.say("and on here")])
    async with sc.open_session(model, workspace=work_in(tmp_path), session_file=path) as session:
        assert (await session.prompt("go on")).status == "done"
    assert_same(theirs(family, path), await ours(path, work_in(tmp_path)))


async def test_an_old_session_of_theirs_is_migrated_as_they_do_it(family: Family, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    shutil.copy(REAL, copy)
    found = theirs(family, copy)
    migrated = migrate_session(REAL, tmp_path / "v3.jsonl")
    assert_same(found, await ours(migrated, work_in(tmp_path)))
    assert found.entries == 1018
    messages = [entry for entry in read_session(migrated)[1] if isinstance(entry, MessageEntry)]
    assert len(messages) == 914
