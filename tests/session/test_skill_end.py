"""The host's end of the compact skill: what cells get for their calls, when they may call, what is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import selfcompact as sc
from host_bridge.host.dispatcher import Dispatcher
from host_bridge.host.memory import MemoryBridge, memory_bridge
from host_bridge.wire.errors import HostRequestError
from selfcompact.log.search import Archive
from selfcompact.messages import text_of
from selfcompact.session.requests import MAX_INSTRUCTION_CHARS, PendingRequest, RequestSlot
from selfcompact.session.skill_end import ARCHIVE_TIMEOUT_S, HANDLER_TIMEOUT_S, MAX_ENTRY_CHARS, SkillEnd
from selfcompact.session.status import ContextStatus
from selfcompact.session.stream import EventHub
from selfcompact.text.secrets import Redactor
from tests.log.test_reading import AT, say, write

STATUS = ContextStatus(1, 2, 50.0, False, 3, 4, True, None, 5)


class Stage:
    def __init__(self, log: Path) -> None:
        self.dispatcher, self.slot, hub = Dispatcher(), RequestSlot(), EventHub()
        self.stream = hub.open()
        self.changes: list[PendingRequest | None] = []
        self.refused: list[str | None] = []
        self.answer: str | None = None
        self.end = SkillEnd(self.dispatcher, hub, self.slot, Archive(log), Redactor())
        self.end.serve(self)

    def status(self) -> ContextStatus:
        return STATUS

    def refusal(self, instructions: str | None) -> str | None:
        self.refused.append(instructions)
        return self.answer

    def pending_changed(self, pending: PendingRequest | None) -> None:
        self.changes.append(pending)


@asynccontextmanager
async def staged(log: Path) -> AsyncIterator[tuple[Stage, MemoryBridge]]:
    stage = Stage(log)
    async with memory_bridge(stage.dispatcher) as bridge:
        yield stage, bridge


async def test_status_and_run_come_and_go_with_the_switch_and_the_archive_stays(tmp_path: Path) -> None:
    write(tmp_path / "s.jsonl", [say(1, None, "needle")])
    async with staged(tmp_path / "s.jsonl") as (stage, bridge):
        for on in (False, True, True, False, False, True):
            before = stage.end.enabled
            assert stage.end.switch(on) is (before != on)
            assert stage.end.enabled is on
            told = [sc.events.AgentCallableChanged(enabled=on)] if before != on else []
            assert stage.stream.pending() == told
            if on:
                assert await bridge.host_request("compact.status", {}) == STATUS.to_json()
            else:
                for name in ("compact.status", "compact.run"):
                    with pytest.raises(HostRequestError):
                        await bridge.host_request(name, {})
            assert (await bridge.host_request("compact.entry", {"entry_id": "e1"}))["entry"]["text"] == "needle"
            assert len((await bridge.host_request("compact.recall", {"query": "needle"}))["hits"]) == 1
    assert (HANDLER_TIMEOUT_S, ARCHIVE_TIMEOUT_S, MAX_ENTRY_CHARS) == (10, 60, 24_000)


async def test_a_request_is_kept_with_its_turn_and_told_when_it_is_accepted(tmp_path: Path) -> None:
    async with staged(tmp_path / "s.jsonl") as (stage, bridge):
        stage.end.switch(True)
        stage.stream.pending()
        answer = await bridge.host_request("compact.run", {"instructions": "x"})
        assert answer["scheduled"] is False
        assert "no active turn" in answer["reason"]
        assert stage.refused == []
        stage.end.turn, stage.answer = 7, "too short"
        assert await bridge.host_request("compact.run", {"instructions": "x"}) == {
            "scheduled": False,
            "reason": "too short",
        }
        assert (stage.refused, [stage.slot.pending], stage.changes) == (["x"], [None], [])
        assert stage.stream.pending() == []
        stage.answer = None
        answer = await bridge.host_request("compact.run", {"instructions": "keep x"})
        assert (answer["scheduled"], "when this turn ends" in answer["note"]) == (True, True)
        request = PendingRequest("keep x")
        assert [stage.slot.pending, *stage.changes] == [request, request]
        assert stage.stream.pending() == [sc.events.CompactionScheduled(custom_instructions="keep x")]
        await bridge.host_request("compact.run", {})
        assert [stage.slot.pending, stage.changes[-1]] == [PendingRequest(None)] * 2
        stage.end.switch(False)
        assert [stage.slot.clear(), stage.changes[-1]] == [None, None]
        dropped, changed = stage.stream.pending()[1:]
    assert isinstance(dropped, sc.events.RequestDropped)
    assert "switched the compact skill off" in dropped.cause
    assert changed == sc.events.AgentCallableChanged(enabled=False)


async def test_dropping_tells_what_was_dropped_and_nothing_when_there_was_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "s.jsonl")
    stage.end.drop("because")
    assert (stage.changes, stage.stream.pending()) == ([], [])
    stage.slot.put(PendingRequest("keep x"))
    stage.end.drop("because")
    assert (stage.changes, stage.slot.pending) == ([None], None)
    assert stage.stream.pending() == [sc.events.RequestDropped(cause="because", custom_instructions="keep x")]


@pytest.mark.parametrize(
    ("name", "payload", "fits"),
    [
        ("compact.status", {"x": 1}, False),
        ("compact.run", {"instructions": "x" * MAX_INSTRUCTION_CHARS}, True),
        ("compact.run", {"instructions": "x" * (MAX_INSTRUCTION_CHARS + 1)}, False),
        ("compact.run", {"instructions": 3}, False),
        ("compact.run", {"summary": "mine"}, False),
        ("compact.recall", {"query": "x" * 1_000, "limit": 50}, True),
        ("compact.recall", {"query": "x" * 1_001}, False),
        ("compact.recall", {"query": ""}, False),
        ("compact.recall", {"query": "x", "limit": 1}, True),
        ("compact.recall", {"query": "x", "limit": 0}, False),
        ("compact.recall", {"query": "x", "limit": 51}, False),
        ("compact.recall", {"query": "x", "more": 1}, False),
        ("compact.entry", {"entry_id": "x" * 200}, True),
        ("compact.entry", {"entry_id": "x" * 201}, False),
        ("compact.entry", {"entry_id": ""}, False),
        ("compact.entry", {"entry_id": "x", "more": 1}, False),
    ],
)
async def test_what_a_cell_sends_is_bounded(tmp_path: Path, name: str, payload: dict[str, Any], fits: bool) -> None:
    write(tmp_path / "s.jsonl", [say(1, None, "needle")])
    async with staged(tmp_path / "s.jsonl") as (stage, bridge):
        stage.end.switch(True)
        stage.end.turn = 1
        if fits:
            await bridge.host_request(name, payload)
        else:
            with pytest.raises(HostRequestError):
                await bridge.host_request(name, payload)


async def test_a_cell_gets_hits_and_entries_in_the_contracts_form(tmp_path: Path) -> None:
    long = "first " + "x" * MAX_ENTRY_CHARS + " last"
    write(tmp_path / "s.jsonl", [*(say(n, None, f"needle {n}") for n in range(1, 8)), say(9, None, long)])
    async with staged(tmp_path / "s.jsonl") as (_, bridge):
        hits = (await bridge.host_request("compact.recall", {"query": "needle"}))["hits"]
        assert len(hits) == 5
        assert hits[0] == {"entry_id": "e7", "kind": "user", "timestamp": AT, "excerpt": "needle 7"}
        assert len((await bridge.host_request("compact.recall", {"query": "needle", "limit": 2}))["hits"]) == 2
        assert await bridge.host_request("compact.entry", {"entry_id": "e2"}) == {
            "entry": {"entry_id": "e2", "kind": "user", "timestamp": AT, "text": "needle 2", "omitted_chars": 0}
        }
        assert await bridge.host_request("compact.entry", {"entry_id": "nowhere"}) == {"entry": None}
        entry = (await bridge.host_request("compact.entry", {"entry_id": "e9"}))["entry"]
    assert entry["omitted_chars"] == len(text_of(say(9, None, long).message)) - MAX_ENTRY_CHARS
    assert len(entry["text"]) < MAX_ENTRY_CHARS + 100
    assert (entry["text"][:6], entry["text"][-5:]) == ("first ", " last")


def test_the_archive_may_take_as_long_as_a_first_search_does_and_the_others_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, float] = {}

    def noted(_self: Dispatcher, request_type: str, *_arguments: Any, timeout_s: float) -> None:
        limits[request_type] = timeout_s

    monkeypatch.setattr(Dispatcher, "register", noted)
    SkillEnd(Dispatcher(), EventHub(), RequestSlot(), Archive(tmp_path / "s.jsonl"), Redactor()).switch(True)
    assert limits == {
        "compact.recall": ARCHIVE_TIMEOUT_S,
        "compact.entry": ARCHIVE_TIMEOUT_S,
        "compact.status": HANDLER_TIMEOUT_S,
        "compact.run": HANDLER_TIMEOUT_S,
    }
