"""The names by which users, programs and files speak to us, read off the code and off records of today."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import click
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from host_bridge.wire.protocol import ENV_ENDPOINT, ENV_GENERATION, ENV_KEY
from selfcompact import events
from selfcompact.cli import cli
from selfcompact.codec import camel
from selfcompact.models.registry import PROVIDERS
from selfcompact.session.hooks import CompactionPreparation
from selfcompact.settings.keys import MODELS
from selfcompact.settings.load import ENV_PREFIX
from selfcompact.settings.models import ModelOverrides
from selfcompact.settings.schema import Settings

NO_FIELDS = frozenset({"type", "extra", "always_written"})
"""Of a record's class: what is no field of its JSON form."""

Names = dict[str, list[str]]
"""Groups of names, each sorted. What is in a group may grow and never shrink."""


def settings_keys(model: type[BaseModel] = Settings, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every setting as its dotted key; those of one model under `models.NAME`."""
    for name, field in model.model_fields.items():
        key = (*path, to_camel(name))
        if name == MODELS:
            yield from settings_keys(ModelOverrides, (*key, "NAME"))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings_keys(field.annotation, key)
        else:
            yield ".".join(key)


def environment_name(key: str) -> str:
    """The variable that holds a setting."""
    parts = ("".join(f"_{c}" if c.isupper() else c for c in part) for part in key.split("."))
    return ENV_PREFIX + "__".join(parts).upper()


def names_of_code() -> Names:
    """What can be read off the code: settings, variables, events, commands with their options, what hooks are told."""
    keys = sorted(settings_keys())
    variables = {environment_name(key) for key in keys if not key.startswith(MODELS + ".")}
    keys_of_providers = {name for names in PROVIDERS.values() for name in names}
    return {
        "settings": keys,
        "environment": sorted(variables | keys_of_providers | {ENV_ENDPOINT, ENV_GENERATION, ENV_KEY}),
        "events": sorted(_fields(get_args(events.Event))),
        "commands": sorted(_commands(cli, ())),
        "before_compact": sorted(["event", *(camel(name) for name in CompactionPreparation.__dataclass_fields__)]),
        "after_compact": sorted(
            ["event", *(key.partition(".")[2] for key in _fields([events.CompactionResult]) if "." in key)]
        ),
    }


def _fields(types: Iterable[Any]) -> Iterator[str]:
    for kind in types:
        own = getattr(kind, "type", kind.__name__)
        yield own
        yield from (f"{own}.{camel(name)}" for name in kind.__dataclass_fields__ if name not in NO_FIELDS)


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    here = " ".join(path)
    if path:
        yield here
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (f"{here} {name}".strip() for name in (*parameter.opts, *parameter.secondary_opts))
        else:
            yield f"{here} {(parameter.name or '').upper()}"
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None:
                    yield from _commands(child, (*path, name))


def names_of_records(records: Iterable[Mapping[str, Any]]) -> Names:
    """The keys in session records: of entries by their type, of messages by their role, of what is ours alone."""
    keys: set[str] = set()
    details: set[str] = set()
    custom: set[str] = set()
    for record in records:
        kind = record["type"]
        keys.update(f"{kind}.{key}" for key in record)
        message = record.get("message")
        if isinstance(message, dict):
            keys.update(_nested(message["role"], message))
        if kind == "compaction":
            details.update(record["details"])
            details.update(f"selfcompact.{key}" for key in record["details"]["selfcompact"])
        if kind in ("custom", "custom_message"):
            data = record.get("data")
            custom.add(record["customType"])
            custom.update(f"{record['customType']}.{key}" for key in (data if isinstance(data, dict) else {}))
    return {"records": sorted(keys), "compaction_details": sorted(details), "custom": sorted(custom)}


def _nested(role: str, message: Mapping[str, Any]) -> Iterator[str]:
    for key, value in message.items():
        yield f"{role}.{key}"
        if key in ("usage", "details") and isinstance(value, dict):
            yield from (f"{role}.{key}.{inner}" for inner in value)
        if key == "content" and isinstance(value, list):
            yield from (f"{role}.{block['type']}.{inner}" for block in value for inner in block)
