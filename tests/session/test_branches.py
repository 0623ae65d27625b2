"""Going back to an earlier entry, with and without a word about the branch that is left."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import selfcompact as sc
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.compaction.summary.summarisers import OfflineSummariser, Summariser, SummaryReply
from selfcompact.entries import CompactionEntry, Entry
from selfcompact.messages import text_of
from selfcompact.session.branches import left_behind
from selfcompact.settings.compaction import CompactionSettings
from tests.compaction.build import PlayedSummariser
from tests.log.test_reading import AT, chain, say, write
from tests.session.memory_kernel import SUMMARY, memory_session

STRICT = CompactionSettings(background=False, offline_fallback=False)
LENIENT = CompactionSettings(background=False)
DENIED = sc.PermissionDenied("not yours", status=403)
SECRET = "mauve otter lane, 4711"


@asynccontextmanager
async def on_a_branch(
    path: Path, summariser: Summariser, compaction: CompactionSettings
) -> AsyncIterator[tuple[sc.Session, str]]:
    """A session in which something was said after the entry that is given."""
    model = sc.ScriptedModel(
        [sc.say("one"), sc.say(f"the risky way, by {SECRET}"), sc.say("three")], context_window=30_000
    )
    async with memory_session(path / "s.jsonl", model, summariser=summariser, compaction=compaction) as session:
        await session.prompt("count the sheep")
        leaf = (await session.tree()).leaf_id
        assert leaf is not None
        await session.prompt("try `risky.py`")
        yield session, leaf


def last_record(session: sc.Session) -> dict[str, object]:
    record = json.loads(session.session_file.read_text().splitlines()[-1])
    assert isinstance(record, dict)
    return record


async def test_the_summariser_is_asked_about_the_branch_alone_and_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_PASSWORD", SECRET)
    played = PlayedSummariser([SUMMARY.replace("Fill the window.", f"Risk it by {SECRET}.", 1)])
    async with on_a_branch(tmp_path, played, STRICT) as (session, leaf):
        left = (await session.tree()).leaf_id
        await session.rewind(leaf, summarise=True)
        told = text_of(session.history[-1])
        record = last_record(session)
        assert session.state == "idle"
        assert (await session.prompt("and now?")).text == "three"
    (request,) = played.requests
    asked = str(request)
    assert "risky.py" in asked
    assert "sheep" not in asked
    assert SECRET not in asked
    assert (record["type"], record["parentId"], record["fromId"]) == ("branch_summary", leaf, left)
    assert SECRET not in str(record)
    assert "Risk it by [redacted]." in told


async def test_a_summariser_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    async with on_a_branch(tmp_path, PlayedSummariser([DENIED]), STRICT) as (session, leaf):
        before = (session.history, session.session_file.read_bytes())
        with pytest.raises(sc.PermissionDenied):
            await session.rewind(leaf, summarise=True)
        assert (session.history, session.session_file.read_bytes()) == before
        assert session.state == "idle"
        assert (await session.prompt("and now?")).text == "three"


@pytest.mark.parametrize("summariser", [PlayedSummariser([DENIED]), OfflineSummariser()], ids=["fallback", "offline"])
async def test_without_a_model_that_can_the_branch_is_told_offline(
    tmp_path: Path, summariser: Summariser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_PASSWORD", SECRET)
    async with on_a_branch(tmp_path, summariser, LENIENT) as (session, leaf):
        await session.rewind(leaf, summarise=True)
        told = text_of(session.history[-1])
        assert last_record(session)["type"] == "branch_summary"
    assert "risky.py" in told
    assert "the risky way, by [redacted]" in told
    assert "sheep" not in told
    assert "the branch ends here" not in told
    assert SECRET not in told


async def test_a_branch_on_which_nothing_was_said_is_not_summarised(tmp_path: Path) -> None:
    played = PlayedSummariser([SUMMARY])
    async with on_a_branch(tmp_path, played, STRICT) as (session, _):
        leaf = (await session.tree()).leaf_id
        assert leaf is not None
        session.set_name("a name")
        left = (await session.tree()).leaf_id
        before = session.history
        await session.rewind(leaf, summarise=True)
        assert session.history == before
        record = last_record(session)
    assert played.requests == []
    assert (record["customType"], record["parentId"], record["data"]) == ("selfcompact.rewind", leaf, {"from": left})


async def test_a_rewind_that_is_aborted_while_the_summariser_writes_changes_nothing(tmp_path: Path) -> None:
    class Hanging(PlayedSummariser):
        async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
            begun.set()
            assert session.state == "compacting"
            await anyio.sleep_forever()
            return SummaryReply(SUMMARY)

    begun = anyio.Event()
    async with on_a_branch(tmp_path, Hanging([SUMMARY]), STRICT) as (session, leaf):
        before = (session.history, session.session_file.read_bytes())
        async with anyio.create_task_group() as tasks:

            async def rewind() -> None:
                await session.rewind(leaf, summarise=True)

            tasks.start_soon(rewind)
            await begun.wait()
            await session.abort()
        assert (session.history, session.session_file.read_bytes()) == before
        assert session.state == "idle"


@pytest.mark.parametrize("summarise", [True, False])
async def test_going_back_is_on_the_disk_when_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summarise: bool
) -> None:
    synced: list[int] = []
    async with on_a_branch(tmp_path, OfflineSummariser(), LENIENT) as (session, leaf):
        monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
        await session.rewind(leaf, summarise=summarise)
        assert synced == [session.session_file.stat().st_size]


def test_what_is_left_behind_are_the_live_entries_after_the_fork_whatever_was_compacted(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    compaction = CompactionEntry(
        id="c", parent_id="e4", timestamp=AT, summary="s", first_kept_entry_id="e3", tokens_before=9
    )
    entries: list[Entry] = [*chain(5), compaction, say(6, "c"), say(10, "e1"), say(11, "e10")]
    write(path, entries)
    assert [entry.id for entry in left_behind(path, "e6", "e1")] == ["e3", "e4", "c", "e6"]
    assert [entry.id for entry in left_behind(path, "e11", "e0")] == ["e1", "e10", "e11"]
    assert [entry.id for entry in left_behind(path, "e11", "e6")] == ["e10", "e11"]
    assert left_behind(path, "e1", "e4") == []
