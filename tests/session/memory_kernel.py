"""A kernel in memory, for tests that need thousands of sessions; its requests go through the memory bridge."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio.lowlevel

import selfcompact as sc
from host_bridge.host.dispatcher import Dispatcher
from host_bridge.host.memory import MemoryBridge, memory_bridge
from host_bridge.wire.errors import HostRequestError
from selfcompact.compaction.summary.summarisers import ModelSummariser, Summariser
from selfcompact.errors import ModelError
from selfcompact.kernel import CellResult, Kernel, SandboxInfo, StateManifest
from selfcompact.log import SessionLog
from selfcompact.session.open import SessionConfig, assembled
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.settings.retry import RetrySettings
from selfcompact.settings.watch import SettingsWatch

SHM = Path("/dev/shm")
FAST_DISK = str(SHM) if SHM.is_dir() else None
"""The log is synced at every boundary; in memory that costs nothing, so more cases fit into a minute."""

FILL = "words that fill the window " * 150
SUMMARY = """\
## Goal
Fill the window.

## Constraints & Preferences
(none)

## Progress
### Done
- [x] Said many words, again and again, as the session asked for.

### In Progress
(none)

### Blocked
(none)

## Key Decisions
(none)

## Next Steps
1. Go on.

## Critical Context
(none)
"""


class MemoryKernel:
    """Cells are lists of instructions: `fill`, `ask`, `status`, `wait N`."""

    generation = 1
    sandbox = SandboxInfo("none", "in memory")

    def __init__(self, bridge: MemoryBridge) -> None:
        self._bridge = bridge

    async def execute(
        self, code: str, *, timeout_s: float | None = None, on_output: Callable[[str], None] | None = None
    ) -> CellResult:
        said: list[str] = []
        for instruction in code.split(";"):
            word, _, rest = instruction.partition(" ")
            if word == "fill":
                said.append(FILL)
            elif word == "wait":
                await yield_times(int(rest))
            else:
                payload = {"instructions": rest or None} if word == "ask" else {}
                try:
                    answer = await self._bridge.host_request(f"compact.{'run' if word == 'ask' else 'status'}", payload)
                    said.append(json.dumps(answer))
                except HostRequestError as error:
                    said.append(str(error))
        return CellResult(status="ok", text="\n".join(said), generation=1)

    async def names(self) -> StateManifest:
        await anyio.lowlevel.checkpoint()
        return StateManifest(known=True, generation=1)


async def yield_times(times: int) -> None:
    for _ in range(times):
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def memory_session(
    path: Path,
    model: sc.Model,
    *,
    summaries: Iterator[str | ModelError] | None = None,
    summariser: Summariser | None = None,
    hooks: sc.Hooks | None = None,
    compaction: CompactionSettings,
) -> AsyncIterator[sc.Session]:
    """A session on a kernel in memory; `summaries` are what its summariser answers, unless another one is given."""
    config = SessionConfig(
        model=model,
        workspace=path.parent,
        settings=sc.Settings(compaction=compaction, retry=RetrySettings(max_retries=1, first_delay_s=0)),
        watch=SettingsWatch(None),
        system="Be brief.",
        summariser=summariser or ModelSummariser(sc.ScriptedModel([], summaries=summaries or ())),
        hooks=hooks or sc.Hooks(),
    )
    dispatcher = Dispatcher()
    with SessionLog.open(path, cwd=path.parent) as log:
        async with (
            memory_bridge(dispatcher) as bridge,
            assembled(config, log, cast("Kernel", MemoryKernel(bridge)), dispatcher) as session,
        ):
            yield session
