"""What stands in the log after something went wrong: whole records only, and a record of every attempt."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio

import selfcompact as sc
from selfcompact.session.attempts import ATTEMPT

from .conftest import OpenSession
from .helpers import fill, history_text, of_type


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process may become larger: what the disk of a full machine does, for one moment."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_record_that_did_not_fit_on_the_disk_leaves_nothing_and_the_session_goes_on(
    opened: OpenSession, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    full = room_for(0)

    def disk_becomes_full(_messages: Sequence[sc.Message]) -> sc.Step:
        nonlocal full
        full = room_for(path.stat().st_size + 100)
        full.__enter__()
        return sc.say("these words find no room")

    async with opened([sc.say("one"), disk_becomes_full, sc.say("three")], session_file=path) as session:
        await session.prompt("go")
        try:
            result = await session.prompt("write more")
        finally:
            full.__exit__(None, None, None)
        assert isinstance(result.error, sc.SessionFileError)
        assert "make room" in str(result.error)
        assert path.read_bytes().endswith(b"\n")
        assert (await session.prompt("and now?")).text == "three"
        assert "no room" not in history_text(session)
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [r["message"]["role"] for r in records if r["type"] == "message"] == [
        *("user", "assistant"),
        *("user", "user", "assistant"),
    ]
    assert [path async for path in anyio.Path(tmp_path).glob("*.torn-*")] == []


async def test_a_prompt_that_did_not_fit_on_the_disk_is_a_failed_run_that_says_so(
    opened: OpenSession, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    async with opened([sc.say("one"), sc.say("two")], session_file=path) as session:
        await session.prompt("go")
        before = session.history
        with room_for(path.stat().st_size + 20):
            result = await session.prompt("this finds no room")
        assert (result.status, type(result.error)) == ("failed", sc.SessionFileError)
        assert session.history == before
        assert (await session.prompt("and now?")).text == "two"


async def test_an_attempt_that_was_interrupted_leaves_its_record_and_the_history_as_it_was(
    opened: OpenSession,
) -> None:
    begun = anyio.Event()

    async def hold(_preparation: sc.CompactionPreparation) -> None:
        begun.set()
        await anyio.sleep_forever()

    async with opened([*fill(3), sc.say("ok")], hooks=sc.Hooks(before_compact=(hold,))) as session:
        await session.prompt("go")
        before = session.history
        stream = session.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.compact, "keep `x`")
            await begun.wait()
            await session.abort()
        assert session.history == before
        (end,) = of_type(stream.pending(), "compaction_end")
        records = [json.loads(line) for line in session.session_file.read_text().splitlines()]
    assert (end.status, end.aborted) == ("interrupted", True)
    (record,) = [r["data"] for r in records if r.get("customType") == ATTEMPT]
    assert (record["status"], record["reason"], record["customInstructions"]) == ("interrupted", "manual", "keep `x`")
    assert not [r for r in records if r["type"] == "compaction"]
