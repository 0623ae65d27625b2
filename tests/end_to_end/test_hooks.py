"""Hooks round a compaction: in Python and as commands; a hook that fails is reported, never fatal."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

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


async def raises(_: sc.CompactionPreparation) -> None:
    raise RuntimeError("broken hook")


async def hangs(_: sc.CompactionPreparation) -> None:
    await anyio.sleep_forever()


async def nonsense(_: object) -> object:
    return 3


BROKEN: dict[str, Any] = {"broken hook": raises, "longer than 0.2 s": hangs, "returned int": nonsense}


@pytest.mark.parametrize("said", BROKEN)
async def test_a_hook_that_raises_hangs_or_answers_nonsense_before_a_compaction_is_a_veto(
    opened: OpenSession, said: str
) -> None:
    hooks = sc.Hooks(before_compact=[BROKEN[said]], timeout_s=0.2)
    async with opened([*fill(), sc.cell(ASK), sc.say("went on")], hooks=hooks) as session:
        stream = session.events()
        result = await session.prompt("go")
        (warning,) = of_type(stream.pending(), "warning")
    (outcome,) = result.compactions
    assert (result.text, outcome.status) == ("went on", "vetoed")
    assert said in warning.message
    assert said in (outcome.message or "")
    assert "onFailure" in (outcome.message or "")


async def test_hooks_that_are_said_to_go_on_are_reported_and_passed_over(opened: OpenSession) -> None:
    before: list[Any] = [raises, hangs, nonsense]
    hooks = sc.Hooks(before_compact=before, after_compact=[nonsense, raises], timeout_s=0.2, on_failure="go-on")  # type: ignore[list-item]
    async with opened([*fill(), sc.cell(ASK), sc.say("ok")], hooks=hooks) as session:
        stream = session.events()
        result = await session.prompt("go")
        warnings = [event.message for event in of_type(stream.pending(), "warning")]
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    expected = ["broken hook", "longer than 0.2 s", "returned int", "returned int", "broken hook"]
    for warning, words in zip(warnings, expected, strict=True):
        assert words in warning


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
async def test_a_command_that_fails_before_a_compaction_is_a_veto_unless_it_is_said_to_go_on(
    opened: OpenSession, tmp_path: Path, program: str, said: str
) -> None:
    for on_failure, status in (("veto", "vetoed"), ("go-on", "completed")):
        hook = {**command(tmp_path, program, timeout_s=0.5), "onFailure": on_failure}
        async with opened(
            [*fill(), sc.cell(ASK), sc.say("ok")],
            command_hooks={"beforeCompact": [hook]},
            session_file=tmp_path / f"{on_failure}.jsonl",
        ) as session:
            stream = session.events()
            result = await session.prompt("go")
            (warning,) = of_type(stream.pending(), "warning")
        assert [outcome.status for outcome in result.compactions] == [status]
        assert said in warning.message
        assert "hook.py" in warning.message


async def test_a_command_that_cannot_be_started_is_a_veto(opened: OpenSession, tmp_path: Path) -> None:
    hooks = {"beforeCompact": [{"argv": [str(tmp_path / "missing")]}]}
    async with opened([*fill(), sc.cell(ASK), sc.say("ok")], command_hooks=hooks) as session:
        result = await session.prompt("go")
    (outcome,) = result.compactions
    assert outcome.status == "vetoed"
    assert "cannot be started" in (outcome.message or "")


@pytest.mark.parametrize(
    "program",
    [
        "exec 0<&-; exit 2",
        "sleep 60 & exit 2",
        *(
            pytest.param(program, marks=pytest.mark.slow)
            for program in (
                "exit 2",
                "exec 0<&-; echo '{\"cancel\": true}'; sleep 0.1",
                "head -c 10 >/dev/null; exit 2",
                "yes no | head -c 3000000 >&2; exit 2",
            )
        ),
    ],
)
async def test_a_commands_veto_counts_whatever_it_reads_and_whatever_it_leaves_running(
    opened: OpenSession, tmp_path: Path, program: str
) -> None:
    """Its input is larger than a pipe holds, so a writer that minds would fail."""
    hooks = {"beforeCompact": [{"argv": ["/bin/sh", "-c", f"echo $$ > {tmp_path}/pid; {program}"], "timeoutS": 20}]}
    steps = [*fill(), sc.cell("await compact.run('keep ' + 'x' * 9_000)"), sc.say("ok")]
    async with opened(steps, command_hooks=hooks) as session:
        begin = anyio.current_time()
        result = await session.prompt("go")
        assert anyio.current_time() - begin < 10
    assert [outcome.status for outcome in result.compactions] == ["vetoed"]
    assert alive_in_group((tmp_path / "pid").read_text().strip()) == []


def alive_in_group(group: str) -> list[str]:
    """The processes of a group that have not ended; who ended and was not asked yet how does not count."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, rest = stat.parent.name, stat.read_text().rsplit(")", 1)[1].split()
            found += [pid] if rest[2] == group and rest[0] != "Z" else []
    return found


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
