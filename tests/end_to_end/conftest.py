"""Sessions as a program opens them: a real kernel in the real sandbox, a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import selfcompact as sc
from selfcompact.errors import ModelError
from selfcompact.kernel.runtime import RuntimeDirectory
from selfcompact.models.scripted import StepSource

from . import reaching

OpenSession = Callable[..., AbstractAsyncContextManager[sc.Session]]

SMALL = {"keep_recent_tokens": 300, "reserve_tokens": 4000}
"""A tail that a few cells overflow, so that tests need little text."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """In every test here: what cells can write, workspace and kernels' directories, only careful modules reach."""
    made = RuntimeDirectory.__init__

    def told(self: RuntimeDirectory, path: Path) -> None:
        made(self, path)
        reaching.watch(self.kernel_dir)

    monkeypatch.setattr(RuntimeDirectory, "__init__", told)
    with reaching.watched([tmp_path / "workspace", tmp_path / "w"]) as found:
        yield found
    assert found == []


@pytest.fixture
def opened(workspace: Path, tmp_path: Path) -> OpenSession:
    """Open a session on a script; keywords are compaction settings. `model` in the session is the scripted one."""

    @asynccontextmanager
    async def open_(
        steps: Iterable[StepSource],
        *,
        summaries: Iterable[str | ModelError] | None = None,
        window: int | None = 32_000,
        session_file: Path | None = None,
        hooks: sc.Hooks | None = None,
        command_hooks: dict[str, Any] | None = None,
        **compaction: Any,
    ) -> AsyncIterator[sc.Session]:
        model = sc.ScriptedModel(steps, summaries=summaries, context_window=window)
        if command_hooks is not None:
            compaction["hooks"] = command_hooks
        settings = sc.Settings.model_validate({"compaction": {**SMALL, **compaction}})
        async with sc.open_session(
            model,
            workspace=workspace,
            session_file=session_file or tmp_path / "session.jsonl",
            settings=settings,
            hooks=hooks,
        ) as session:
            yield session

    return open_
