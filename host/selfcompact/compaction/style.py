"""Styles: a family of prompts, an output contract and a rebuild strategy under one name.

The prompts are Markdown files under `styles/<name>/`, read once per process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Literal

from selfcompact.compaction.contract import PREFIX_CONTRACT, SECTIONS_CONTRACT, Contract

Rebuild = Literal["keep-recent", "user-messages"]


@dataclass(frozen=True)
class Style:
    """How summaries are asked for, checked, and put into the history.

    `system` is the same bytes for every request; `first` and `update` end in the format template.
    """

    name: str
    system: str
    first: str
    update: str
    prefix: str
    contract: Contract
    prefix_contract: Contract
    rebuild: Rebuild


@lru_cache
def load_style(name: str) -> Style:
    """A style by its name.

    Raises:
        KeyError: there is no style of that name.
    """
    if name != "sections":
        raise KeyError(name)
    form = prompt(name, "format")
    return Style(
        name=name,
        system=prompt(name, "system"),
        first=f"{prompt(name, 'first')}\n\n{form}",
        update=f"{prompt(name, 'update')}\n\n{form}",
        prefix=prompt(name, "prefix"),
        contract=SECTIONS_CONTRACT,
        prefix_contract=PREFIX_CONTRACT,
        rebuild="keep-recent",
    )


@lru_cache
def prompt(style: str, name: str) -> str:
    """The text of one prompt file."""
    file = resources.files("selfcompact.compaction") / "styles" / style / f"{name}.md"
    return file.read_text(encoding="utf-8").strip()
