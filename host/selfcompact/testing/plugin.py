"""The pytest plugin: fixtures for a session, a scripted model, and a kernel. Everything they open is closed.

Nothing but pytest is imported when pytest loads this; the rest comes with the first use of a fixture.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selfcompact import ScriptedModel, Session
    from selfcompact.kernel import Kernel
    from selfcompact.models.scripted import StepSource


@pytest.fixture
def selfcompact_workspace(tmp_path: Path) -> Path:
    """An empty directory for an agent to work in."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def selfcompact_model() -> Callable[..., ScriptedModel]:
    """Make a scripted model: `selfcompact_model([cell("1 + 1"), say("two")], context_window=32_000)`."""

    def make(steps: Iterable[StepSource], **options: Any) -> ScriptedModel:
        from selfcompact import ScriptedModel

        return ScriptedModel(steps, **options)

    return make


@pytest.fixture
def selfcompact_session(
    selfcompact_workspace: Path, tmp_path: Path
) -> Callable[..., AbstractAsyncContextManager[Session]]:
    """Open a session on a model or a list of steps, with a real kernel in its sandbox and a log under `tmp_path`.

    Keywords are those of `selfcompact.open_session`; `compaction={...}` sets compaction settings alone.
    """

    @asynccontextmanager
    async def open_(model: Any, *, compaction: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Session]:
        import selfcompact as sc

        if not hasattr(model, "stream"):
            model = sc.ScriptedModel(model)
        options.setdefault("workspace", selfcompact_workspace)
        options.setdefault("session_file", tmp_path / "session.jsonl")
        options.setdefault("settings", sc.Settings.model_validate({"compaction": compaction or {}}))
        async with sc.open_session(model, **options) as session:
            yield session

    return open_


@pytest.fixture
def selfcompact_kernel(selfcompact_workspace: Path) -> Callable[..., AbstractAsyncContextManager[Kernel]]:
    """Open a kernel alone: `async with selfcompact_kernel() as kernel: await kernel.execute("1 + 1")`."""

    @asynccontextmanager
    async def open_(**options: Any) -> AsyncIterator[Kernel]:
        from host_bridge.host.dispatcher import Dispatcher
        from selfcompact.kernel import KernelSettings, SandboxPolicy, open_kernel

        options.setdefault("workspace", selfcompact_workspace)
        options.setdefault("dispatcher", Dispatcher())
        settings = options.pop("settings", KernelSettings())
        policy = options.pop("policy", SandboxPolicy())
        async with open_kernel(settings, policy, **options) as kernel:
            yield kernel

    return open_
