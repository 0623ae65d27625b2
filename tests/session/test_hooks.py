"""Hooks by themselves: their order, their time, what a command is given and what its answer means."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import selfcompact as sc
from selfcompact.session.hook_commands import AfterCommand, BeforeCommand, HookFailed
from selfcompact.session.hooks import HOOK_TIMEOUT_S, Hooks
from selfcompact.session.open import all_hooks
from selfcompact.settings.compaction import CompactionSettings, HookCommand

PREPARATION = sc.CompactionPreparation(
    reason="threshold",
    trigger="auto",
    session_id="id",
    session_file="/s.jsonl",
    model="p:m",
    instructions=None,
    tokens_before=9_000,
    expected_tokens_after=900,
    messages_to_summarise=12,
    first_kept_entry_id="e7",
    is_split_turn=True,
)
RESULT = sc.events.CompactionResult(summary="s", first_kept_entry_id="e7", tokens_before=9_000, tokens_after=900)


def command(tmp_path: Path, program: str, *, timeout_s: float = 20) -> HookCommand:
    path = tmp_path / "hook.py"
    path.write_text(f"import json, sys\ndata = json.load(sys.stdin)\n{program}\n")
    return HookCommand(argv=(sys.executable, str(path)), timeout_s=timeout_s)


async def test_the_first_veto_or_summary_ends_the_round_and_those_before_it_let_it_pass() -> None:
    asked: list[tuple[str, sc.CompactionPreparation]] = []

    def answering(name: str, answer: object) -> Callable[[sc.CompactionPreparation], Awaitable[Any]]:
        async def hook(preparation: sc.CompactionPreparation) -> Any:
            asked.append((name, preparation))
            return answer

        return hook

    for decision in (sc.Veto("no"), sc.SuppliedSummary("mine")):
        asked.clear()
        reports: list[str] = []
        hooks = Hooks(before_compact=[answering("a", None), answering("b", decision), answering("c", sc.Veto("late"))])
        assert await hooks.before(PREPARATION, reports.append) == decision
        assert asked == [("a", PREPARATION), ("b", PREPARATION)]
        assert reports == []
    assert await Hooks(before_compact=[answering("d", None)]).before(PREPARATION, reports.append) is None
    assert await Hooks().before(PREPARATION, reports.append) is None


async def test_every_hook_afterwards_is_told_the_result_and_blank_texts_are_left_out() -> None:
    told: list[sc.events.CompactionResult] = []

    def saying(answer: object) -> Callable[[sc.events.CompactionResult], Awaitable[Any]]:
        async def hook(result: sc.events.CompactionResult) -> Any:
            told.append(result)
            return answer

        return hook

    reports: list[str] = []
    hooks = Hooks(after_compact=[saying("one"), saying(None), saying(" \n"), saying(["x"]), saying("two")])
    assert await hooks.after(RESULT, reports.append) == ["one", "two"]
    assert told == [RESULT] * 5
    (report,) = reports
    assert "returned list" in report


class Named:
    async def __call__(self, _: object) -> None:
        raise KeyError("inside")


async def test_a_hook_that_fails_is_named_and_what_comes_after_it_runs() -> None:
    async def my_hook(_: object) -> None:
        raise ValueError("broken")

    async def veto(_: object) -> sc.Veto:
        return sc.Veto("no")

    reports: list[str] = []
    hooks = Hooks(before_compact=[my_hook, Named(), veto], after_compact=[my_hook], on_failure="go-on")
    assert await hooks.before(PREPARATION, reports.append) == sc.Veto("no")
    assert await hooks.after(RESULT, reports.append) == []
    first, second, third = reports
    assert "my_hook failed: ValueError: broken" in first
    assert "hook Named failed: KeyError: 'inside'" in second
    assert "my_hook failed" in third


async def test_a_cancellation_goes_through_a_hook() -> None:
    async def hang(_: object) -> None:
        await anyio.sleep_forever()

    reports: list[str] = []
    with anyio.move_on_after(0.01) as scope:
        await Hooks(before_compact=[hang]).before(PREPARATION, reports.append)
    assert scope.cancelled_caught
    assert reports == []
    assert Hooks().timeout_s == HOOK_TIMEOUT_S == 30


async def test_the_programs_hooks_run_before_the_commands_of_the_settings(tmp_path: Path) -> None:
    async def mine(_: object) -> None:
        return None

    commands = [HookCommand(argv=(name,)) for name in ("one", "two", "three", "four")]
    settings = CompactionSettings.model_validate(
        {"hooks": {"before_compact": commands[:2], "after_compact": commands[2:]}}
    )
    hooks = all_hooks(settings, Hooks(before_compact=[mine], after_compact=[mine], timeout_s=7))
    assert hooks.timeout_s == 7
    assert [mine, mine] == [hooks.before_compact[0], hooks.after_compact[0]]
    assert [(type(hook), hook.__qualname__) for hook in (*hooks.before_compact[1:], *hooks.after_compact[1:])] == [
        (BeforeCommand, "`one`"),
        (BeforeCommand, "`two`"),
        (AfterCommand, "`three`"),
        (AfterCommand, "`four`"),
    ]
    assert all_hooks(CompactionSettings(), None) == Hooks((), ())


async def test_a_command_is_given_all_that_is_known_as_json(tmp_path: Path) -> None:
    program = "import pathlib\npathlib.Path(sys.argv[0] + '.given').write_text(json.dumps(data))"
    given = tmp_path / "hook.py.given"
    assert await BeforeCommand(command(tmp_path, program))(PREPARATION) is None
    assert json.loads(given.read_text()) == {
        "event": "before_compact",
        "reason": "threshold",
        "trigger": "auto",
        "sessionId": "id",
        "sessionFile": "/s.jsonl",
        "model": "p:m",
        "instructions": None,
        "tokensBefore": 9_000,
        "expectedTokensAfter": 900,
        "messagesToSummarise": 12,
        "firstKeptEntryId": "e7",
        "isSplitTurn": True,
    }
    assert await AfterCommand(command(tmp_path, program))(RESULT) is None
    assert json.loads(given.read_text()) == {"event": "after_compact", **RESULT.to_json()}


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("sys.exit(2)", sc.Veto("{name}: no reason given")),
        ("sys.stderr.write(' not now \\n'); sys.exit(2)", sc.Veto("{name}: not now")),
        ("sys.stderr.write('x'); print(json.dumps({'reason': 'said'})); sys.exit(2)", sc.Veto("{name}: said")),
        ("sys.stderr.write('why'); print(json.dumps({'cancel': True}))", sc.Veto("{name}: why")),
        ("print(json.dumps({'cancel': None, 'summary': 'mine', 'reason': None}))", sc.SuppliedSummary("mine")),
        ("print('[1]'); sys.stderr.write('no'); sys.exit(2)", sc.Veto("{name}: no")),
        ("print('{\"reason\": 3}'); sys.stderr.write('no'); sys.exit(2)", sc.Veto("{name}: no")),
        ("sys.stderr.buffer.write(b'n\\xff'); sys.exit(2)", sc.Veto("{name}: n\ufffd")),
        ("sys.stderr.write('noise'); print(json.dumps({'summary': ' '}))", None),
        ("print(' ')", None),
    ],
)
async def test_the_answer_of_a_command_before_a_compaction(tmp_path: Path, program: str, answer: object) -> None:
    hook = BeforeCommand(command(tmp_path, program))
    assert hook.__qualname__ == f"`{sys.executable} {tmp_path}/hook.py`"
    if isinstance(answer, sc.Veto):
        answer = sc.Veto(answer.reason.format(name=hook.__qualname__))
    assert await hook(PREPARATION) == answer


@pytest.mark.parametrize(("context", "answer"), [("more", "more"), (None, None)])
async def test_the_answer_of_a_command_after_a_compaction(tmp_path: Path, context: object, answer: str | None) -> None:
    hook = AfterCommand(command(tmp_path, f"print(json.dumps({{'context': {context!r}}}))"))
    assert hook.__qualname__ == f"`{sys.executable} {tmp_path}/hook.py`"
    assert await hook(RESULT) == answer


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("sys.stderr.write('x' * 500 + 'the end'); sys.exit(3)", "exit code 3 (" + "x" * 293 + "the end)"),
        ("sys.exit(1)", "exit code 1 (no message)"),
        ("sys.stdout.buffer.write(b'\\xff')", "not JSON"),
        ("print('[]')", "JSON that is not an object"),
        ("print('{')", "not JSON"),
        ("print(json.dumps({'cancel': 'true'}))", "`cancel` that is not true or false"),
        ("print(json.dumps({'cancel': 1, 'summary': 'mine'}))", "`cancel` that is not true or false"),
        ("print(json.dumps({'summary': 3}))", "`summary` that is not text"),
        ("import time; time.sleep(60)", "longer than 0.3 s"),
    ],
)
async def test_a_command_that_does_not_do_what_a_hook_does_fails(tmp_path: Path, program: str, said: str) -> None:
    timeout_s = 0.3 if "sleep" in program else 20
    with pytest.raises(HookFailed) as caught:
        await BeforeCommand(command(tmp_path, program, timeout_s=timeout_s))(PREPARATION)
    assert said in str(caught.value)


async def test_a_command_that_cannot_be_started_fails(tmp_path: Path) -> None:
    with pytest.raises(HookFailed, match=r"cannot be started .No such file"):
        await AfterCommand(HookCommand(argv=(str(tmp_path / "none"),)))(RESULT)


async def test_a_command_after_a_compaction_that_answers_no_text_fails(tmp_path: Path) -> None:
    with pytest.raises(HookFailed, match="`context` that is not text"):
        await AfterCommand(command(tmp_path, "print(json.dumps({'context': 3}))"))(RESULT)
