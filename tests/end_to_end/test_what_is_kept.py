"""What a compaction never loses. Real kernel, real sandbox."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

import selfcompact as sc
from selfcompact.cli import cli
from selfcompact.compaction.planning import hostblocks
from selfcompact.messages import AssistantMessage, ToolResultMessage, text_of
from selfcompact.session.history import UNKNOWN_OUTCOME, validate_history
from tests.session.memory_kernel import SUMMARY

from .conftest import OpenSession
from .helpers import FILL, fill, history_text, outputs


async def test_the_kernel_is_the_same_process_with_the_same_objects(opened: OpenSession) -> None:
    look = "import os\nprint(os.getpid(), id(treasure), len(treasure))"
    steps = [
        sc.cell("treasure = list(range(1000))"),
        sc.cell(look),
        *fill(),
        sc.cell("await compact.run()"),
        sc.cell(look),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        pid, generation = session.kernel.pid, session.kernel.generation
        result = await session.prompt("go")
        assert (session.kernel.pid, session.kernel.generation) == (pid, generation)
    found = outputs(result)
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert found[1] == found[-1]


async def test_the_new_context_lists_the_living_names_of_the_kernel(opened: OpenSession) -> None:
    """Listed by the kernel itself at the commit, so a name that was deleted is not among them."""
    steps = [
        sc.cell("longest_functions = [1, 2, 3]\nsoon_gone = 'x'"),
        *fill(),
        sc.cell("del soon_gone\nlater = {'a': 1}\nawait compact.run()"),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        result = await session.prompt("go")
    (outcome,) = result.compactions
    assert outcome.result is not None
    (kernel,) = [block.text for block in hostblocks.split(outcome.result.summary)[1] if block.name == hostblocks.KERNEL]
    listed = [line.removeprefix("- ").split(":")[0] for line in kernel.splitlines()]
    assert {"longest_functions", "later"} <= set(listed)
    assert "list" in next(line for line in kernel.splitlines() if "longest_functions" in line)
    assert "soon_gone" not in kernel


async def test_the_system_prompt_is_identical_before_and_after(opened: OpenSession) -> None:
    async with opened([*fill(), sc.cell("await compact.run()"), sc.cell("1"), sc.say("ok")]) as session:
        await session.prompt("go")
        model = session.model
        assert isinstance(model, sc.ScriptedModel)
        hashes = {hashlib.sha256(request.system.encode()).hexdigest() for request in model.requests}
        tools = {str(request.tools) for request in model.requests}
    assert len(model.requests) == 5
    assert len(hashes) == 1
    assert len(tools) == 1


async def test_the_newest_real_user_message_is_kept_word_for_word(opened: OpenSession) -> None:
    """Also when the turn it began is split."""
    wish = "Count the  words — exactly as I say: «näive», 3 spaces   here.\n\nAnd never touch `setup.cfg`."
    async with opened([*fill(4), sc.cell("await compact.run()"), sc.cell("1"), sc.say("ok")]) as session:
        result = await session.prompt(wish)
        assert [outcome.status for outcome in result.compactions] == ["completed"]
        assert wish in history_text(session)


async def test_a_user_message_over_a_quarter_of_the_window_keeps_both_ends_and_names_its_entry(
    opened: OpenSession,
) -> None:
    """When it leaves the kept tail; the whole of it is the entry that is named."""
    wish = f"BEGIN of the wish. {'word ' * 9_000}MIDDLE of the wish. {'word ' * 9_000}END of the wish."
    call = "found = await compact.entry({id!r})\nprint('MIDDLE of the wish' in found['text'], found['omitted_chars'])"

    def look(messages: Sequence[sc.Message]) -> sc.Step:
        said = text_of(messages[0])
        return sc.cell(call.format(id=said.split("the whole is entry ")[1].split()[0]))

    steps = [*fill(), sc.cell("await compact.run()"), look, sc.say("ok")]
    async with opened(steps, window=60_000) as session:
        result = await session.prompt(wish)
        text = history_text(session)
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert "BEGIN of the wish" in text
    assert "END of the wish" in text
    assert "MIDDLE of the wish" not in text
    assert outputs(result)[-1].endswith(str(len(wish) - 24_000))


async def test_every_history_ever_sent_is_valid(opened: OpenSession) -> None:
    """Compact, work, be aborted in a cell, reload, work, compact. What a provider would refuse is
    looked for in each request: a call without a result, a result without its call."""
    rounds = [*fill(), sc.cell("await compact.run()")]
    hang = sc.cell("print('hanging now', flush=True)\nimport time\ntime.sleep(60)")
    async with opened([*rounds, *rounds, sc.cell("1"), hang]) as session:
        stream = session.events()

        async def abort() -> None:
            async for event in stream:
                if isinstance(event, sc.events.ToolExecutionUpdate) and "hanging now" in event.delta:
                    await session.abort()
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort)
            result = await session.prompt("go")
        first = session.model
    assert result.status == "aborted"
    # The host died between a call and its result: the newest record is the call.
    log = session.session_file
    lines = log.read_text().splitlines(keepends=True)
    last_call = max(n for n, line in enumerate(lines) if '"type":"toolCall"' in line)
    log.write_text("".join(lines[: last_call + 1]))
    async with opened([*rounds, sc.say("ok")], session_file=log) as session:
        again = await session.prompt("more")
        second = session.model
    assert [o.status for o in (*result.compactions, *again.compactions)] == ["completed"] * 3
    assert isinstance(first, sc.ScriptedModel)
    assert isinstance(second, sc.ScriptedModel)
    assert UNKNOWN_OUTCOME in [text_of(message) for message in second.requests[0].messages]
    for request in (*first.requests, *second.requests):
        assert pairing_problems(request.messages) == []
        assert validate_history(request.messages) == []


def pairing_problems(messages: Sequence[sc.Message]) -> list[str]:
    """What a provider says about calls and results, found without the product's own validator."""
    problems: list[str] = []
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            if message.tool_call_id not in open_calls:
                problems.append(f"no call for {message.tool_call_id}")
            else:
                open_calls.remove(message.tool_call_id)
        else:
            problems += [f"no result for {call}" for call in open_calls]
            open_calls = [call.id for call in message.tool_calls] if isinstance(message, AssistantMessage) else []
    return problems + [f"no result for {call}" for call in open_calls]


