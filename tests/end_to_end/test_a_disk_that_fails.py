"""A disk that does not store what was written: the run fails with a sentence, and the session can still be used."""

from __future__ import annotations

import errno
import os

import pytest

import selfcompact as sc

from .conftest import OpenSession
from .helpers import fill, of_type


def failing(_descriptor: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_a_disk_that_stores_nothing_fails_the_run_and_not_the_session(
    opened: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened([sc.say("one"), sc.say("two"), sc.say("three")]) as session:
        await session.prompt("go")
        monkeypatch.setattr(os, "fsync", failing)
        stream = session.events()
        failed = await session.prompt("and on")
        assert session.state == "idle"
        monkeypatch.undo()
        again = await session.prompt("now?")
        (end,) = of_type(stream.pending()[:-1], "agent_end")[:1]
    assert failed.status == end.status == "failed"
    assert isinstance(failed.error, sc.SessionFileError)
    assert "is not stored on the disk" in (failed.reason or "")
    assert again.status == "done"


async def test_a_compaction_whose_record_the_disk_did_not_store_yet_is_completed_and_told(
    opened: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is in the log; only its storing is late."""
    async with opened([*fill(3), sc.say("ok"), sc.say("on")]) as session:
        await session.prompt("go")
        stream = session.events()
        monkeypatch.setattr(os, "fsync", failing)
        outcome = await session.compact()
        monkeypatch.undo()
        warnings = [event.message for event in of_type(stream.pending(), "warning")]
        assert (await session.prompt("on")).status == "done"
        log = session.session_file.read_text()
    assert outcome.status == "completed"
    assert len(warnings) == 1
    assert "is not stored on the disk" in warnings[0]
    assert log.count('"type":"compaction"') == 1
