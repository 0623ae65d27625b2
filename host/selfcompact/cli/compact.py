"""`selfcompact compact`: compact a session file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import click
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from selfcompact.cli.screen import kept_line, shorten_lines
from selfcompact.compaction.planning.plan import Plan, Skip
from selfcompact.compaction.session_file import FileCompaction, FilePlan, append_compaction, compact_planned, plan_file
from selfcompact.compaction.summary.choice import chosen_summariser
from selfcompact.compaction.summary.summarisers import ModelSummariser, OfflineSummariser, Summariser
from selfcompact.entries import FORMAT_VERSION
from selfcompact.errors import SessionFileError, UsageError
from selfcompact.log.blobs import copy_blobs
from selfcompact.log.fork import migrate_session
from selfcompact.log.reading import read_header
from selfcompact.models.protocol import Model
from selfcompact.models.registry import configured_model
from selfcompact.models.scripted import ScriptedModel
from selfcompact.private_files import create_private, open_regular
from selfcompact.settings.load import load_settings
from selfcompact.settings.schema import Settings

SUMMARY_LINES = 80


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--style", help="The summary's style: sections, kimi, handoff, or one of your own.")
@click.option("--instructions", help="What the summary must keep.")
@click.option("--keep-recent", type=click.IntRange(min=0), metavar="TOKENS", help="How much stays word for word.")
@click.option("-m", "--model", help="Who writes the summary, as provider:name.")
@click.option("--offline", is_flag=True, help="Write the summary without a model (the default without --model).")
@click.option("--window", type=click.IntRange(min=1), metavar="TOKENS", help="The context window to plan for.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a copy of FILE with the compaction in it.")
@click.option("--in-place", is_flag=True, help="Append the compaction to FILE itself.")
@click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
@click.option("--full", is_flag=True, help="Show the summary whole.")
def compact(
    file: Path,
    style: str | None,
    instructions: str | None,
    keep_recent: int | None,
    model: str | None,
    offline: bool,
    window: int | None,
    output: Path | None,
    in_place: bool,
    dry_run: bool,
    full: bool,
) -> None:
    """Compact a session FILE and show the new context's size, the summary, and what was kept.

    FILE is never changed unless --in-place is given; without it and without --output the result is only shown.
    """
    if output is not None and in_place:
        raise UsageError("--output and --in-place exclude each other; choose one")
    if offline and model is not None:
        raise UsageError("--offline and --model exclude each other; choose one")
    if output is not None and output.exists():
        raise SessionFileError(output, "already exists; name another file")
    loaded = load_settings(Path()).settings
    wished = {"style": style, "keep_recent_tokens": keep_recent}
    changes = {key: value for key, value in wished.items() if value is not None}
    settings = loaded.compaction.model_copy(update=changes)
    with _current_version(file, in_place=in_place) as source:
        planned = plan_file(source, settings, window=window or loaded.context_window, instructions=instructions)
        _carry_out(
            planned,
            source,
            output or (file if in_place else None),
            None if dry_run else _summariser(model, loaded, offline=offline),
            full=full,
        )


@contextmanager
def _current_version(file: Path, *, in_place: bool) -> Iterator[Path]:
    """The file itself, or, when it is of an older version, a migrated copy that is gone afterwards."""
    if read_header(file).version >= FORMAT_VERSION:
        yield file
        return
    if in_place:
        raise SessionFileError(file, "is of an older version, which is never changed in place; name an --output")
    with tempfile.TemporaryDirectory(prefix="selfcompact-") as folder:
        yield migrate_session(file, Path(folder) / file.name)


def _carry_out(
    file_plan: FilePlan, source: Path, target: Path | None, summariser: Summariser | None, *, full: bool
) -> None:
    """Show the plan; with a summariser also compact, write the result to the target, and show it."""
    console = Console()
    if isinstance(file_plan.planned, Skip):
        console.print(f"nothing to do: {file_plan.planned.reason}")
        return
    _show_plan(console, file_plan, file_plan.planned)
    if summariser is None:
        return
    done = anyio.run(compact_planned, file_plan, file_plan.planned, summariser)
    if target is not None:
        if target != source:
            _copy(source, target)
        append_compaction(target, done)
    _show_done(console, done, target, full=full)


def _copy(source: Path, target: Path) -> None:
    try:
        create_private(target, b"")
        with (
            os.fdopen(open_regular(source, os.O_RDONLY), "rb") as reader,
            os.fdopen(open_regular(target, os.O_WRONLY | os.O_NOFOLLOW), "wb") as writer,
        ):
            shutil.copyfileobj(reader, writer)
        copy_blobs(source, target)
    except OSError as error:
        raise SessionFileError(target, f"cannot be written ({error.strerror}); name another file") from error


def _summariser(model: str | None, settings: Settings, *, offline: bool) -> Summariser:
    """Offline unless a model or an endpoint was named, in the call or in the settings."""

    def named(name: str) -> Model:
        return configured_model(name, settings.models)

    compaction = settings.compaction
    if offline or (model is None and compaction.model is None and compaction.remote_endpoint is None):
        return OfflineSummariser()
    if model is not None:
        return ModelSummariser(named(model))
    # The session's own model is not asked here: a named one or an endpoint is.
    return chosen_summariser(compaction, ScriptedModel([]), other=named)


def _show_plan(console: Console, file_plan: FilePlan, planned: Plan) -> None:
    console.print("[bold]Plan[/bold]")
    console.print(kept_line("context", f"{planned.tokens_before:,} tokens"))
    console.print(kept_line("summarised", f"{len(planned.to_summarise):,} messages"))
    if planned.is_split_turn:
        console.print(kept_line("split turn", f"{len(planned.turn_prefix):,} messages of its beginning"))
    kept = f"{len(planned.kept):,} messages from entry {planned.first_kept_entry_id} on, {planned.kept_tokens:,} tokens"
    if planned.user_messages:
        kept = f"{len(planned.user_messages):,} messages of the user"
    console.print(kept_line("kept", kept))
    console.print(kept_line("expected", f"about {planned.expected_tokens_after:,} tokens afterwards"))
    console.print(kept_line("style", file_plan.settings.style))


def _show_done(console: Console, done: FileCompaction, target: Path | None, *, full: bool) -> None:
    text = done.entry.summary if full else shorten_lines(done.entry.summary, SUMMARY_LINES)
    console.print(Panel(Text(text), title="summary", title_align="left"))
    before = done.plan.tokens_before
    console.print(kept_line("context", f"{before:,} → {done.tokens_after:,} tokens"))
    console.print(kept_line("written by", done.summary.summariser + (" (offline)" if done.summary.offline else "")))
    if done.summary.kept.carried:
        console.print(kept_line("kept verbatim", ", ".join(escape(item) for item in done.summary.kept.carried)))
    console.print(kept_line("modified files", ", ".join(done.plan.files.modified_files) or "–"))
    if done.summary.failure:
        console.print(f"[yellow]the model's summary was not used: {escape(done.summary.failure)}[/yellow]")
    console.print(kept_line("written to", str(target) if target else "nowhere (see --output and --in-place)"))
