"""Real kernels in the real sandbox, with a host that answers the two calls of the skill."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from host_bridge.host.server import Dispatcher
from selfcompact.kernel import Kernel, KernelSettings, SandboxPolicy, open_kernel

KERNEL_PYTHON = os.environ.get("KERNEL_UNDER_TEST", "")
"""The interpreter that the kernels of these tests run in; `make test-kernels` sets it to one after the other."""


class Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Run(BaseModel):
    model_config = ConfigDict(extra="forbid")
    instructions: str | None = None


class Host:
    """What a session answers, without the session: it remembers what was asked."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher()
        self.asked: list[str | None] = []
        self.dispatcher.register("compact.status", Nothing, self.status)
        self.dispatcher.register("compact.run", Run, self.run)

    async def status(self, _payload: Nothing) -> dict[str, Any]:
        return {"tokens": 10, "context_window": 100, "percent": 10.0, "scheduled": bool(self.asked)}

    async def run(self, payload: Run) -> dict[str, Any]:
        self.asked.append(payload.instructions)
        return {"scheduled": True, "note": "when this turn is over"}


@pytest.fixture(autouse=True)
def _own_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A place for sockets of one's own, so that what is left behind can be told from what others are using."""
    with tempfile.TemporaryDirectory(prefix="sc-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


OpenKernel = Callable[..., AbstractAsyncContextManager[Kernel]]


@pytest.fixture
def opened(host: Host, workspace: Path) -> OpenKernel:
    """Open a kernel; keywords are kernel settings, `policy` holds those of the sandbox."""

    chosen = {"python": KERNEL_PYTHON} if KERNEL_PYTHON else {}

    @asynccontextmanager
    async def open_(policy: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Kernel]:
        async with open_kernel(
            KernelSettings.model_validate({"interrupt_grace_s": 1.0, **chosen, **settings}),
            SandboxPolicy.model_validate(policy or {}),
            workspace=workspace,
            dispatcher=host.dispatcher,
        ) as kernel:
            yield kernel

    return open_
