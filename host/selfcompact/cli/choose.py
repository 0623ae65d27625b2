"""Which model a command works with: the options, then the settings; and what to do when there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from selfcompact.errors import UsageError
from selfcompact.models.protocol import Model
from selfcompact.models.registry import configured_model, keys_found
from selfcompact.models.script_file import load_script
from selfcompact.settings.models import ModelOverrides
from selfcompact.settings.schema import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

HOW_TO_CHOOSE = """no model is chosen
  choose one     -m PROVIDER:NAME, as in -m anthropic:claude-sonnet-4-5 or -m openai:gpt-5
  for good       selfcompact settings set --user model PROVIDER:NAME
  a local server -m ollama:NAME, or -m local:NAME --base-url http://localhost:8080/v1
  keys found     {keys}
  without one    selfcompact demo, or --script FILE, which plays the responses of a file"""

NO_KEYS = "none; a provider's key stands in a variable like OPENAI_API_KEY or ANTHROPIC_API_KEY"


@dataclass(frozen=True)
class ModelChoice:
    """What the options of a command say about the model; None where they say nothing."""

    name: str | None = None
    script: Path | None = None
    overrides: ModelOverrides = ModelOverrides()

    def model(self, settings: Settings) -> Model:
        """The model that is asked for.

        Raises:
            UsageError: none is chosen, it cannot be used, or nobody knows its context window.
        """
        if self.script is not None:
            return load_script(self.script)
        name = self.name or settings.model
        if name is None:
            found = ", ".join(dict.fromkeys(keys_found().values()))
            raise UsageError(HOW_TO_CHOOSE.format(keys=found or NO_KEYS))
        model = configured_model(name, settings.models, explicit=self.overrides, ask_server=True)
        if model.context_window is None and settings.context_window is None:
            raise UsageError(
                f"model {name}: nobody knows its context window; name it with --context-window TOKENS, or for good "
                f"with: selfcompact settings set --user models.{name}.contextWindow TOKENS"
            )
        return model


def model_options(command: Command) -> Command:
    """The options of a command that needs a model; `choice_of` reads them."""
    for option in reversed(
        (
            click.option("-m", "--model", "model_name", metavar="PROVIDER:NAME", help="The model, as openai:gpt-5."),
            click.option("--base-url", metavar="URL", help="The address of an OpenAI- or Anthropic-compatible server."),
            click.option("--key-variable", metavar="NAME", help="The environment variable that holds the key."),
            click.option(
                "--context-window",
                type=click.IntRange(min=1),
                metavar="TOKENS",
                help="The model's context window, where it is not known or known wrongly.",
            ),
            click.option(
                "--script",
                type=click.Path(path_type=Path),
                help="Play the responses of a script file instead of a model.",
            ),
        )
    ):
        command = option(command)
    return command


def session_options(command: Command) -> Command:
    """The options of a command that opens a session, those of its model included."""
    for option in reversed(
        (
            click.option(
                "--workspace",
                type=click.Path(path_type=Path),
                default=Path(),
                help="The directory the agent works in.  [default: the current one]",
            ),
            click.option(
                "--session",
                "session_file",
                type=click.Path(path_type=Path),
                help="The session file: made when missing, continued when there.",
            ),
            click.option(
                "--set",
                "overrides",
                multiple=True,
                metavar="KEY=VALUE",
                help="A setting, as compaction.keepRecentTokens=2000.",
            ),
            click.option(
                "--sandbox",
                type=click.Choice(["bwrap", "none"]),
                help="The sandbox of the kernel: bubblewrap, or none at all.",
            ),
        )
    ):
        command = option(command)
    return model_options(command)


def choice_of(
    model_name: str | None,
    base_url: str | None,
    key_variable: str | None,
    context_window: int | None,
    script: Path | None,
) -> ModelChoice:
    """The options as one value.

    Raises:
        UsageError: they contradict one another.
    """
    overrides = ModelOverrides(base_url=base_url, key_variable=key_variable, context_window=context_window)
    if script is not None and (model_name is not None or overrides != ModelOverrides()):
        raise UsageError("--script plays a file instead of a model; leave out the options that choose one")
    return ModelChoice(model_name, script, overrides)
