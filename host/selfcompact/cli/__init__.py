"""The command line. Nothing else in the package imports it.

Exit codes: 0 done, 1 the run failed, 2 wrong use or wrong input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys

import click

from selfcompact.cli.chat import chat
from selfcompact.cli.compact import compact
from selfcompact.cli.convert import export, import_, migrate
from selfcompact.cli.demo import demo
from selfcompact.cli.run import run
from selfcompact.cli.sandbox import doctor, sandbox
from selfcompact.cli.sessions import inspect, search, sessions
from selfcompact.cli.settings import settings
from selfcompact.cli.skill import skill
from selfcompact.errors import SelfcompactError, UsageError

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="selfcompact", message="%(prog)s %(version)s")
def cli() -> None:
    """An agent with a persistent, sandboxed IPython kernel that can have its own context compacted.

    Try `selfcompact demo` first; it needs no model and no key.
    """


COMMANDS = (
    chat,
    compact,
    demo,
    doctor,
    export,
    import_,
    inspect,
    migrate,
    run,
    sandbox,
    search,
    sessions,
    settings,
    skill,
)

for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Run the command line and exit with its code; no error a user can cause ends in a traceback."""
    try:
        code = cli(standalone_mode=False)
    except click.exceptions.Abort:
        code = EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = EXIT_USAGE
    except UsageError as error:
        click.echo(f"selfcompact: {error}", err=True)
        code = EXIT_USAGE
    except SelfcompactError as error:
        click.echo(f"selfcompact: {error}", err=True)
        code = EXIT_FAILED
    except KeyboardInterrupt:
        click.echo("selfcompact: interrupted", err=True)
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_FAILED
    sys.exit(code if isinstance(code, int) else 0)
