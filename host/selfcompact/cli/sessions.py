"""`selfcompact sessions`, `inspect`, `search`: looking at session files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.errors import SelfcompactError, SessionFileError
from selfcompact.log.reading import read_live, session_name
from selfcompact.log.search import Archive
from selfcompact.log.tree import SessionTree, TreeNode, read_tree
from selfcompact.private_files import replace_private
from selfcompact.reports.chart import page
from selfcompact.reports.statistics import SessionFigures, session_figures
from selfcompact.workspace import sessions_folder

LARGE_BYTES = 20 * 1024 * 1024
"""Above this a progress bar is worth its line."""


@click.command()
@click.option("--all", "everywhere", is_flag=True, help="Of all workspaces, not only the current directory's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def sessions(everywhere: bool, as_json: bool) -> None:
    """List the sessions of this workspace, newest first, with size, tokens and name."""
    root = sessions_folder()
    folders = sorted(root.glob("*")) if everywhere else [sessions_folder(Path.cwd())]
    files = sorted(
        (file for folder in folders for file in folder.glob("*.jsonl")),
        key=lambda file: file.stat().st_mtime,
        reverse=True,
    )
    table = Table("when", "size", "tokens", "name", "file", box=None, pad_edge=False, header_style="bold")
    for file in files:
        row = _row(file)
        if as_json:
            click.echo(json.dumps(row))
        else:
            table.add_row(row["when"], row["size"], row["tokens"], row["name"], row["file"])
    if not as_json:
        if files:
            Console().print(table)
        else:
            click.echo(f"no sessions in {root if everywhere else folders[0]}")


def _row(file: Path) -> dict[str, str]:
    stat = file.stat()
    row = {
        "when": datetime.fromtimestamp(stat.st_mtime, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M"),
        "size": f"{stat.st_size / 1024:,.0f} KiB",
        "tokens": "?",
        "name": "",
        "file": str(file),
    }
    try:
        live = read_live(file)
    except SelfcompactError as error:
        return {**row, "name": f"({error})"}
    row["tokens"] = f"{Ledger(live.entries).estimated_tokens:,}"
    row["name"] = session_name(file) or ""
    return row


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
@click.option("--html", type=click.Path(path_type=Path), help="Write one self-contained page with a chart.")
@click.option("--tree", "as_tree", is_flag=True, help="Show every entry with its id, branch by branch.")
def inspect(file: Path, as_json: bool, html: Path | None, as_tree: bool) -> None:
    """Show what a session FILE holds: models, turns, compactions, the live context, files touched."""
    console = Console()
    if as_tree:
        _show_tree(console, read_tree(file))
        return
    with _progress(file) as on_progress:
        figures = session_figures(file, on_progress)
    if as_json:
        click.echo(json.dumps(figures.to_json(), indent=2))
    elif html is None:
        _show_figures(console, figures)
    if html is not None:
        try:
            replace_private(html, page(figures).encode("utf-8", "replace"))
        except OSError as error:
            raise SessionFileError(html, f"cannot be written ({error.strerror}); name another place") from error
        click.echo(f"wrote {html}", err=True)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("query")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def search(file: Path, query: str, limit: int, as_json: bool) -> None:
    """Find QUERY in everything that was ever said in a session FILE, the summarised parts included."""
    with _progress(file) as on_progress:
        hits = Archive(file).search(query, limit, on_progress)
    for hit in hits:
        if as_json:
            click.echo(json.dumps(vars(hit)))
        else:
            Console().print(
                f"[bold]{hit.entry_id}[/bold] [dim]{hit.timestamp} {hit.kind}[/dim]\n  {escape(hit.excerpt)}"
            )
    if not hits and not as_json:
        click.echo("nothing found", err=True)


@contextmanager
def _progress(file: Path) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on standard error for a large file; a callback for offsets, or None."""
    size = file.stat().st_size if file.exists() else 0
    if size < LARGE_BYTES:
        yield None
        return
    columns = (TextColumn("reading"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=size)

        def show(offset: int) -> None:
            progress.update(task, completed=offset)

        yield show


def _show_figures(console: Console, figures: SessionFigures) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    work = f"{figures.prompts:,} prompts, {figures.turns:,} turns, {figures.cells:,} cells"
    by_role = ", ".join(f"{role} {count:,}" for role, count in figures.live_tokens.items())
    rows = [
        ("session", f"{figures.name or ''} {figures.session_id}".strip()),
        ("file", f"{figures.path} ({figures.size_bytes / 1024:,.0f} KiB, {figures.entries:,} entries)"),
        ("workspace", figures.workspace),
        ("time", f"{figures.began} … {figures.ended or ''}"),
        ("models", ", ".join(figures.models) or "–"),
        ("work", f"{work}, {figures.failed_cells:,} failed"),
        ("live context", f"{figures.live_messages:,} messages, about {figures.live_total:,} tokens: {by_role}"),
        ("modified", ", ".join(figures.modified_files) or "–"),
        ("read", ", ".join(figures.read_files) or "–"),
    ]
    for name, value in rows:
        table.add_row(f"[dim]{name}[/dim]", escape(value))
    console.print(table)
    if figures.compactions:
        console.print("\n[bold]compactions[/bold]")
        for each in figures.compactions:
            after = f"{each.tokens_after:,}" if each.tokens_after is not None else "?"
            saved = f" (−{each.saved_percent} %)" if each.saved_percent is not None else ""
            asked = f": {each.instructions}" if each.instructions else ""
            line = f"  after turn {each.after_turn}, {each.reason or 'unknown reason'}, "
            line += f"{each.tokens_before:,} → {after} tokens{saved}{asked}"
            console.print(escape(line))
    for sentence in figures.damage:
        console.print(f"[yellow]{escape(sentence)}[/yellow]")


def _show_tree(console: Console, tree: SessionTree) -> None:
    """One line an entry; a branch is indented where it leaves the line it came from."""
    work: list[tuple[TreeNode, int]] = [(root, 0) for root in reversed(tree.roots)]
    while work:
        node, depth = work.pop()
        mark = "●" if node.id == tree.leaf_id else "│" if node.live else "·"
        label = f" [magenta]{escape(node.label)}[/magenta]" if node.label else ""
        style = "" if node.live else "dim"
        line = f"{'  ' * depth}{mark} {node.id} [cyan]{node.kind}[/cyan]{label} {escape(node.excerpt)}"
        console.print(line, style=style, no_wrap=True, overflow="ellipsis")
        children = [tree.nodes[child] for child in node.children]
        # The live child continues the line; the others are branches, shown first and one step to the right.
        children.sort(key=lambda child: child.live)
        onward = children[-1:] if children else []
        work.extend((child, depth) for child in onward)
        work.extend((child, depth + 1) for child in reversed(children[:-1]))
