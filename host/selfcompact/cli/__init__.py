"""The command line. Nothing else in the package imports it.

Exit codes: 0 done, 1 the run failed, 2 wrong use or wrong input, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from selfcompact import __version__
from selfcompact.cli.ending import ended_by, treat_as_interrupts
from selfcompact.errors import SelfcompactError, UsageError

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130

COMMANDS = {
    "chat": ("chat:chat", "Talk with the agent."),
    "compact": (
        "compact:compact",
        "Compact a session FILE and show the new context's size, the summary, and what was kept.",
    ),
    "demo": ("demo:demo", "Watch a scripted agent audit the standard library, and compact itself on the way."),
    "doctor": ("sandbox:doctor", "Say whether this machine can run sandboxed kernels, and what to do when it cannot."),
    "export": (
        "convert:export",
        "Write a session FILE in another form; what that form cannot hold is said on standard error.",
    ),
    "import": (
        "convert:import_",
        "Make a session file out of a conversation of another program (SOURCE is never changed).",
    ),
    "inspect": (
        "sessions:inspect",
        "Show what a session FILE holds: models, turns, compactions, the live context, files touched.",
    ),
    "migrate": (
        "convert:migrate",
        "Write a session file of an older version as a new one in the version that is written now.",
    ),
    "move": ("move:move", "Move a session FILE, with its images and variables, to where no cell can write."),
    "run": ("run:run", "Give the agent a TASK and show its work until it is done."),
    "sandbox": (
        "sandbox:sandbox",
        "Show what a cell can read, write, reach and use, each line tried from inside just now.",
    ),
    "search": (
        "sessions:search",
        "Find QUERY in everything that was ever said in a session FILE, the summarised parts included.",
    ),
    "sessions": ("sessions:sessions", "List the sessions of this workspace, newest first, with size, tokens and name."),
    "settings": (
        "settings:settings",
        "List every setting with its value and where it came from; `set` and `unset` change one.",
    ),
    "skill": ("skill:skill", "The `compact` skill: print it, or export it for another host."),
}
"""Where each command is, and the first sentence of its help. A command's module is imported when the command is used:
a list of commands would otherwise cost what all of them need together."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the library's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(f"selfcompact.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """An agent with a persistent, sandboxed IPython kernel that can have its own context compacted.

    Try `selfcompact demo` first; it needs no model and no key.
    """


def main() -> None:
    """Run the command line and exit with its code; no error a user can cause ends in a traceback."""
    treat_as_interrupts()
    try:
        code = cli(standalone_mode=False)
    except SystemExit as ended:
        code = ended.code
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
    by = ended_by()
    sys.exit(128 + by if by is not None else code if isinstance(code, int) else 0)
