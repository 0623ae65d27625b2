"""A harness: watch a run as it happens, keep a say in its compactions, and look at what came out.

    python examples/harness.py

The model is scripted, so that this runs without a key; `selfcompact.make_model("openai:…")` takes its place.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import selfcompact as sc
from selfcompact import events

SCRIPT = [
    sc.cell("rows = [n**2 for n in range(4000)]\nprint(rows)"),
    sc.cell("print(rows[::-1])"),
    sc.cell("await compact.run('keep `rows`')"),
    sc.cell("print(len(rows), rows[-1])"),
    sc.say("rows has 4000 squares; the last is 15992001."),
]


async def not_too_early(preparation: sc.CompactionPreparation) -> sc.Veto | None:
    """Before each compaction: it must be worth its while."""
    saved = preparation.tokens_before - preparation.expected_tokens_after
    return None if saved > 1_000 else sc.Veto(f"it would save {saved} tokens only")


async def remind(result: events.CompactionResult) -> str:
    """After each: one sentence for the model."""
    return f"The context had {result.tokens_before:,} tokens. Results are in variables, not in the history."


async def watch(stream: sc.EventStream) -> None:
    """Tell what happens while it does."""
    async for event in stream:
        if isinstance(event, events.TurnEnd):
            print(f"turn {event.turn}: {event.context_tokens:,} tokens")
        elif isinstance(event, events.CompactionEnd):
            after = event.result.tokens_after if event.result else None
            print(f"compaction ({event.reason}): {event.status}, {after} tokens after it")


async def main(workspace: Path) -> None:
    """Run the script in `workspace`."""
    model = sc.ScriptedModel(SCRIPT, context_window=100_000)
    settings = sc.Settings.model_validate({"compaction": {"keepRecentTokens": 500}})
    hooks = sc.Hooks(before_compact=[not_too_early], after_compact=[remind])
    async with sc.open_session(
        model, workspace=workspace, session_file=workspace.with_suffix(".jsonl"), settings=settings, hooks=hooks
    ) as session:
        watching = asyncio.create_task(watch(session.events()))
        result = await session.prompt("Make a table of squares.")
        result.raise_for_status()
    await watching  # the stream ends with its session
    print(result.text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        asyncio.run(main(work))
