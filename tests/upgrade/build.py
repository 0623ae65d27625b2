"""Sessions in which everything happens that leaves a mark in a log; `make` froze what they wrote, once.

They are played again by a test: whatever the names in the frozen logs are, the code of today still writes them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

import selfcompact as sc
from selfcompact.log.blobs import blob_folder
from selfcompact.messages import Usage, encode_message
from selfcompact.models.registry import make_model
from selfcompact.models.scripted import StepSource
from selfcompact.session.kernel_state import snapshot_file
from selfcompact.testing import FakeProvider, Fault, Reply, cell_reply
from selfcompact.testing.replies import Answer
from tests.end_to_end.helpers import FILL
from tests.end_to_end.test_brakes import SUMMARY

PICTURE = """
import random, struct, zlib
from IPython.display import Image, display

def noise(size):
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    some = random.Random(size)
    rows = b''.join(b'\\0' + some.randbytes(3 * size) for _ in range(size))
    body = chunk(b'IHDR', struct.pack('>IIBBBBB', size, size, 8, 2, 0, 0, 0))
    return b'\\x89PNG\\r\\n\\x1a\\n' + body + chunk(b'IDAT', zlib.compress(rows, 0)) + chunk(b'IEND', b'')

display(Image(data=noise({size}), format='png'))
"""
LARGE, LAST, SMALL = (PICTURE.replace("{size}", str(size)) for size in (110, 112, 8))
"""Two that are kept as files beside the log, the second in what is live at the end, and one that stands in it."""

NEEDLE = "the harbour light is green"
"""Said before the first compaction and never again; a search must find it."""

NEAR = Usage(input=28_500, output=20, cache_read=20_000)
"""What is reported when the context is over the threshold."""

PREFIX = """\
## Original Request
Go on with another model.

## Early Progress
- Lines of words were printed twice.

