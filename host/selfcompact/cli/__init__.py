"""The command line. Nothing else in the package imports it.

Exit codes: 0 done, 1 the run failed, 2 wrong use or wrong input, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from selfcompact.errors import SelfcompactError, UsageError

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130

COMMANDS = {
    "chat": "chat:chat",
    "compact": "compact:compact",
    "demo": "demo:demo",
    "doctor": "sandbox:doctor",
    "export": "convert:export",
    "import": "convert:import_",
    "inspect": "sessions:inspect",
    "migrate": "convert:migrate",
    "run": "run:run",
    "sandbox": "sandbox:sandbox",
    "search": "sessions:search",
    "sessions": "sessions:sessions",
    "settings": "settings:settings",
    "skill": "skill:skill",
}
"""Where each command is. A command's module is imported when the command is used: a chat's terminal library would
otherwise cost every other command its start."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the library's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(f"selfcompact.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="selfcompact", message="%(prog)s %(version)s")
def cli() -> None:
    """An agent with a persistent, sandboxed IPython kernel that can have its own context compacted.

    Try `selfcompact demo` first; it needs no model and no key.
    """


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
