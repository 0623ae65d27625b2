"""`selfcompact demo`: the main job once, for real, without a model or a key."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio
import click
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from selfcompact.cli.demo_script import TASK, demo_model
from selfcompact.cli.run import EXIT_CODES, run_and_show
from selfcompact.cli.screen import Screen, kept_line, shorten_lines
from selfcompact.session.open import open_session
from selfcompact.session.run import RunResult
from selfcompact.session.session import Session
from selfcompact.settings.load import load_settings
from selfcompact.settings.schema import Settings
from selfcompact.workspace import new_session_file

DEMO_SETTINGS = ("compaction.reserveTokens=6000", "compaction.keepRecentTokens=4000")
"""The defaults are made for windows of 200,000 tokens; the demo's has 32,000."""

SUMMARY_LINES = 60


@click.command()
@click.option(
    "--workspace",
    type=click.Path(path_type=Path),
    help="Where the report is written.  [default: a new temporary directory]",
)
@click.option(
    "--sandbox", type=click.Choice(["bwrap", "none"]), help="How the kernel is shut in; `none` runs it without."
)
@click.option("--full", is_flag=True, help="Show cells, outputs and the summary whole.")
def demo(workspace: Path | None, sandbox: str | None, full: bool) -> None:
    """Watch a scripted agent audit the standard library, and compact itself on the way.

    The kernel, its sandbox, the work and the compaction are real; only the model's words come from a script.
    """
    folder = workspace if workspace is not None else Path(tempfile.mkdtemp(prefix="selfcompact-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    overrides = [*DEMO_SETTINGS, *([f"sandbox.kind={sandbox}"] if sandbox else [])]
    settings = load_settings(folder, overrides=overrides).settings
    result = anyio.run(_play, folder, settings, full)
    sys.exit(EXIT_CODES[result.status])


async def _play(folder: Path, settings: Settings, full: bool) -> RunResult:
    screen = Screen(Console(), full=full)
    log = new_session_file(folder)
    async with open_session(demo_model(), workspace=folder, session_file=log, settings=settings) as session:
        screen.console.print(f"[dim]workspace {escape(str(folder))} · sandbox {session.kernel.sandbox.kind}[/dim]")
        result = await run_and_show(session, TASK, screen.show)
        _show_end(screen.console, session, result, full=full)
    return result


def _show_end(console: Console, session: Session, result: RunResult, *, full: bool) -> None:
    done = [outcome.result for outcome in result.compactions if outcome.result is not None]
    if done:
        summary = done[-1].summary
        text = summary if full else shorten_lines(summary, SUMMARY_LINES)
        console.print(Panel(Text(text), title="the summary that stands for the old history", title_align="left"))
    console.print("[bold]What was kept[/bold]")
    console.print(kept_line("kernel", f"the same process throughout (generation {session.kernel.generation})"))
    for outcome in done:
        console.print(kept_line("compaction", f"{outcome.tokens_before:,} → {outcome.tokens_after:,} tokens"))
    console.print(kept_line("turns", f"{result.turns}, and nothing was run twice"))
    console.print(kept_line("report", str(session.workspace / "stdlib-audit.md")))
    console.print(kept_line("session log", f"{session.session_file}  (the whole history, word for word)"))
