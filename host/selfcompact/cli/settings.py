"""`selfcompact settings`: every setting, its value, and where it came from; setting and unsetting one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.table import Column, Table

from selfcompact.settings.edit import Edit, edit_settings, set_value, unset_value
from selfcompact.settings.keys import known_key, parse_value, split_key
from selfcompact.settings.load import (
    PROJECT_FILE,
    LoadedSettings,
    check_settings,
    load_settings,
    user_settings_file,
)
from selfcompact.settings.timing import applies

DEFAULT = "default"


@click.group(invoke_without_command=True)
@click.option(
    "--workspace",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Whose project file counts.  [default: the current directory]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: each key with `value`, `origin` and `applies`.")
@click.pass_context
def settings(context: click.Context, workspace: Path, as_json: bool) -> None:
    """List every setting with its value and where it came from; `set` and `unset` change one."""
    context.obj = workspace
    if context.invoked_subcommand is not None:
        return
    rows = list(setting_rows(load_settings(workspace)))
    if as_json:
        shown = {
            key: {"value": value, "origin": origin, "applies": applies(split_key(key))} for key, value, origin in rows
        }
        click.echo(json.dumps(shown, indent=2))
        return
    source = Column("from", overflow="fold")
    table = Table("setting", "value", "applies", source, box=None, pad_edge=False, header_style="bold")
    for key, value, origin in rows:
        style = "dim" if origin == DEFAULT else ""
        table.add_row(key, json.dumps(value), applies(split_key(key)), origin, style=style)
    Console().print(table)


@settings.command("set")
@click.argument("key")
@click.argument("value")
@click.option("--user", is_flag=True, help="In your own settings file instead of the project's.")
@click.pass_obj
def set_(workspace: Path, key: str, value: str, user: bool) -> None:
    """Set KEY to VALUE (JSON, or plain text) in the project's settings file.

    The value is checked first; a file with a wrong value is never written.
    """
    _edit(workspace, key, set_value(parse_value(value)), user=user)
    click.echo(f"{key} = {json.dumps(parse_value(value))} in {_file(workspace, user=user)}")


@settings.command("unset")
@click.argument("key")
@click.option("--user", is_flag=True, help="In your own settings file instead of the project's.")
@click.pass_obj
def unset(workspace: Path, key: str, user: bool) -> None:
    """Take KEY out of the project's settings file."""
    _edit(workspace, key, unset_value, user=user)
    click.echo(f"{key} is not set in {_file(workspace, user=user)}")


def _file(workspace: Path, *, user: bool) -> Path:
    return user_settings_file() if user else workspace / PROJECT_FILE


def _edit(workspace: Path, key: str, edit: Edit, *, user: bool) -> None:
    known_key(key)
    edit_settings(_file(workspace, user=user), split_key(key), edit, check_settings)


def setting_rows(loaded: LoadedSettings) -> Iterator[tuple[str, Any, str]]:
    """Every setting as key, value and where it came from."""
    for path, value in _leaves(loaded.settings):
        origin = loaded.origins.get(".".join(path), DEFAULT)
        yield ".".join(to_camel(name) if name.isidentifier() else name for name in path), value, origin


def _leaves(model: BaseModel, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    plain = model.model_dump(mode="json", by_alias=True)
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, (*path, name))
        elif isinstance(value, Mapping) and all(isinstance(item, BaseModel) for item in value.values()):
            for key, item in value.items():
                set_only = ((leaf, found) for leaf, found in _leaves(item, (*path, name, key)) if found is not None)
                yield from set_only
        else:
            yield (*path, name), plain[to_camel(name)]
