"""`selfcompact export`, `import`, `migrate`: sessions in and out of other forms."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import click

from selfcompact.convert import FORMS, IMPORTERS, export_session
from selfcompact.errors import SessionFileError
from selfcompact.log.fork import migrate_session
from selfcompact.private_files import create_private
from selfcompact.text.secrets import Redactor, secret_values


@click.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["pi", *sorted(FORMS)]), required=True, help="The form to write.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to.  [default: standard output]")
@click.option("--whole", is_flag=True, help="Every message of the branch, not the live context alone.")
@click.option("--keep-secrets", is_flag=True, help="Leave in what looks like a key or a password.")
def export(file: Path, form: str, output: Path | None, whole: bool, keep_secrets: bool) -> None:
    """Write a session FILE in another form; what that form cannot hold is said on standard error.

    Secrets are taken out, but for the form `pi`, which is the log itself.
    """
    redact = None if keep_secrets else Redactor(secret_values(os.environ))
    made = export_session(file, form, whole=whole, redact=redact)
    if output is None:
        sys.stdout.buffer.write(made.content)
    else:
        try:
            create_private(output, made.content)
        except FileExistsError as error:
            raise SessionFileError(output, "already exists; name another file") from error
        except OSError as error:
            raise SessionFileError(output, f"cannot be written ({error.strerror}); name another place") from error
        click.echo(f"wrote {output}", err=True)
    report_lost(made.lost)


@click.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--from", "form", type=click.Choice(sorted(IMPORTERS)), required=True, help="The form of SOURCE.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The new session file.")
def import_(source: Path, form: str, output: Path) -> None:
    """Make a session file out of a conversation of another program (SOURCE is never changed)."""
    done = IMPORTERS[form](source, output, cwd=Path.cwd())
    click.echo(f"wrote {output}: {done.messages} messages", err=True)
    report_lost(done.lost)


@click.command("migrate")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The new session file.")
def migrate(source: Path, output: Path) -> None:
    """Write a session file of an older version as a new one in the version that is written now."""
    migrate_session(source, output)
    click.echo(f"wrote {output}", err=True)


def report_lost(lost: Counter[str]) -> None:
    """One line for what could not be taken over."""
    items = [f"{count} × {what}" for what, count in sorted(lost.items()) if count]
    if items:
        click.echo(f"not taken over: {', '.join(items)}", err=True)
