"""What opening a session hands on: settings, files, the model's own lifetime, the prompt. Real kernel, real log."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

import selfcompact as sc
from selfcompact.compaction.summary.summarisers import ModelSummariser
from selfcompact.log import read_header, read_live
from selfcompact.log.reading import model_in_force
from selfcompact.messages import text_of
from selfcompact.models.protocol import ModelRequest, StreamEvent
from selfcompact.workspace import sessions_folder
from tests.session.memory_kernel import SUMMARY

from .conftest import OpenSession
from .helpers import fill, of_type


class OpenedModel(AbstractAsyncContextManager["OpenedModel"]):
    """A scripted model that must be open while it is asked, as one with a connection must."""

    def __init__(self, model: sc.ScriptedModel) -> None:
        self.told: list[str] = []
        self._model = model
        self.provider, self.model_id = model.provider, model.model_id
        self.context_window, self.max_output_tokens = model.context_window, model.max_output_tokens

    async def __aenter__(self) -> Self:
        self.told.append("opened")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.told.append("closed")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.told.append("asked")
        async for event in self._model.stream(request):
            yield event


async def test_a_model_that_has_a_lifetime_is_open_as_long_as_the_session(workspace: Path, tmp_path: Path) -> None:
    model = OpenedModel(sc.ScriptedModel([sc.say("ok")]))
    async with sc.open_session(
        model, workspace=workspace, session_file=tmp_path / "s.jsonl", settings=sc.Settings()
    ) as session:
        await session.prompt("go")
        assert model.told == ["opened", "asked"]
    assert model.told == ["opened", "asked", "closed"]


@pytest.mark.parametrize("fsync", [True, False])
async def test_the_log_is_stored_on_the_disk_at_each_boundary_unless_the_settings_say_no(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    """A crash of the machine loses at most the turn that was going on; also a compaction is stored at once."""
    path, real = tmp_path / "s.jsonl", os.fsync
    stored, seen = [0], list[tuple[int, int]]()

    def sync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == path:
            stored.append(os.fstat(descriptor).st_size)
        real(descriptor)

    def look() -> None:
        seen.append((stored[-1], path.stat().st_size))

    def before_a_request(_: object) -> sc.Step:
        look()
        return fill(1)[0]

    async def after_a_commit(_: sc.events.CompactionResult) -> None:
        look()

    monkeypatch.setattr(os, "fsync", sync)
    settings = sc.Settings.model_validate({"log": {"fsync": fsync}, "compaction": {"keepRecentTokens": 300}})
    model = sc.ScriptedModel([*fill(1), before_a_request, before_a_request, sc.say("ok")])
    async with sc.open_session(
        model,
        workspace=workspace,
        session_file=path,
        settings=settings,
        hooks=sc.Hooks(after_compact=[after_a_commit]),
    ) as session:
        await session.prompt("go")
        look()
        assert (await session.compact()).status == "completed"
    look()
    assert len(seen) == 5
    if fsync:
        assert all(on_disk == written for on_disk, written in seen)
    else:
        assert stored == [0]


async def test_a_relative_session_file_is_where_the_program_was_and_its_header_names_the_workspace(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = sc.ScriptedModel([sc.say("ok")])
    async with sc.open_session(
        model, workspace="workspace", session_file="new/s.jsonl", settings=sc.Settings(), system="Be a sheep."
    ) as session:
        assert session.session_file == tmp_path / "new/s.jsonl"
        assert session.workspace == workspace
        assert (await session.kernel.execute("import os; print(os.getcwd())")).text.strip() == str(workspace)
        await session.prompt("go")
        header = session.header
    assert header == read_header(tmp_path / "new/s.jsonl")
    assert header.cwd == str(workspace)
    (request,) = model.requests
    assert request.system == "Be a sheep."
    assert request.cache_key == header.id
    assert model_in_force(read_live(tmp_path / "new/s.jsonl").entries) == "scripted:script"


async def test_without_a_session_file_a_new_one_is_made_among_the_workspaces_own(workspace: Path) -> None:
    model = sc.ScriptedModel([sc.say("ok")])
    async with sc.open_session(model, workspace=workspace, settings=sc.Settings()) as session:
        await session.prompt("go")
        path = session.session_file
    assert path.parent == sessions_folder(workspace)
    assert path.is_file()


async def test_a_summariser_that_cannot_be_used_is_told_before_anything_is_opened(
    workspace: Path, tmp_path: Path
) -> None:
    model = OpenedModel(sc.ScriptedModel([sc.say("ok")]))
    settings = sc.Settings.model_validate({"compaction": {"model": "nobody:nothing"}})
    with pytest.raises(sc.UsageError, match="nobody"):
        async with sc.open_session(
            model, workspace=workspace, session_file=tmp_path / "new/s.jsonl", settings=settings
        ):
            pass
    assert model.told == []
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "compaction", [{"style": "nobody's"}, {"promptFile": "/nowhere/prompt.md"}], ids=["a style", "a prompt"]
)
async def test_a_style_or_prompt_that_is_not_there_is_told_at_once(
    workspace: Path, tmp_path: Path, compaction: dict[str, str]
) -> None:
    settings = sc.Settings.model_validate({"compaction": compaction})
    with pytest.raises(sc.UsageError):
        async with sc.open_session(
            sc.ScriptedModel([]), workspace=workspace, session_file=tmp_path / "new/s.jsonl", settings=settings
        ):
            pass
    assert not (tmp_path / "new").exists()


async def test_a_summariser_that_is_given_writes_the_summaries_whatever_the_settings_name(
    workspace: Path, tmp_path: Path
) -> None:
    mine = sc.ScriptedModel([], summaries=[SUMMARY] * 2, model_id="mine")
    model = sc.ScriptedModel([*fill(3), sc.say("ok")], summaries=[], context_window=32_000)
    settings = sc.Settings.model_validate({"compaction": {"keepRecentTokens": 300}})
    async with sc.open_session(
        model,
        workspace=workspace,
        session_file=tmp_path / "s.jsonl",
        settings=settings,
        summariser=ModelSummariser(mine),
    ) as session:
        await session.prompt("go")
        outcome = await session.compact()
    assert outcome.status == "completed"
    assert mine.requests
    assert {request.purpose for request in model.requests} == {"turn"}


async def test_the_sessions_own_model_is_asked_for_summaries_under_the_sessions_key(
    opened: OpenSession,
) -> None:
    async with opened([*fill(3), sc.say("ok")], summaries=[SUMMARY] * 2) as session:
        await session.prompt("go")
        assert (await session.compact()).status == "completed"
        model = session.model
        assert isinstance(model, sc.ScriptedModel)
        keys = {request.cache_key for request in model.requests if request.purpose == "summary"}
        assert keys == {session.header.id}


async def test_damage_in_the_log_is_told_to_the_first_reader_and_the_session_goes_on(opened: OpenSession) -> None:
    async with opened([sc.say("one")]) as session:
        assert session.events().pending() == []
        await session.prompt("go")
    path = session.session_file
    with path.open("ab") as file:
        file.write(b"\0\0\0\n")
    async with opened([sc.say("two")], session_file=path) as session:
        (warning,) = of_type(session.events().pending(), "warning")
        assert session.events().pending() == []
        assert (await session.prompt("more")).text == "two"
    assert "it was passed over" in warning.message


async def test_a_note_about_the_new_kernel_is_told_once_and_only_to_a_session_in_which_something_was_said(
    opened: OpenSession, tmp_path: Path
) -> None:
    async with opened([sc.say("one")]) as session:
        session.set_name("nothing was said yet")
    for expected in (0, 1):
        async with opened([sc.say("one"), sc.say("two")], session_file=session.session_file) as session:
            for text in ("go", "more"):
                await session.prompt(text)
            told = [text_of(message) for message in session.history]
        notes = [text for text in told if "opened again with a new kernel" in text]
        assert len(notes) == expected
    assert tmp_path / "session.jsonl" == session.session_file


async def test_variables_are_saved_only_where_the_settings_say_so_and_when_something_ran(
    workspace: Path, tmp_path: Path
) -> None:
    for keep, prompts in ((False, 1), (True, 0)):
        path = tmp_path / f"{keep}.jsonl"
        model = sc.ScriptedModel([sc.cell("treasure = 1"), sc.say("ok")])
        settings = sc.Settings.model_validate({"kernelState": {"keep": keep}})
        async with sc.open_session(model, workspace=workspace, session_file=path, settings=settings) as session:
            session.set_name("x")
            for _ in range(prompts):
                await session.prompt("go")
        assert not path.with_name(f"{path.name}.variables").exists()
