"""`selfcompact move`: bring a session file out of a place where cells can write."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import click

from selfcompact.errors import SessionFileError
from selfcompact.log.blobs import copy_blobs, remove_blobs
from selfcompact.log.reading import read_header
from selfcompact.private_files import create_private, make_private_folder, open_regular
from selfcompact.workspace import sessions_folder


@click.command("move")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to.  [default: this workspace's sessions]")
def move(file: Path, output: Path | None) -> None:
    """Move a session FILE, with its images and variables, to where no cell can write.

    Nothing that a link leads to is taken along, and nothing is checked: who could write it before may have.
    """
    read_header(file)
    target = output if output is not None else sessions_folder(Path.cwd()) / file.name
    try:
        make_private_folder(target.parent)
        _copy(file, target)
        copy_blobs(file, target)
        with contextlib.suppress(FileNotFoundError):
            _copy(_beside(file, "variables"), _beside(target, "variables"))
    except FileExistsError as error:
        raise SessionFileError(target, "already exists; name another file with -o") from error
    except OSError as error:
        raise SessionFileError(target, f"cannot be written ({error.strerror or error}); {file} is as it was") from error
    for left in (file, _beside(file, "variables"), _beside(file, "index.sqlite")):
        left.unlink(missing_ok=True)
    remove_blobs(file)
    click.echo(f"moved {file} to {target}")
    click.echo(
        "Where it lay, cells could write it. Look at what it says before you go on: selfcompact inspect --tree",
        err=True,
    )


def _beside(file: Path, what: str) -> Path:
    return file.with_name(f"{file.name}.{what}")


def _copy(source: Path, target: Path) -> None:
    with os.fdopen(open_regular(source, os.O_RDONLY | os.O_NOFOLLOW), "rb") as reader:
        create_private(target, b"")
        with os.fdopen(open_regular(target, os.O_WRONLY | os.O_NOFOLLOW), "wb") as writer:
            shutil.copyfileobj(reader, writer)
            writer.flush()
            os.fsync(writer.fileno())
