"""What a session bounds: how long it waits for a provider, what a cell is given at once, what a stopped cell leaves."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import selfcompact as sc

from .conftest import OpenSession
from .helpers import last_value, of_type, outputs


async def test_a_wait_that_the_provider_asks_for_is_not_longer_than_the_setting(
    workspace: Path, tmp_path: Path
) -> None:
    busy = sc.Step(error=sc.RateLimited("come back in an hour", retry_after_s=3600))
    settings = sc.Settings.model_validate({"retry": {"maxDelayS": 0.05}})
    async with sc.open_session(
        sc.ScriptedModel([busy, sc.say("here")]),
        workspace=workspace,
        session_file=tmp_path / "s.jsonl",
        settings=settings,
    ) as session:
        stream = session.events()
        with anyio.fail_after(10):
            result = await session.prompt("go")
        (retry,) = of_type(stream.pending(), "retry_scheduled")
    assert result.text == "here"
    assert retry.delay_ms == 50


async def test_a_cell_gets_both_ends_of_a_very_long_entry_and_is_told_how_much_is_left_out(
    opened: OpenSession,
) -> None:
    text = f"firstword {'x ' * 40_000} lastword"
    code = """
hit = next(hit for hit in await compact.recall('firstword') if hit['kind'] == 'user')
entry = await compact.entry(hit['entry_id'])
(len(entry['text']), entry['omitted_chars'], entry['text'][:9], entry['text'][-8:])
"""
    async with opened([sc.cell(code), sc.say("ok")], window=200_000) as session:
        result = await session.prompt(text)
    length, omitted, first, last = last_value(outputs(result)[0])
    assert 20_000 < length < 25_000
    assert omitted > 50_000
    assert length + omitted >= len(text)
    assert (first, last) == ("firstword", "lastword")


@pytest.mark.parametrize("how", ["aborted", "timeout"])
async def test_a_child_of_a_stopped_cell_ends_with_it_also_in_a_session_of_its_own(
    opened: OpenSession, how: str
) -> None:
    """An interrupt goes to the kernel's process group; a child that left it hears nothing of it."""
    run = """
import subprocess, time
child = subprocess.Popen(['sleep', '300'], start_new_session=True)
print('on', flush=True)
time.sleep(300)
"""
    steps = [sc.cell(run, timeout_s=1 if how == "timeout" else None), sc.cell("child.wait(timeout=3)"), sc.say("ok")]
    async with opened(steps) as session:
        stream = session.events()

        async def abort_when_it_is_on() -> None:
            async for event in stream:
                if isinstance(event, sc.events.ToolExecutionUpdate) and "on" in event.delta:
                    await session.abort()
                    return

        if how == "aborted":
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(abort_when_it_is_on)
                result = await session.prompt("go")
            assert result.status == "aborted"
            result = await session.prompt("go on")
        else:
            result = await session.prompt("go")
        assert session.kernel.generation == 1
    assert outputs(result)[-1].strip() == "-9"