async def test_the_kept_tail_equals_the_original_messages(opened: OpenSession) -> None:
    """From the entry that the record names to the end, the very messages that were said before."""
    steps = [
        *fill(),
        sc.cell("print('tail')", thinking="sign here", say="I look."),
        sc.cell("await compact.run()"),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        result = await session.prompt("go")
        history = session.history
        entries = [json.loads(line) for line in session.session_file.read_text().splitlines()]
    (outcome,) = result.compactions
    assert outcome.result is not None
    position = next(n for n, e in enumerate(entries) if e.get("id") == outcome.result.first_kept_entry_id)
    original = [e["message"] for e in entries[position:] if e["type"] == "message"]
    assert [message.to_json() for message in history[1:]] == original
    said = [message for message in result.messages if message.role != "user"]
    assert list(history[1:]) == said[-len(original) :]
    assert [text_of(m) for m in history[1:3]] == ["I look.", "tail"]
    assert "sign here" in str(history[1].to_json())


async def test_what_was_quoted_in_the_request_is_in_the_new_context_word_for_word(opened: OpenSession) -> None:
    """Though the summariser dropped it, and though the cell that asked is not in the kept tail."""
    literals = ["tests/test_billing.py::test_rounds_half_even[EUR-0.005]", "keep the  two spaces", "«näive» — 日本"]
    # The request is put together at run time, so that no message of the session quotes it.
    words = [[ord(letter) for letter in literal] for literal in literals]
    ask = (
        f"a, b, c = (''.join(map(chr, codes)) for codes in {words})\n"
        "await compact.run(f'keep `{a}` and \"{b}\" and `{c}`')\nprint('asked')"
    )
    async with opened([*fill(), sc.cell(ask), sc.say("ok")], summaries=[SUMMARY] * 4) as session:
        result = await session.prompt("go")
        text = history_text(session)
        tail = "\n".join(str(message.to_json()) for message in session.history[1:])
    (outcome,) = result.compactions
    assert outcome.result is not None
    assert not outcome.result.offline
    for literal in literals:
        assert literal in text
        assert literal not in tail
        assert literal not in SUMMARY


async def test_everything_older_is_still_there_to_be_found(opened: OpenSession) -> None:
    """In the log, from the kernel, and from the command line."""
    find = "hits = await compact.recall('needle 4711')\nprint(any('needle 4711' in hit['excerpt'] for hit in hits))"
    steps = [sc.cell("print('needle', 47 * 100 + 11)"), *fill(), sc.cell("await compact.run()"), sc.cell(find)]
    async with opened([*steps, sc.say("ok")], summaries=[SUMMARY] * 4) as session:
        result = await session.prompt("go")
        context = history_text(session)
        log = session.session_file.read_text()
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert "needle 4711" not in context.split("needle 4711')", 1)[0]
    assert outputs(result)[-1] == "True"
    assert "needle 4711" in log
    found = CliRunner().invoke(cli, ["search", str(session.session_file), "needle 4711"])
    assert found.exit_code == 0, found.output
    assert "needle 4711" in found.output


@pytest.mark.parametrize("bytes_lost", [1, 40, 400])
async def test_a_log_that_was_cut_off_loses_no_more_than_its_torn_record_and_the_session_goes_on(
    opened: OpenSession, bytes_lost: int
) -> None:
    """Every byte offset is tried in tests/log."""
    async with opened([*fill(), sc.say("the last words, " * 40)]) as session:
        await session.prompt("go")
        whole = session.session_file.read_bytes()
    session.session_file.write_bytes(whole[:-bytes_lost])
    lines = whole[:-bytes_lost].splitlines(keepends=True)
    complete = [json.loads(line)["id"] for line in lines if line.endswith(b"\n") or bytes_lost == 1]
    async with opened([sc.say("on")], session_file=session.session_file) as session:
        assert (await session.prompt("are you there?")).text == "on"
        records = [json.loads(line) for line in session.session_file.read_text().splitlines()]
    assert [record["id"] for record in records][: len(complete)] == complete


async def test_a_session_goes_on_where_it_ended(opened: OpenSession) -> None:
    async with opened([*fill(), sc.cell("await compact.run()"), sc.say("ok")]) as session:
        await session.prompt("go")
        before = session.history
        estimated = session.status().estimated_tokens
    async with opened([sc.cell(FILL), sc.say("ok")], session_file=session.session_file) as session:
        assert session.history == before
        assert abs(session.status().estimated_tokens - estimated) <= 2
        result = await session.prompt("more")
    assert result.status == "done"


async def test_a_session_that_is_opened_again_tells_the_truth_about_its_kernel(opened: OpenSession) -> None:
    """The names of before are gone, and the model is told so before it goes on."""
    async with opened([sc.cell("treasure = 42"), sc.say("ok")]) as session:
        await session.prompt("go")
    async with opened([sc.cell("treasure"), sc.say("ok")], session_file=session.session_file) as session:
        result = await session.prompt("more")
        model = session.model
        assert isinstance(model, sc.ScriptedModel)
        told = [text_of(message) for message in model.requests[0].messages]
    assert "NameError" in outputs(result)[0]
    assert any("opened again with a new kernel" in text for text in told)
    assert told.index(next(text for text in told if "new kernel" in text)) < told.index("more")


async def test_variables_are_restored_where_the_operator_keeps_them(workspace: Path, tmp_path: Path) -> None:
    settings = sc.Settings.model_validate({"kernelState": {"keep": True}})
    log = tmp_path / "s.jsonl"
    first = sc.ScriptedModel([sc.cell("treasure = [1, 2]\nstream = (n for n in [1])"), sc.say("ok")])
    async with sc.open_session(first, workspace=workspace, session_file=log, settings=settings) as session:
        stream = session.events()
        await session.prompt("go")
    warnings = [event.message for event in stream.pending() if isinstance(event, sc.events.WarningRaised)]
    second = sc.ScriptedModel([sc.cell("treasure"), sc.say("ok")])
    async with sc.open_session(second, workspace=workspace, session_file=log, settings=settings) as session:
        result = await session.prompt("more")
    assert outputs(result) == ["[1, 2]"]
    assert any("stream" in warning for warning in warnings)
    told = "\n".join(text_of(message) for message in second.requests[0].messages)
    assert "Restored variables: treasure" in told


async def test_a_session_without_a_sandbox_says_so_and_records_it(workspace: Path, tmp_path: Path) -> None:
    settings = sc.Settings.model_validate({"sandbox": {"kind": "none"}})
    model = sc.ScriptedModel([sc.say("ok")])
    async with sc.open_session(
        model, workspace=workspace, session_file=tmp_path / "s.jsonl", settings=settings
    ) as session:
        (warning,) = [event for event in session.events().pending() if isinstance(event, sc.events.WarningRaised)]
        await session.prompt("x")
    assert "sandbox" in warning.message
    records = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert [record["data"] for record in records if record.get("customType") == "selfcompact.sandbox"] == [
        {"kind": "none"}
    ]
