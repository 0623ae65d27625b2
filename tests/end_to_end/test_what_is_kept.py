"""CONTRACT 4: what a compaction never loses. Real kernel, real sandbox."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import selfcompact as sc
from selfcompact.messages import is_real_user, text_of
from selfcompact.session.history import validate_history

from .conftest import OpenSession
from .helpers import FILL, fill, history_text, outputs


async def test_the_kernel_is_the_same_process_with_the_same_objects(opened: OpenSession) -> None:
    """FAULTS 95."""
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
    """FAULTS 94: listed by the kernel itself, so a deleted name is not in it."""
    steps = [
        sc.cell("longest_functions = [1, 2, 3]\ngone = 'soon'"),
        *fill(),
        sc.cell("del gone\nawait compact.run()"),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        await session.prompt("go")
        (summary,) = [text_of(message) for message in session.history if "longest_functions" in text_of(message)]
    assert "list" in summary
    assert "gone" not in summary.split("longest_functions")[0].rsplit("\n", 3)[-1]


async def test_the_system_prompt_is_identical_before_and_after(opened: OpenSession) -> None:
    """FAULTS 50."""
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
    """FAULTS 51, 52: also when the turn it began is split."""
    wish = "Count the  words — exactly as I say: «näive», 3 spaces   here.\n\nAnd never touch `setup.cfg`."
    async with opened([*fill(4), sc.cell("await compact.run()"), sc.cell("1"), sc.say("ok")]) as session:
        result = await session.prompt(wish)
        assert [outcome.status for outcome in result.compactions] == ["completed"]
        assert wish in history_text(session)


async def test_every_history_ever_sent_is_valid(opened: OpenSession) -> None:
    """FAULTS 27, 28, 37: compact, work, compact, reload, work."""
    rounds = [*fill(), sc.cell("await compact.run()")]
    steps = [*rounds, *rounds, sc.cell("1"), sc.say("ok")]
    async with opened(steps) as session:
        result = await session.prompt("go")
        first = session.model
    async with opened([*rounds, sc.say("ok")], session_file=session.session_file) as session:
        again = await session.prompt("more")
        second = session.model
    assert [o.status for o in (*result.compactions, *again.compactions)] == ["completed"] * 3
    assert isinstance(first, sc.ScriptedModel)
    assert isinstance(second, sc.ScriptedModel)
    for request in (*first.requests, *second.requests):
        assert validate_history(request.messages) == []
        assert any(is_real_user(message) or "go" in text_of(message) for message in request.messages)


async def test_the_kept_tail_equals_the_original_messages(opened: OpenSession) -> None:
    """FAULTS 35, 38."""
    steps = [
        *fill(),
        sc.cell("print('tail')", thinking="sign here", say="I look."),
        sc.cell("await compact.run()"),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        result = await session.prompt("go")
        history = session.history
    tail = [message for message in result.messages if message in history]
    assert tail == list(result.messages[-len(tail) :])
    assert len(tail) >= 3
    assert list(history[-len(tail) :]) == tail


async def test_what_was_quoted_in_the_request_is_in_the_new_context_word_for_word(opened: OpenSession) -> None:
    secret = "tests/test_billing.py::test_rounds_half_even[EUR-0.005]"
    steps = [
        sc.cell(f"print('FAILED {secret}')"),
        *fill(),
        sc.cell(f"await compact.run('keep `{secret}` and \"some words of output\"')"),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        await session.prompt("go")
        text = history_text(session)
    assert secret in text
    assert "some words of output" in text


async def test_everything_older_is_still_in_the_log(opened: OpenSession) -> None:
    async with opened(
        [sc.cell("print('needle ' * 3)"), *fill(), sc.cell("await compact.run()"), sc.say("ok")]
    ) as session:
        await session.prompt("go")
        log = session.session_file.read_text()
    assert "needle needle needle" in log
    kinds = [json.loads(line)["type"] for line in log.splitlines()]
    assert kinds[0] == "session"
    assert kinds.count("compaction") == 1


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
    """FAULTS 94, 95: the names of before are gone, and the model is told so before it goes on."""
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
    warnings = [event.message for event in stream.pending() if isinstance(event, sc.WarningRaised)]
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
        (warning,) = [event for event in session.events().pending() if isinstance(event, sc.WarningRaised)]
        await session.prompt("x")
    assert "sandbox" in warning.message
    records = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert [record["data"] for record in records if record.get("customType") == "selfcompact.sandbox"] == [
        {"kind": "none"}
    ]
