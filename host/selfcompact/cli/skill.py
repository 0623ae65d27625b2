"""`selfcompact skill`: the skill as other hosts install it."""

from __future__ import annotations

from pathlib import Path

import click

from selfcompact.skills import export_skill, skill_text


@click.group()
def skill() -> None:
    """The `compact` skill: print it, or export it for another host."""


@skill.command("show")
def show() -> None:
    """Print SKILL.md."""
    click.echo(skill_text(), nl=False)


@skill.command("export")
@click.argument("directory", type=click.Path(path_type=Path))
def export(directory: Path) -> None:
    """Write the skill as a folder `compact` in DIRECTORY.

    The folder holds SKILL.md, pyproject.toml and src/compact, the form that hosts of Python-backed skills install.
    """
    click.echo(f"wrote {export_skill(directory)}")
