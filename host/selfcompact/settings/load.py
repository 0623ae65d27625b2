"""All settings as one frozen value, read from every place that may hold some.

Strongest first: the command line (`--set`), the environment (`SELFCOMPACT_COMPACTION__RESERVE_TOKENS`), the
project's `.selfcompact/settings.json`, the user's `settings.json`, then the `compaction` object of
`.prime/agent/settings.json` in the project and in the home directory, then the defaults. Objects merge key by key.
Keys may be camelCase or snake_case.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import ValidationError
from pydantic.alias_generators import to_camel, to_snake

from selfcompact.errors import SettingsError
from selfcompact.private_files import SETTINGS_BYTES, read_beneath, read_bounded
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.settings.keys import MODELS, check_known, leaves, parse_value, shown, split_key
from selfcompact.settings.models import ModelOverrides
from selfcompact.settings.schema import Settings
from selfcompact.workspace import checked_workspace

ENV_PREFIX = "SELFCOMPACT_"
PROJECT_FILE = Path(".selfcompact/settings.json")
PRIME_FILE = Path(".prime/agent/settings.json")
"""Operators of the system that defined these compaction settings keep them here; no second copy is needed."""


_LIMITS = frozenset({"reserve_tokens", "keep_recent_tokens"})
_SWITCHES = frozenset({"enabled", "agent_callable"})
"""What is taken from that file in a workspace, where cells can write it: two limits, and two switches that can be set
off there. A path, a command, an address, a model or a style from there would be the cell's. Our own file is kept from
cells."""


@dataclass(frozen=True)
class LoadedSettings:
    """Settings, and for every key that is not a default (`compaction.reserve_tokens`) where it came from.

    `project_file` is watched by sessions; `reload` reads all sources again, with the same options.
    """

    settings: Settings
    origins: Mapping[str, str] = field(default_factory=dict)
    project_file: Path | None = None
    reload: Callable[[], LoadedSettings] | None = None


@dataclass(frozen=True)
class _Layer:
    where: str
    values: Mapping[str, Any]


def user_settings_file() -> Path:
    """The user's own settings file, whether or not it is there."""
    return Path(platformdirs.user_config_dir("selfcompact")) / "settings.json"


def load_settings(
    workspace: Path,
    *,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    user_file: Path | None = None,
    home: Path | None = None,
) -> LoadedSettings:
    """Read and merge all sources. `overrides` are `key=value` texts, later ones win.

    Raises:
        WorkspaceError: the workspace does not exist or is not a directory.
        SettingsError: a file cannot be read, a key is not known, or a value is not allowed; it names the source.
    """
    workspace = checked_workspace(workspace)
    env = os.environ if env is None else env
    home = home or Path.home()
    layers = [
        _prime_layer(home / PRIME_FILE),
        _prime_layer(workspace / PRIME_FILE, beneath=workspace),
        _file_layer(user_file or user_settings_file()),
        _file_layer(workspace / PROJECT_FILE, beneath=workspace),
        *_environment_layers(env),
        *(_override_layer(text) for text in overrides),
    ]
    again = partial(load_settings, workspace, overrides=overrides, env=env, user_file=user_file, home=home)
    return replace(_merged(layers), project_file=workspace / PROJECT_FILE, reload=again)


def _merged(layers: Sequence[_Layer]) -> LoadedSettings:
    """Merge layers, weakest first, and check the result."""
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for path, value in leaves(layer.values, Settings):
            check_known(path, layer.where)
            if len(path) == 2 and path[0] == MODELS:
                fields = ", ".join(sorted(to_camel(name) for name in ModelOverrides.model_fields))
                raise SettingsError(layer.where, f"should be an object with some of {fields}", key=shown(path))
            _put(merged, path, value)
            origins[".".join(path)] = layer.where
    try:
        return LoadedSettings(Settings.model_validate(merged), origins)
    except ValidationError as error:
        raise _settings_error(error, origins) from error


def _put(merged: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        merged = merged.setdefault(name, {})
    merged[path[-1]] = value


def _settings_error(error: ValidationError, origins: Mapping[str, str]) -> SettingsError:
    first = error.errors()[0]
    named = first["loc"][:1] == (MODELS,)
    names = [str(part) if named and depth == 1 else to_snake(str(part)) for depth, part in enumerate(first["loc"])]
    for length in range(len(names), 0, -1):
        where = origins.get(".".join(names[:length]))
        if where:
            return SettingsError(
                where,
                f"{first['msg'].lower()}, not {json.dumps(first['input'], default=str)}",
                key=shown(names[:length]),
            )
    return SettingsError("settings", first["msg"].lower(), key=shown(names))


def check_settings(values: Mapping[str, Any], where: str) -> None:
    """Check the content of a settings file by itself.

    Raises:
        SettingsError: it has a key that is not known or a value that is not allowed.
    """
    _merged([_Layer(where, values)])


def _read_json(path: Path, beneath: Path | None = None) -> Mapping[str, Any]:
    """The object in a file; `beneath` is a workspace, in which no link may lead to it."""
    try:
        if beneath is None:
            text = read_bounded(path, SETTINGS_BYTES).decode("utf-8")
        else:
            text = read_beneath(beneath, path.relative_to(beneath), SETTINGS_BYTES).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        why = "a symbolic link leads to it" if error.errno == errno.ELOOP else error.strerror
        raise SettingsError(str(path), f"cannot be read ({why}); mend or remove it") from error
    except UnicodeDecodeError as error:
        raise SettingsError(str(path), f"cannot be read ({error}); mend or remove it") from error
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(str(path), f"is not JSON ({error}); mend or remove it") from error
    if not isinstance(data, dict):
        raise SettingsError(str(path), "should hold one JSON object")
    return data


def _file_layer(path: Path, beneath: Path | None = None) -> _Layer:
    return _Layer(str(path), _read_json(path, beneath))


def _prime_layer(path: Path, beneath: Path | None = None) -> _Layer:
    """Only the keys of its `compaction` object that we share: the rest of that file belongs to another program.

    Of the one in a workspace, `beneath`, only what a cell may set.
    """
    compaction = _read_json(path, beneath).get("compaction")
    if not isinstance(compaction, dict):
        return _Layer(str(path), {})
    known = {key: value for key, value in compaction.items() if to_snake(key) in CompactionSettings.model_fields}
    if beneath is not None:
        known = {key: value for key, value in known.items() if _cell_may_set(to_snake(key), value)}
    return _Layer(str(path), {"compaction": known})


def _cell_may_set(key: str, value: object) -> bool:
    return key in _LIMITS or (key in _SWITCHES and value is False)


def _environment_layers(env: Mapping[str, str]) -> Iterator[_Layer]:
    for name in sorted(env):
        if name.startswith(ENV_PREFIX):
            keys = name.removeprefix(ENV_PREFIX).lower().split("__")
            yield _Layer(f"environment variable {name}", _nested(keys, env[name]))


def _override_layer(text: str) -> _Layer:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"--set {text}", "should look like key=value, as in compaction.keepRecentTokens=2000")
    return _Layer("--set", _nested(split_key(key.strip()), value))


def _nested(keys: Sequence[str], text: str) -> dict[str, Any]:
    """One setting given as text, in the objects its key names."""
    nested: dict[str, Any] = {keys[-1]: parse_value(text)}
    for key in reversed(keys[:-1]):
        nested = {key: nested}
    return nested
