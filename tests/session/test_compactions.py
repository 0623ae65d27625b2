"""What a compaction tells, records and hands to its hooks."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import selfcompact as sc
from selfcompact.entries import CompactionEntry
from selfcompact.log import read_live
from selfcompact.messages import Usage, text_of
from selfcompact.models.scripted import StepSource
from selfcompact.settings.compaction import CompactionSettings
from tests.session.memory_kernel import SUMMARY, memory_session

WINDOW = 6_000
COMPACTION = CompactionSettings(reserve_tokens=1_500, keep_recent_tokens=600, background=False, offline_fallback=False)
FILL = [sc.cell("fill"), sc.cell("fill"), sc.cell("fill")]
GOOD = itertools.repeat(SUMMARY)


def records(session: sc.Session, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in session.session_file.read_text().splitlines()]
    return [line for line in lines if kind in (line["type"], line.get("customType"))]


def noted(record: dict[str, Any]) -> dict[str, Any]:
    ours = record["details"]["selfcompact"]
    assert isinstance(ours, dict)
    return ours


def ends(stream: sc.EventStream) -> list[sc.events.CompactionEnd]:
    return [event for event in stream.pending() if isinstance(event, sc.events.CompactionEnd)]


async def test_the_record_the_event_the_outcome_and_the_hook_tell_the_same(tmp_path: Path) -> None:
    seen: list[tuple[sc.events.CompactionResult, int, str]] = []

    async def after(result: sc.events.CompactionResult) -> str:
        last = session.session_file.read_text().splitlines()[-1]
        seen.append((result, session.status().estimated_tokens, last))
        return "a word of the hook"

    model = sc.ScriptedModel([*FILL, sc.cell("ask keep x"), sc.say("ok")], context_window=WINDOW)
    hooks = sc.Hooks(after_compact=[after])
    async with memory_session(
        tmp_path / "s.jsonl", model, summaries=GOOD, compaction=COMPACTION, hooks=hooks
    ) as session:
        stream = session.events()
        (outcome,) = (await session.prompt("go")).compactions
        (end,) = ends(stream)
        (record,) = records(session, "compaction")
        entry = next(e for e in read_live(session.session_file).entries if isinstance(e, CompactionEntry))
        (context,) = records(session, "selfcompact.hook")
        assert "a word of the hook" in text_of(session.history[-2])
    ((result, estimated, last),) = seen
    assert json.loads(last) == record
    assert outcome.result == end.result == result
    assert (outcome.reason, outcome.message, outcome.error) == ("requested", None, None)
    assert result == sc.events.CompactionResult(
        summary=entry.summary,
        first_kept_entry_id=entry.first_kept_entry_id,
        tokens_before=entry.tokens_before,
        tokens_after=estimated,
        offline=False,
        details=entry.details,
    )
    assert (record["customInstructions"], end.custom_instructions) == ("keep x", "keep x")
    assert (end.reason, end.status, end.aborted, end.will_retry, end.error_message) == (
        "requested",
        "completed",
        False,
        False,
        None,
    )
    assert context["parentId"] == record["id"]


async def test_a_record_notes_how_it_came_about_and_counts_on(tmp_path: Path) -> None:
    over = Usage(input=5_000, output=10)
    steps: list[StepSource] = [
        *FILL,
        sc.cell("ask keep x"),
        *FILL,
        sc.cell("status", usage=over),
        *FILL,
        sc.overflow("too long"),
        sc.say("ok"),
    ]
    model = sc.ScriptedModel(steps, context_window=WINDOW)
    async with memory_session(tmp_path / "s.jsonl", model, summaries=GOOD, compaction=COMPACTION) as session:
        first = await session.prompt("go")
        done = [noted(record) for record in records(session, "compaction")]
    assert [outcome.status for outcome in first.compactions] == ["completed"] * 3
    assert [(d["reason"], d["trigger"], d["phase"]) for d in done] == [
        ("requested", "agent", "mid-turn"),
        ("threshold", "auto", "mid-turn"),
        ("overflow", "auto", "mid-turn"),
    ]
    assert [(d["windowNumber"], d["inARow"], d["ineffectiveBefore"]) for d in done] == [(n, 1, 0) for n in (1, 2, 3)]
    assert {d["model"] for d in done} == {"scripted:script"}
    assert all(d["writtenAhead"] is False and d["waitedMs"] >= 0 and 0 <= d["durationMs"] < 60_000 for d in done)


async def test_compactions_without_a_response_between_them_count_in_a_row(tmp_path: Path) -> None:
    model = sc.ScriptedModel([*FILL, sc.say("ok"), sc.say("ok")], context_window=WINDOW)
    low = COMPACTION.model_copy(update={"threshold_tokens": 1_000})
    async with memory_session(tmp_path / "s.jsonl", model, summaries=GOOD, compaction=COMPACTION) as session:
        await session.prompt("go")
        await session.compact("by hand")
    async with memory_session(tmp_path / "s.jsonl", model, summaries=GOOD, compaction=low) as session:
        result = await session.prompt("words " * 2_000)
        first, second = (noted(record) for record in records(session, "compaction"))
    assert [(o.reason, o.status) for o in result.compactions] == [("threshold", "completed")]
    assert (first["trigger"], first["phase"], first["inARow"]) == ("user", "standalone", 1)
    assert (second["trigger"], second["phase"], second["inARow"]) == ("auto", "pre-turn", 2)
    assert (first["windowNumber"], second["windowNumber"]) == (1, 2)


async def test_a_hook_is_told_whose_context_it_is_and_what_is_planned(tmp_path: Path) -> None:
    told: list[sc.CompactionPreparation] = []

    async def before(preparation: sc.CompactionPreparation) -> None:
        told.append(preparation)

    model = sc.ScriptedModel([sc.cell("fill"), sc.say("one"), *FILL[:2], sc.say("two")], context_window=WINDOW)
    lenient = COMPACTION.model_copy(update={"offline_fallback": True})
    hooks = sc.Hooks(before_compact=[before])
    async with memory_session(tmp_path / "s.jsonl", model, summaries=GOOD, compaction=lenient, hooks=hooks) as session:
        await session.prompt("go")
        await session.prompt("and on")
        estimated = session.status().estimated_tokens
        outcome = await session.compact("keep x")
        session_id = session.header.id
    assert outcome.result is not None
    (preparation,) = told
    assert (preparation.reason, preparation.trigger, preparation.instructions) == ("manual", "user", "keep x")
    assert preparation.session_id == session_id
    assert preparation.session_file == str(tmp_path / "s.jsonl")
    assert preparation.model == "scripted:script"
    assert preparation.tokens_before == estimated == outcome.result.tokens_before
    assert preparation.first_kept_entry_id == outcome.result.first_kept_entry_id
    assert abs(preparation.expected_tokens_after - outcome.result.tokens_after) < 1_000
    # All of the first run, and of the second one, which is cut in two, all but its last response.
    assert preparation.is_split_turn
    assert preparation.messages_to_summarise == 4 + 5


async def test_an_attempt_that_did_not_complete_is_recorded_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_PASSWORD", "mauve otter lane, 4711")

    async def veto(_: sc.CompactionPreparation) -> sc.Veto:
        return sc.Veto("mauve otter lane, 4711 is mine")

    model = sc.ScriptedModel([*FILL, sc.say("ok")], context_window=WINDOW)
    hooks = sc.Hooks(before_compact=[veto])
    async with memory_session(
        tmp_path / "s.jsonl", model, summaries=GOOD, compaction=COMPACTION, hooks=hooks
    ) as session:
        await session.prompt("go")
        estimated = session.status().estimated_tokens
        stream = session.events()
        outcome = await session.compact("by mauve otter lane, 4711")
        await session.compact()
        (end, bare_end) = ends(stream)
        record, bare = (each["data"] for each in records(session, "selfcompact.attempt"))
    assert (outcome.status, outcome.result) == ("vetoed", None)
    assert 0 <= record.pop("durationMs") == end.duration_ms < 60_000
    assert record == {
        "trigger": "user",
        "reason": "manual",
        "phase": "standalone",
        "status": "vetoed",
        "message": "[redacted] is mine",
        "customInstructions": "by [redacted]",
        "tokensBefore": estimated,
    }
    assert bare["customInstructions"] is None
    assert (end.error_message, end.custom_instructions) == (outcome.message, "by [redacted]")
    assert bare_end.custom_instructions is None


async def test_an_attempt_that_failed_carries_the_error(tmp_path: Path) -> None:
    denied = sc.PermissionDenied("not yours", status=403)
    model = sc.ScriptedModel([*FILL, sc.say("ok")], context_window=WINDOW)
    async with memory_session(
        tmp_path / "s.jsonl", model, summaries=itertools.repeat(denied), compaction=COMPACTION
    ) as session:
        await session.prompt("go")
        outcome = await session.compact()
    assert (outcome.reason, outcome.status, outcome.error) == ("manual", "failed", denied)
    assert outcome.message == str(denied)


async def test_progress_of_a_summary_is_told_between_start_and_end(tmp_path: Path) -> None:
    model = sc.ScriptedModel([*FILL, sc.say("ok")], context_window=WINDOW)
    async with memory_session(tmp_path / "s.jsonl", model, summaries=GOOD, compaction=COMPACTION) as session:
        await session.prompt("go")
        stream = session.events()
        await session.compact()
        start, *progress, end = stream.pending()
    assert (start.type, end.type) == ("compaction_start", "compaction_end")
    assert progress
    for event in progress:
        assert isinstance(event, sc.events.CompactionProgress)
        assert (event.part, event.windows) == ("turn prefix", 1) or event.part == "history"
        assert event.window == 1
        assert event.characters >= 0
    assert max(getattr(event, "characters", 0) for event in progress) > 0


async def test_the_warning_of_a_style_is_told_from_the_second_compaction_on(
    tmp_path: Path,
) -> None:
    """The handoff style says that accuracy suffers from many of them."""
    handoff = COMPACTION.model_copy(update={"style": "handoff", "offline_fallback": True})
    steps = [*FILL, sc.say("one"), *FILL, sc.say("two")]
    model = sc.ScriptedModel(steps, context_window=WINDOW)
    async with memory_session(tmp_path / "s.jsonl", model, summaries=GOOD, compaction=handoff) as session:
        told: list[list[str]] = []
        for text in ("go", "more"):
            await session.prompt(text)
            stream = session.events()
            assert (await session.compact()).status == "completed"
            told.append([event.message for event in stream.pending() if isinstance(event, sc.events.WarningRaised)])
    assert [len(each) for each in told] == [0, 1]
    assert "compactions" in told[1][0]
