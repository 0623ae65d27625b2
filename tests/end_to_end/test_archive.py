"""The archive in a real session: recall from a cell, rewind, branches, forks, names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import selfcompact as sc
from selfcompact.messages import text_of

from .conftest import OpenSession
from .helpers import fill, history_text, last_value, outputs


async def test_a_cell_finds_what_a_compaction_replaced(opened: OpenSession) -> None:
    steps = [
        sc.cell("print('the database timeout was 31.7 seconds')"),
        *fill(),
        sc.cell("await compact.run()"),
        sc.cell("hits = await compact.recall('database 31.7', limit=3)\n[(h['kind'], h['excerpt']) for h in hits]"),
        sc.cell("(await compact.entry(hits[0]['entry_id']))['text']"),
        sc.cell("await compact.recall('xy' * 3 + 'zzy')"),
        sc.cell("try:\n    await compact.entry('nowhere')\nexcept LookupError as error:\n    print(error)"),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        result = await session.prompt("go")
    found = outputs(result)
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    hits = last_value(found[-4])
    assert any("31.7 seconds" in excerpt for _, excerpt in hits)
    assert "31.7" in found[-3]
    assert last_value(found[-2]) == []
    assert "no entry 'nowhere'" in found[-1]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("compact.recall(3)", "TypeError"),
        ("compact.recall('x', limit='y')", "TypeError"),
        ("compact.entry(None)", "TypeError"),
        ("compact.recall('x', limit=0)", "HostRequestError"),
        ("compact.recall('')", "HostRequestError"),
    ],
)
async def test_wrong_arguments_of_the_archive_are_told(opened: OpenSession, call: str, error: str) -> None:
    async with opened([sc.cell(f"await {call}"), sc.say("ok")]) as session:
        result = await session.prompt("go")
    assert error in outputs(result)[0]


async def test_the_archive_can_be_read_when_the_skill_is_off(opened: OpenSession) -> None:
    """A summary may name entries, and no pointer in it lies."""
    steps = [
        sc.cell("print('the needle is 4711')"),
        sc.cell("hits = await compact.recall('needle 4711')\nprint(len(hits) > 0)"),
        sc.cell("print('4711' in (await compact.entry(hits[0]['entry_id']))['text'])"),
        sc.say("ok"),
    ]
    async with opened(steps) as session:
        session.set_agent_callable(False)
        result = await session.prompt("go")
    assert outputs(result)[1:] == ["True", "True"]


async def test_rewinding_across_a_compaction_restores_the_exact_earlier_view(opened: OpenSession) -> None:
    """And it is still so after a reload."""
    async with opened([*fill(3), sc.say("one"), sc.say("two"), sc.say("three")]) as session:
        await session.prompt("go")
        before = session.history
        tree = await session.tree()
        leaf = tree.leaf_id
        assert leaf is not None
        assert (await session.compact()).status == "completed"
        await session.prompt("further")
        assert session.history != before
        await session.rewind(leaf)
        assert session.history == before
        path = session.session_file
    async with opened([sc.say("on another branch")], session_file=path) as session:
        assert session.history == before
        result = await session.prompt("go on")
        assert result.text == "on another branch"
        assert "further" not in history_text(session)
        tree = await session.tree()
        assert len(tree.nodes[leaf].children) == 2


async def test_a_branch_that_is_left_is_told_in_one_message_after_the_context_of_the_entry(
    opened: OpenSession,
) -> None:
    steps = [sc.say("one"), sc.cell("print('told', 6 * 7)"), sc.say("two"), sc.say("three")]
    async with opened(steps) as session:
        await session.prompt("count the sheep")
        leaf, before = (await session.tree()).leaf_id, session.history
        assert leaf is not None
        await session.prompt("try the risky way with `risky.py`")
        left = (await session.tree()).leaf_id
        await session.rewind(leaf, summarise=True)
        *restored, told = session.history
        assert tuple(restored) == before
        assert (told.role, getattr(told, "synthetic", None)) == ("user", True)
        assert "risky.py" in text_of(told)
        assert "sheep" not in text_of(told)
        assert not [m for m in session.history if m.role == "toolResult"]
        await session.prompt("on")
        records = [json.loads(line) for line in session.session_file.read_text().splitlines()]
        sent = session.model.requests[-1].messages if isinstance(session.model, sc.ScriptedModel) else ()
    (record,) = [record for record in records if record["type"] == "branch_summary"]
    assert (record["parentId"], record["fromId"]) == (leaf, left)
    assert record["summary"] in text_of(told)
    assert sent[: len(before) + 1] == (*before, told)


async def test_forks_labels_and_names(opened: OpenSession, tmp_path: Path) -> None:
    async with opened([sc.say("one"), sc.say("two")]) as session:
        await session.prompt("go")
        first = (await session.tree()).leaf_id
        assert first is not None
        session.label(first, "the first answer")
        session.set_name("A good talk")
        await session.prompt("more")
        tree = await session.tree()
        assert tree.name == "A good talk"
        assert tree.nodes[first].label == "the first answer"
        fork = await session.fork(tmp_path / "fork.jsonl", first)
        hits = await session.search("more")
        assert hits[0].kind == "user"
    async with opened([sc.say("forked")], session_file=fork) as session:
        assert "more" not in history_text(session)
        assert (await session.prompt("x")).text == "forked"


async def test_rewinding_to_nowhere_changes_nothing(opened: OpenSession) -> None:
    async with opened([sc.say("one")]) as session:
        await session.prompt("go")
        before = session.session_file.read_bytes()
        with pytest.raises(sc.SessionFileError, match="has no entry nowhere"):
            await session.rewind("nowhere")
        assert session.session_file.read_bytes() == before
        assert session.state == "idle"
