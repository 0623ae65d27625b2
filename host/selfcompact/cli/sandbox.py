"""`selfcompact sandbox` and `selfcompact doctor`: what a cell may reach, tried just now; whether this machine can."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import anyio
import click
from rich.console import Console
from rich.table import Table

from selfcompact.errors import KernelStartError, SandboxUnavailable
from selfcompact.kernel.probe import ProbeRow, probe_sandbox
from selfcompact.sandbox.bubblewrap import find_bwrap
from selfcompact.settings.load import load_settings
from selfcompact.settings.schema import Settings

MARKS = {True: "[green]yes[/green]", False: "[red]NO[/red]", None: "[yellow]–[/yellow]"}


@click.command()
@click.option(
    "--workspace",
    type=click.Path(path_type=Path),
    default=Path(),
    help="The directory the agent works in.  [default: the current one]",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting, as sandbox.profile=online.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def sandbox(workspace: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show what a cell can read, write, reach and use, each line tried from inside just now.

    Ends with 1 when a line does not hold.
    """
    settings = load_settings(workspace, overrides=overrides).settings
    rows = anyio.run(_probe, settings, workspace.resolve())
    if as_json:
        for row in rows:
            click.echo(json.dumps(vars(row)))
    else:
        table = Table("", "a cell has", "seen to hold", "", box=None, pad_edge=False, header_style="bold")
        previous = ""
        for row in rows:
            table.add_row("" if row.topic == previous else row.topic, row.promise, MARKS[row.verified], row.detail)
            previous = row.topic
        Console().print(table)
        policy = settings.sandbox
        Console().print(
            f"[dim]profile {policy.profile}, kind {policy.kind}; docs/security.md says what is promised[/dim]"
        )
    sys.exit(1 if any(row.verified is False for row in rows) else 0)


async def _probe(settings: Settings, workspace: Path) -> tuple[ProbeRow, ...]:
    return await probe_sandbox(settings.kernel, settings.sandbox, workspace=workspace)


@click.command()
def doctor() -> None:
    """Say whether this machine can run sandboxed kernels, and what to do when it cannot. Ends with 1 then."""
    console = Console()
    problems = 0

    def line(good: bool, what: str, remedy: str = "") -> None:
        nonlocal problems
        problems += not good
        console.print(f"{'[green]ok[/green]' if good else '[red]no[/red]'}  {what}")
        if not good and remedy:
            console.print(f"    {remedy}")

    version = ".".join(map(str, sys.version_info[:3]))
    line(sys.version_info >= (3, 11), f"Python {version}", "install Python 3.11 or newer")
    settings = load_settings(Path()).settings
    try:
        found = find_bwrap((Path.cwd(), *settings.sandbox.write))
        line(True, f"bubblewrap {'.'.join(map(str, found.version))} at {found.path}, and it can make namespaces")
    except SandboxUnavailable as error:
        line(False, error.reason, error.remedy)
    line(importlib.util.find_spec("ipykernel") is not None, "ipykernel", "pip install ipykernel")
    for tool, use in (("git", "version control in the workspace"),):
        if shutil.which(tool) is None:
            console.print(f"[yellow]–[/yellow]   {tool} is not installed ({use})")
    if not problems:
        try:
            rows = anyio.run(_probe, settings, Path.cwd())
            failed = [row.promise for row in rows if row.verified is False]
            line(not failed, "a kernel starts, and every promise holds from inside", "; ".join(failed))
        except (SandboxUnavailable, KernelStartError) as error:
            line(False, str(error))
    sys.exit(1 if problems else 0)
