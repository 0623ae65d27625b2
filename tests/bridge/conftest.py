"""A server on a real socket, and the kernel's end pointed at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from host_bridge.host.server import BridgeServer, Dispatcher

KEY = b"0123456789abcdef0123456789abcdef"


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


class Text(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str


async def echo(payload: Anything) -> dict[str, object]:
    return dict(payload.model_extra or {})


@pytest.fixture
def dispatcher() -> Dispatcher:
    made = Dispatcher()
    made.register("echo", Anything, echo)
    return made


Serve = Callable[..., AbstractAsyncContextManager[BridgeServer]]


@pytest.fixture
def serve(dispatcher: Dispatcher, socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    @asynccontextmanager
    async def serve_(generation: int = 1) -> AsyncIterator[BridgeServer]:
        endpoint = f"ipc://{socket_path}"
        async with BridgeServer(dispatcher, endpoint=endpoint, key=KEY, generation=generation) as server:
            for name, value in server.address.to_environment().items():
                monkeypatch.setenv(name, value)
            yield server

    return serve_
