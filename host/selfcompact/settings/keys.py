"""Dotted keys of settings: `compaction.reserveTokens` as a path of names, and which of them are settings."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel, to_snake

from selfcompact.errors import SettingsError
from selfcompact.settings.models import ModelOverrides
from selfcompact.settings.schema import Settings

MODELS = "models"
"""The one object whose keys are names that users choose."""


def split_key(key: str) -> list[str]:
    """A dotted key as a path in snake_case. The name of a model may have dots itself and stays as it is."""
    first, *rest = key.split(".")
    if to_snake(first) != MODELS or not rest:
        return [to_snake(part) for part in (first, *rest)]
    if len(rest) > 1 and to_snake(rest[-1]) in ModelOverrides.model_fields:
        return [MODELS, ".".join(rest[:-1]), to_snake(rest[-1])]
    return [MODELS, ".".join(rest)]


def check_known(path: Sequence[str], where: str) -> None:
    model: type[BaseModel] | None = Settings
    for depth, name in enumerate(path):
        if depth == 1 and path[0] == MODELS:
            model = ModelOverrides
            continue
        if model is None or name not in model.model_fields:
            known = sorted(to_camel(field) for field in model.model_fields) if model else []
            close = difflib.get_close_matches(to_camel(name), known, 1)
            hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known) or 'nothing'}"
            raise SettingsError(where, f"is not a setting; {hint}", key=shown(path[: depth + 1]))
        model = _submodel(model, name)


def leaves(
    values: Mapping[str, Any], model: type[BaseModel] | None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every setting of a nested object with its path in snake_case; values of leaf fields stay whole."""
    for key, value in values.items():
        name = str(key) if model is None else to_snake(str(key))
        if model is Settings and name == MODELS and isinstance(value, Mapping):
            for model_name, overrides in value.items():
                if isinstance(overrides, Mapping):
                    yield from leaves(overrides, ModelOverrides, (*path, name, str(model_name)))
                else:
                    yield (*path, name, str(model_name)), overrides
            continue
        child = _submodel(model, name)
        if child is not None and isinstance(value, Mapping):
            yield from leaves(value, child, (*path, name))
        else:
            yield (*path, name), value


def _submodel(model: type[BaseModel] | None, name: str) -> type[BaseModel] | None:
    if model is None or name not in model.model_fields:
        return None
    annotation = model.model_fields[name].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def shown(path: Sequence[str | int]) -> str:
    named = tuple(path[:1]) == (MODELS,)
    return ".".join(str(name) if named and depth == 1 else to_camel(str(name)) for depth, name in enumerate(path))


def known_key(key: str) -> None:
    """Check that a dotted key is a setting.

    Raises:
        SettingsError: it is not; the error names what is.
    """
    path = split_key(key)
    check_known(path, "settings")
    if _model_at(path) is not None:
        raise SettingsError("settings", "is a group of settings; name one in it", key=key)


def parse_value(text: str) -> Any:
    """A setting given as text: JSON where it is JSON, plain text otherwise."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _model_at(path: Sequence[str]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Settings
    for name in path:
        model = _submodel(model, name)
    return model
