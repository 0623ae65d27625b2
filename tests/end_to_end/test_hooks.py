"""Hooks round a compaction: in Python and as commands; a hook that fails is reported, never fatal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest

import selfcompact as sc

from .conftest import OpenSession
from .helpers import fill, history_text, of_type

ASK = "await compact.run('keep `x`')"


def command(tmp_path: Path, program: str, *, timeout_s: float = 20) -> dict[str, object]:
    path = tmp_path / "hook.py"
    path.write_text(f"import json, sys, time\ndata = json.load(sys.stdin)\n{program}\n")
    return {"argv": [sys.executable, str(path)], "timeoutS": timeout_s}


async def test_a_hook_is_told_what_is_about_to_happen_and_may_stop_it(opened: OpenSession) -> None:
    told: list[sc.CompactionPreparation] = []

    async def veto(preparation: sc.CompactionPreparation) -> sc.Veto:
        told.append(preparation)
        return sc.Veto("not on my watch")

    async with opened([*fill(), sc.cell(ASK), sc.say("went on")], hooks=sc.Hooks(before_compact=[veto])) as session:
        stream = session.events()
        result = await session.prompt("go")
        (end,) = of_type(stream.pending(), "compaction_end")
        assert '"type":"compaction"' not in session.session_file.read_text()
    assert (result.status, result.text) == ("done", "went on")
    assert (end.status, end.error_message) == ("vetoed", "not on my watch")
    (preparation,) = told
    assert (preparation.reason, preparation.trigger, preparation.instructions) == ("requested", "agent", "keep `x`")
    assert preparation.session_file == str(session.session_file)
    assert preparation.tokens_before > preparation.expected_tokens_after > 0
    assert preparation.messages_to_summarise > 0


async def test_a_hook_may_supply_the_summary_and_another_may_add_context(opened: OpenSession) -> None:
    async def supply(_: sc.CompactionPreparation) -> sc.SuppliedSummary:
        return sc.SuppliedSummary("## Goal\nWritten by a hook.")

    async def add(result: sc.events.CompactionResult) -> str:
        return f"The hook saw {result.tokens_before} tokens."

    hooks = sc.Hooks(before_compact=[supply], after_compact=[add])
    async with opened([*fill(), sc.cell(ASK), sc.say("ok")], hooks=hooks) as session:
        result = await session.prompt("go")
        text = history_text(session)
    (outcome,) = result.compactions
    assert outcome.result is not None
    assert "Written by a hook." in outcome.result.summary
    assert f"The hook saw {outcome.result.tokens_before} tokens." in text


async def test_a_manual_compaction_that_is_vetoed_keeps_the_pending_request(opened: OpenSession) -> None:
    """And the request then runs at the next boundary."""

    async def only_the_agent(preparation: sc.CompactionPreparation) -> sc.Veto | None:
        return sc.Veto("only the agent may") if preparation.reason == "manual" else None

    code = f"import asyncio\n{ASK}\nprint('asked', flush=True)\nawait asyncio.sleep(0.2)"
    outcomes: list[sc.CompactionOutcome] = []
    async with opened(
        [*fill(), sc.cell(code), sc.cell("1"), sc.say("ok")], hooks=sc.Hooks(before_compact=[only_the_agent])
    ) as session:
        stream = session.events()

        async def compact_by_hand() -> None:
            async for event in stream:
                if event.type == "compaction_scheduled":
                    outcomes.append(await session.compact())
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compact_by_hand)
            result = await session.prompt("go")
    assert [outcome.status for outcome in outcomes] == ["vetoed"]
    assert [(outcome.reason, outcome.status) for outcome in result.compactions] == [
        ("manual", "vetoed"),
        ("requested", "completed"),
    ]


async def test_a_hook_that_raises_hangs_or_answers_nonsense_is_reported_and_passed_over(opened: OpenSession) -> None:
    async def raises(_: sc.CompactionPreparation) -> None:
        raise RuntimeError("broken hook")

    async def hangs(_: sc.CompactionPreparation) -> None:
        await anyio.sleep_forever()

    async def nonsense(_: object) -> object:
        return 3

    hooks = sc.Hooks(before_compact=[raises, hangs, nonsense], after_compact=[nonsense], timeout_s=0.2)  # type: ignore[list-item]  # wrong on purpose
    async with opened([*fill(), sc.cell(ASK), sc.say("ok")], hooks=hooks) as session:
        stream = session.events()
        result = await session.prompt("go")
        warnings = [event.message for event in of_type(stream.pending(), "warning")]
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert len(warnings) == 4
    for warning, expected in zip(
        warnings, ["broken hook", "longer than 0.2 s", "returned int", "returned int"], strict=True
    ):
        assert expected in warning


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("sys.exit('no, ' + data['reason']) if False else (sys.stderr.write('no ' + data['reason']), sys.exit(2))",
         "vetoed", "no requested"),
        ("print(json.dumps({'cancel': True, 'reason': 'not now'}))", "vetoed", "not now"),
        ("print(json.dumps({'summary': '## Goal\\nby ' + data['event'] + ' ' + data['trigger']}))",
         "completed", "by before_compact agent"),
        ("", "completed", ""),
    ],
)  # fmt: skip
async def test_a_command_answers_with_exit_code_and_json(
    opened: OpenSession, tmp_path: Path, program: str, status: str, said: str
) -> None:
    hooks = {"beforeCompact": [command(tmp_path, program)]}
    async with opened([*fill(), sc.cell(ASK), sc.say("ok")], command_hooks=hooks) as session:
        result = await session.prompt("go")
    (outcome,) = result.compactions
    assert outcome.status == status
    assert said in (outcome.result.summary if outcome.result else outcome.message or "")


async def test_a_command_has_the_time_that_its_own_setting_gives_it(opened: OpenSession, tmp_path: Path) -> None:
    """Also when that is more than a hook of the program gets."""
    slow = command(tmp_path, "time.sleep(0.6)\nsys.stderr.write('no')\nsys.exit(2)", timeout_s=20)
    steps = [*fill(), sc.cell(ASK), sc.say("ok")]
    async with opened(steps, hooks=sc.Hooks(timeout_s=0.2), command_hooks={"beforeCompact": [slow]}) as session:
        result = await session.prompt("go")
    (outcome,) = result.compactions
    assert outcome.status == "vetoed"
    assert (outcome.message or "").endswith("no")


async def test_a_command_after_a_compaction_adds_context(opened: OpenSession, tmp_path: Path) -> None:
    program = "print(json.dumps({'context': f\"{data['event']}: {data['tokensBefore']}\"}))"
    hooks = {"afterCompact": [command(tmp_path, program)]}
    async with opened([*fill(), sc.cell(ASK), sc.say("ok")], command_hooks=hooks) as session:
        result = await session.prompt("go")
        text = history_text(session)
    assert result.compactions[0].result is not None
    assert f"after_compact: {result.compactions[0].result.tokens_before}" in text


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("sys.exit(1)", "exit code 1"),
        ("print('hello')", "not JSON"),
        ("print('[1]')", "not an object"),
        ("time.sleep(30)", "longer than 0.5 s"),
    ],
)
async def test_a_failing_command_is_reported_and_the_compaction_happens(
    opened: OpenSession, tmp_path: Path, program: str, said: str
) -> None:
    hooks = {"beforeCompact": [command(tmp_path, program, timeout_s=0.5)]}
    async with opened([*fill(), sc.cell(ASK), sc.say("ok")], command_hooks=hooks) as session:
        stream = session.events()
        result = await session.prompt("go")
        (warning,) = of_type(stream.pending(), "warning")
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert said in warning.message
    assert "hook.py" in warning.message


async def test_every_attempt_leaves_a_record(opened: OpenSession) -> None:
    """Trigger, reason, phase, status, tokens, duration, window number; for the skipped and vetoed ones too."""
    vetoes = iter([sc.Veto("no"), None])

    async def once(_: sc.CompactionPreparation) -> sc.Veto | None:
        return next(vetoes)

    steps = [*fill(), sc.cell(ASK), sc.cell(ASK), sc.say("ok")]
    async with opened(steps, hooks=sc.Hooks(before_compact=[once])) as session:
        await session.prompt("go")
        await session.compact()
        records = [json.loads(line) for line in session.session_file.read_text().splitlines()]
    attempts = [record["data"] for record in records if record.get("customType") == "selfcompact.attempt"]
    assert [(a["trigger"], a["reason"], a["phase"], a["status"]) for a in attempts] == [
        ("agent", "requested", "mid-turn", "vetoed"),
        ("user", "manual", "standalone", "skipped"),
    ]
    assert all(a["tokensBefore"] > 0 and a["durationMs"] >= 0 and a["message"] for a in attempts)
    (done,) = [record["details"]["selfcompact"] for record in records if record["type"] == "compaction"]
    assert (done["trigger"], done["reason"], done["phase"], done["windowNumber"]) == (
        "agent",
        "requested",
        "mid-turn",
        1,
    )
    assert done["tokensAfter"] > 0
    assert "usage" in done
