"""Which compaction a boundary chooses, and what follows when it does not help. Real kernel, real log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

import selfcompact as sc
from selfcompact.messages import Usage

from .conftest import OpenSession
from .helpers import FILL, fill, history_text, of_type

FULL = Usage(input=28_500, output=100)


def between_turns(events: list[sc.events.Event]) -> list[list[str]]:
    """The reasons of the compactions at each boundary, in order."""
    boundaries: list[list[str]] = [[]]
    for event in events:
        if event.type == "turn_start":
            boundaries.append([])
        elif isinstance(event, sc.events.CompactionStart):
            boundaries[-1].append(event.reason)
    return boundaries


async def test_a_request_goes_before_the_threshold_and_a_boundary_has_one_compaction(opened: OpenSession) -> None:
    steps = [*fill(), sc.cell("await compact.run('keep x')", usage=FULL), sc.cell("1"), sc.say("ok")]
    async with opened(steps) as session:
        stream = session.events()
        result = await session.prompt("go")
        boundaries = between_turns(stream.pending())
    assert result.status == "done"
    assert [reasons for reasons in boundaries if reasons] == [["requested"]]


async def test_an_overflow_goes_before_a_manual_compaction_which_then_has_nothing_left_to_do(
    opened: OpenSession, workspace: Path
) -> None:
    """The overflow takes the instructions of the one that waits; at most one compaction at each boundary."""
    held: list[sc.Session] = []

    async def overflow_while_one_waits(_messages: object) -> sc.Step:
        tasks.start_soon(held[0].compact, "keep `treasure`")
        await anyio.wait_all_tasks_blocked()
        return sc.overflow("too long")

    async with opened([*fill(), overflow_while_one_waits, sc.cell("1"), sc.say("ok")]) as session:
        held.append(session)
        stream = session.events()
        async with anyio.create_task_group() as tasks:
            result = await session.prompt("go")
        events = stream.pending()
    assert result.status == "done"
    assert all(len(reasons) <= 1 for reasons in between_turns(events))
    first = of_type(events, "compaction_start")[0]
    assert (first.reason, first.custom_instructions) == ("overflow", "keep `treasure`")


@pytest.mark.parametrize(
    ("setting", "fires_above"),
    [({"threshold_percent": 50}, 16_000), ({"threshold_tokens": 9_000}, 9_000), ({}, 28_000)],
    ids=["percent", "tokens", "window less reserve"],
)
async def test_the_threshold_is_what_the_settings_say(
    opened: OpenSession, setting: dict[str, Any], fires_above: int
) -> None:
    for over in (0, 1):
        # What follows the report counts too; the cell without output adds a few tokens at most.
        usage = Usage(input=fires_above - 150 + 300 * over, output=5)
        async with opened([*fill(), sc.cell("x = 1", usage=usage), sc.say("ok")], **setting) as session:
            assert session.status().threshold_tokens == fires_above
            result = await session.prompt("go")
            (session.session_file).unlink()
        assert [outcome.reason for outcome in result.compactions] == ["threshold"] * over


async def test_a_request_that_has_become_needless_is_skipped_with_its_reason_and_the_run_goes_on(
    workspace: Path, tmp_path: Path
) -> None:
    """The operator has just let more be kept, so nothing is left to summarise."""
    file = workspace / ".selfcompact/settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"compaction": {"keepRecentTokens": 300}}))
    model = sc.ScriptedModel([*fill(), sc.cell("await compact.run('keep x')"), sc.say("went on")])
    async with sc.open_session(model, workspace=workspace, session_file=tmp_path / "s.jsonl") as session:
        stream = session.events()

        async def allow_more() -> None:
            async for event in session.events():
                if event.type == "compaction_scheduled":
                    file.write_text(json.dumps({"compaction": {"keepRecentTokens": 50_000}}))
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(allow_more)
            result = await session.prompt("go")
        (end,) = of_type(stream.pending(), "compaction_end")
        records = [json.loads(line) for line in session.session_file.read_text().splitlines()]
    assert (end.reason, end.status, end.custom_instructions) == ("requested", "skipped", "keep x")
    assert "session is too short to compact" in end.error_message
    assert (result.status, result.text) == ("done", "went on")
    (attempt,) = [record["data"] for record in records if record.get("customType") == "selfcompact.attempt"]
    assert (attempt["reason"], attempt["status"]) == ("requested", "skipped")


@pytest.mark.parametrize("how", ["fails", "is vetoed"])
async def test_an_overflow_whose_compaction_does_not_happen_stops_the_run_once_with_the_reason(
    opened: OpenSession, how: str
) -> None:
    async def veto(_: sc.CompactionPreparation) -> sc.Veto:
        return sc.Veto("not now")

    down: list[str | sc.ModelError] = [sc.PermissionDenied("the key may not", status=403)] * 4
    said = "prompt is too long: 33000 tokens > 32000 maximum"
    async with opened(
        [*fill(), sc.overflow(said), sc.say("never")],
        summaries=down,
        offline_fallback=False,
        hooks=sc.Hooks(before_compact=[veto]) if how == "is vetoed" else None,
    ) as session:
        stream = session.events()
        result = await session.prompt("go")
        events = stream.pending()
        text = history_text(session)
    (agent_end,) = of_type(events, "agent_end")
    (end,) = of_type(events, "compaction_end")
    assert (result.status, agent_end.status) == ("failed", "failed")
    assert isinstance(result.error, sc.ContextOverflow)
    assert result.error.provider_message == said
    assert end.status == ("vetoed" if how == "is vetoed" else "failed")
    assert end.error_message in agent_end.reason
    assert "line 59: some words" in text


async def test_usage_that_a_failed_response_reports_is_not_believed(opened: OpenSession) -> None:
    """Only a response that ended well says how large the context is."""
    steps = [sc.cell(FILL), sc.fail("broke", status=400), sc.cell("1"), sc.say("ok")]
    async with opened(steps) as session:
        await session.prompt("go")
        before = session.status().estimated_tokens
        await session.prompt("again")
    assert before < 4_000
