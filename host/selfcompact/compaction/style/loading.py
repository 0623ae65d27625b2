"""Styles: a family of prompts, an output contract and a rebuild strategy under one name.

A style is a folder: `style.toml` and Markdown files. Those that come with the package stand under `styles/`; a folder
on the settings' path adds one, or takes the place of one of the same name. Everything is read once per process.

```toml
form = "sections"             # or "handoff", "kimi"; or headings of one's own:
headings = ["Goal", "State"]
required = ["Goal"]
rebuild = "keep-recent"       # or "user-messages"
instructionsFirst = false     # custom instructions above the prompt's own text instead of below
outputTokens = 32000          # a limit of the style's own, beside those of the budget
```

Files: `first.md` (what to do), `update.md` (the same with a previous summary; `first.md` when missing), `format.md`
(the form), `system.md` and `prefix.md` (those of `sections` when missing).
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from selfcompact.compaction.style import forms
from selfcompact.compaction.style.contract import Contract
from selfcompact.compaction.style.forms import Form
from selfcompact.errors import SettingsError
from selfcompact.private_files import read_bounded
from selfcompact.settings.compaction import CompactionSettings

Rebuild = Literal["keep-recent", "user-messages"]

BUILT_IN = ("sections", "kimi", "handoff")
"""The styles that come with the package."""


PROMPT_BYTES = 1024 * 1024
"""The largest file of a style, or of an instruction text; one has a few thousand bytes."""


class _Described(BaseModel):
    """A `style.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    form: Literal["sections", "handoff", "kimi"] | None = None
    headings: Annotated[tuple[str, ...], Field(max_length=30)] = ()
    required: tuple[str, ...] = ()
    rebuild: Rebuild = "keep-recent"
    instructions_first: bool = False
    output_tokens: Annotated[int, Field(ge=1)] | None = None
    warns_of_many: bool = False


@dataclass(frozen=True)
class Style:
    """How summaries are asked for, checked, and put into the history.

    `system` is the same bytes for every request. `first` and `update` say what to do, `format` is the form that
    follows them. `output_tokens` limits one answer beside the budget's own limits. `warns_of_many`: from the second
    compaction on the user is told that many of them cost accuracy.
    """

    name: str
    system: str
    first: str
    update: str
    format: str
    prefix: str
    form: Form
    prefix_form: Form
    rebuild: Rebuild
    instructions_first: bool = False
    output_tokens: int | None = None
    warns_of_many: bool = False


def style_of(settings: CompactionSettings) -> Style:
    """The style that settings choose, with their overrides of its instruction text. Form and safety stay.

    Raises:
        SettingsError: there is no such style, or a file of it or of the overrides cannot be read; with the path.
    """
    style = load_style(settings.style, settings.style_folders)
    text = settings.prompt
    if settings.prompt_file is not None:
        text = _override(settings.prompt_file)
    return style if text is None else replace(style, first=text.strip(), update=text.strip())


@lru_cache
def load_style(name: str, folders: tuple[str, ...] = ()) -> Style:
    """A style by its name.

    Raises:
        SettingsError: there is no style of that name, or one of its files is missing or wrong.
    """
    for folder in folders:
        found = Path(folder).expanduser() / name
        if (found / "style.toml").is_file():
            return _read(name, found)
    if name not in BUILT_IN:
        known = ", ".join(BUILT_IN)
        where = f" or a folder of that name in {', '.join(folders)}" if folders else ""
        raise SettingsError(
            "settings", f"there is no style {name!r}; choose one of {known}{where}", key="compaction.style"
        )
    return _read(name, _package(name))


@lru_cache
def prompt(folder: str, name: str) -> str:
    """The text of one prompt file of the package."""
    return (_package(folder) / f"{name}.md").read_text(encoding="utf-8").strip()


def _package(folder: str) -> Traversable:
    return resources.files("selfcompact.compaction.style") / "styles" / folder


def _read(name: str, folder: Traversable) -> Style:
    described = _described(folder)
    first = _text(folder, "first")
    return Style(
        name=name,
        system=_text(folder, "system", prompt("sections", "system")),
        first=first,
        update=_text(folder, "update", first),
        format=_text(folder, "format"),
        prefix=_text(folder, "prefix", prompt("sections", "prefix")),
        form=_form(described),
        prefix_form=forms.PREFIX,
        rebuild=described.rebuild,
        instructions_first=described.instructions_first,
        output_tokens=described.output_tokens,
        warns_of_many=described.warns_of_many,
    )


def _described(folder: Traversable) -> _Described:
    file = folder / "style.toml"
    try:
        return _Described.model_validate(tomllib.loads(_content(file)))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(str(file), f"cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise SettingsError(str(file), first["msg"], key=key) from error


def _content(file: Traversable) -> str:
    """The text of a file of the package, or of a folder that may hold anything: regular and bounded, else OSError."""
    if isinstance(file, Path):
        return read_bounded(file, PROMPT_BYTES).decode("utf-8")
    return file.read_text(encoding="utf-8")


def _form(described: _Described) -> Form:
    if described.headings:
        required = frozenset(described.required) & set(described.headings)
        return forms.SectionsForm(Contract(headings=described.headings, required=required))
    return forms.FORMS[described.form or "sections"]


def _text(folder: Traversable, name: str, default: str | None = None) -> str:
    file = folder / f"{name}.md"
    if default is not None and not (os.path.lexists(file) if isinstance(file, Path) else file.is_file()):
        return default
    try:
        return _content(file).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(file), f"cannot be read: {error}") from error


@lru_cache
def _override(path: str) -> str:
    file = Path(path).expanduser()
    try:
        return _content(file)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(file), f"cannot be read: {error}", key="compaction.promptFile") from error
