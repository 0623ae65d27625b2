"""Writing settings files: one key at a time, checked before anything is written, never half-written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel, to_snake

from selfcompact.errors import SettingsError
from selfcompact.private_files import SETTINGS_BYTES, read_bounded

Edit = Callable[[dict[str, Any], str], None]
"""Changes one key, by name, of the object that holds it."""


def edit_settings(path: Path, key: Sequence[str], edit: Edit, check: Callable[[Mapping[str, Any], str], None]) -> None:
    """Change one key of a settings file. `edit` gets the object that holds it and the name as the file spells it.

    `check` gets the new content and the file's name, and raises when it is not allowed; then nothing is written. The
    file is replaced in one step.

    Raises:
        SettingsError: the file cannot be read or written.
    """
    data = _read(path)
    holder = data
    *parents, last = key
    for name in parents:
        spelled = _spelling(holder, name)
        child = holder.setdefault(spelled, {})
        if not isinstance(child, dict):
            raise SettingsError(str(path), "is not an object in this file; mend it first", key=spelled)
        holder = child
    edit(holder, _spelling(holder, last))
    check(data, str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".json")
    except OSError as error:
        raise SettingsError(str(path), f"cannot be written ({error.strerror})") from error
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(_without_empty(data), indent=2, ensure_ascii=False) + "\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def set_value(value: Any) -> Edit:
    """An edit that sets a value."""

    def edit(holder: dict[str, Any], name: str) -> None:
        holder[name] = value

    return edit


def unset_value(holder: dict[str, Any], name: str) -> None:
    """An edit that takes a key away; it need not be there."""
    holder.pop(name, None)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_bounded(path, SETTINGS_BYTES).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(str(path), f"cannot be read ({error}); mend or remove it") from error
    if not isinstance(data, dict):
        raise SettingsError(str(path), "should hold one JSON object")
    return data


def _spelling(holder: Mapping[str, Any], name: str) -> str:
    """The key as this object spells it already, else in camelCase."""
    return next((key for key in holder if name in (key, to_snake(key))), _camel(name))


def _camel(name: str) -> str:
    """A field's name in camelCase; the name of a model, which is not an identifier, as it is."""
    return to_camel(name) if name.isidentifier() else name


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value != {}}
