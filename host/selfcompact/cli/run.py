"""`selfcompact run`: one task, from the first message to the last."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import click
from rich.console import Console

from selfcompact.cli.choose import choice_of, session_options
from selfcompact.cli.screen import Screen, kept_line
from selfcompact.events import AgentEnd, Event
from selfcompact.session.open import open_session
from selfcompact.session.run import RunResult
from selfcompact.session.session import Session
from selfcompact.settings.load import load_settings

EXIT_CODES = {"done": 0, "failed": 1, "aborted": 130}


@click.command()
@click.argument("task")
@session_options
@click.option("--json", "as_json", is_flag=True, help="Write one JSON event a line to standard output, nothing else.")
@click.option("--full", is_flag=True, help="Show cells and outputs whole.")
def run(
    task: str,
    model_name: str | None,
    base_url: str | None,
    key_variable: str | None,
    context_window: int | None,
    script: Path | None,
    workspace: Path,
    session_file: Path | None,
    overrides: tuple[str, ...],
    sandbox: str | None,
    as_json: bool,
    full: bool,
) -> None:
    """Give the agent a TASK and show its work until it is done.

    Ends with 0 when the task is done, 1 when the run failed, 2 for wrong use, 130 when it was interrupted.
    """
    if sandbox is not None:
        overrides = (*overrides, f"sandbox.kind={sandbox}")
    loaded = load_settings(workspace, overrides=overrides)
    choice = choice_of(model_name, base_url, key_variable, context_window, script)
    model = choice.model(loaded.settings)

    async def main() -> RunResult:
        async with open_session(model, workspace=workspace, session_file=session_file, settings=loaded) as session:
            if as_json:
                write_json(session.header.to_json())
                return await run_and_show(session, task, lambda event: write_json(event.to_json()))
            screen = Screen(Console(), full=full)
            result = await run_and_show(session, task, screen.show)
            screen.console.print(kept_line("session log", str(session.session_file)))
            return result

    result = anyio.run(main)
    if result.error is not None:
        click.echo(f"selfcompact: {result.reason}", err=True)
    sys.exit(EXIT_CODES[result.status])


async def run_and_show(session: Session, task: str, show: Callable[[Event], None]) -> RunResult:
    """Run one task and show its events; Ctrl-C and a polite kill abort the run, which then ends as aborted."""
    stream = session.events()
    results: list[RunResult] = []

    async def watch_signals() -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                await session.abort()

    async def show_events() -> None:
        async for event in stream:
            show(event)
            if isinstance(event, AgentEnd):
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_signals)
        async with anyio.create_task_group() as shown:
            shown.start_soon(show_events)
            results.append(await session.prompt(task))
        tasks.cancel_scope.cancel()
    await stream.aclose()
    return results[0]


def write_json(value: object) -> None:
    """One JSON value as one line on standard output, at once."""
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()