## Context for Suffix
- The same lines are printed again.
"""
"""What a model writes of the beginning of a turn that a compaction splits."""

SETTINGS = {"keepRecentTokens": 300, "reserveTokens": 4000}


@asynccontextmanager
async def opened(
    log: Path,
    workspace: Path,
    steps: Sequence[StepSource],
    *,
    summaries: Sequence[str | sc.ModelError] | None = None,
    model_id: str = "first",
    hooks: sc.Hooks | None = None,
    sandbox: str = "bwrap",
    **compaction: Any,
) -> AsyncIterator[sc.Session]:
    settings = sc.Settings.model_validate(
        {"compaction": {**SETTINGS, **compaction}, "sandbox": {"kind": sandbox}, "retry": {"maxRetries": 0}}
    )
    model = sc.ScriptedModel(steps, summaries=summaries, context_window=32_000, model_id=model_id)
    async with sc.open_session(model, workspace=workspace, session_file=log, settings=settings, hooks=hooks) as session:
        yield session


async def write_long(log: Path, workspace: Path) -> None:
    """Compactions of each reason, and attempts of each other outcome, over four openings."""
    await _requested_and_manual(log, workspace)
    await _threshold_and_overflow(log, workspace)
    await _vetoed_failed_and_interrupted(log, workspace)
    await _branches(log, workspace)


async def _requested_and_manual(log: Path, workspace: Path) -> None:
    async def add(result: sc.events.CompactionResult) -> str:
        return f"The hook saw that {result.tokens_before > 0}."

    steps = [
        sc.cell(f"print({NEEDLE!r})", thinking="First the light.", say="I look."),
        sc.cell(LARGE),
        sc.cell(FILL),
        sc.cell("await compact.run('keep `rows` and \"harbour\"')"),
        sc.cell(SMALL),
        sc.cell("rows = [n**2 for n in range(50)]\nrows[-1]"),
        sc.cell("raise ValueError('näh \\u2028 日本')"),
        sc.say("Counted."),
        sc.cell(FILL),
        sc.say("More of it."),
    ]
    async with opened(log, workspace, steps, hooks=sc.Hooks(after_compact=[add])) as session:
        session.set_name("Counting the rows")
        await session.prompt("Count the rows of the harbour's table. Never touch `prod.db`.")
        leaf = (await session.tree()).leaf_id
        assert leaf is not None
        session.label(leaf, "counted")
        await session.prompt("And more?")
        assert (await session.compact("keep the counts")).status == "completed"
        assert (await session.compact()).status == "skipped"


async def _threshold_and_overflow(log: Path, workspace: Path) -> None:
    almost = SUMMARY.replace("## Next Steps", "## Next steps:")
    steps: list[StepSource] = [
        sc.cell(FILL),
        sc.cell(FILL, usage=NEAR),
        sc.cell(FILL),
        sc.cell(FILL),
        sc.overflow(),
        sc.say("Went on."),
    ]
    summaries: list[str | sc.ModelError] = [
        almost,
        PREFIX,
        "no form at all",
        "nor here",
        sc.PermissionDenied("no summaries today", status=403),
    ]
    async with opened(log, workspace, steps, summaries=summaries, model_id="second") as session:
        result = await session.prompt("Go on with another model.")
    assert [(o.reason, o.status) for o in result.compactions] == [
        ("threshold", "completed"),
        ("overflow", "completed"),
    ]


async def _vetoed_failed_and_interrupted(log: Path, workspace: Path) -> None:
    begun = anyio.Event()

    async def decide(preparation: sc.CompactionPreparation) -> sc.Veto | sc.SuppliedSummary | None:
        match preparation.instructions:
            case "veto":
                return sc.Veto("not on my watch")
            case "supply":
                return sc.SuppliedSummary("## Goal\nWritten by a hook.\n\n## Next Steps\n1. Go on.")
            case "hold":
                begun.set()
                await anyio.sleep_forever()
        return None

    steps = [
        sc.cell(FILL),
        sc.cell(FILL),
        sc.cell("await compact.run('veto')"),
        sc.cell("await compact.run('fail')"),
        sc.cell("await compact.run('supply')"),
        sc.cell(FILL),
        sc.cell(FILL),
        sc.say("Enough."),
        sc.fail("no credit", status=403),
        sc.cell("import time\nprint('on', flush=True)\ntime.sleep(60)"),
    ]
    down: list[str | sc.ModelError] = [sc.PermissionDenied("no summaries today", status=403)] * 4
    async with opened(
        log, workspace, steps, summaries=down, hooks=sc.Hooks(before_compact=[decide]), offlineFallback=False
    ) as session:
        result = await session.prompt("Try some compactions.")
        assert [o.status for o in result.compactions] == ["vetoed", "failed", "completed"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.compact, "hold")
            await begun.wait()
            await session.abort()
        assert (await session.prompt("This one fails.")).status == "failed"
        stream = session.events()

        async def abort_when_it_is_on() -> None:
            async for event in stream:
                if isinstance(event, sc.events.ToolExecutionUpdate) and "on" in event.delta:
                    await session.abort()
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort_when_it_is_on)
            assert (await session.prompt("This one is aborted.")).status == "aborted"


async def _branches(log: Path, workspace: Path) -> None:
    steps = [sc.say("The left way."), sc.say("The right way."), sc.cell(LAST), sc.say("At the end.")]
    async with opened(log, workspace, steps, sandbox="none", model_id="third") as session:
        leaf = (await session.tree()).leaf_id
        assert leaf is not None
        await session.prompt("Try the left way.")
        await session.rewind(leaf)
        await session.prompt("Try the right way.")
        await session.rewind(leaf, summarise=True)
        await session.prompt("Take the last way.")


async def write_provider(log: Path, workspace: Path) -> None:
    """A session with a provider: signed thinking, cached tokens, a failed request, two calls in one response."""
    answers: list[Answer] = [
        cell_reply("1 + 1", say="I add.", usage=(900, 40)),
        Fault(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        Reply("Two.", thinking="It is two.", signature="c2lnbmVk", usage=(1000, 30), cached=800),
        Reply("Still two.", usage=(1100, 20), cached=1000),
    ]
    settings = sc.Settings.model_validate({"retry": {"firstDelayS": 0.01}})
    async with FakeProvider(answers) as server:
        model = make_model("anthropic:fake-model", base_url=server.anthropic_url, context_window=32_000)
        async with sc.open_session(model, workspace=workspace, session_file=log, settings=settings) as session:
            assert (await session.prompt("What is one and one?")).status == "done"
            assert (await session.prompt("Are you sure?")).status == "done"


KEEP = sc.Settings.model_validate({"kernelState": {"keep": True}})


async def write_kept(log: Path, workspace: Path) -> None:
    """A session whose variables were saved beside its log when it closed."""
    steps = [sc.cell("treasure = {'rows': [3, 1, 4], 'name': 'näh'}"), sc.say("Kept.")]
    async with sc.open_session(
        sc.ScriptedModel(steps), workspace=workspace, session_file=log, settings=KEEP
    ) as session:
        assert (await session.prompt("Keep a treasure.")).status == "done"


def as_json(message: sc.Message) -> dict[str, Any]:
    """A message as JSON; images by the digest of their data, as nobody reads them."""
    data = encode_message(message)
    for block in data["content"] if isinstance(data.get("content"), list) else ():
        if block["type"] == "image":
            block["data"] = f"sha256:{hashlib.sha256(block['data'].encode()).hexdigest()}"
    return data


def copied(log: Path, folder: Path) -> Path:
    """A copy of a log with what lies beside it, as a user has it."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / log.name
    shutil.copy(log, target)
    if blob_folder(log).is_dir():
        shutil.copytree(blob_folder(log), blob_folder(target))
    if snapshot_file(log).exists():
        shutil.copy(snapshot_file(log), snapshot_file(target))
    return target


def records(log: Path) -> list[dict[str, Any]]:
    """Every record of a file."""
    return [json.loads(line) for line in log.read_bytes().split(b"\n") if line]
