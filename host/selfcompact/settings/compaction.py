"""What an operator may set about compaction, with the reason for each default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool
from pydantic.alias_generators import to_camel

from selfcompact.errors import SettingsError

RESERVE_TOKENS = 16_384
"""Left free for the answer and the summary's request; the default of the systems that share these settings."""

KEEP_RECENT_TOKENS = 20_000
"""Kept word for word after a compaction; the same source."""

SMALL_WINDOW_RESERVE_SHARE = 0.15
"""Of a window that the default reserve does not fit into; the least that planning leaves free."""

Tokens = Annotated[int, Field(ge=1)]
Percent = Annotated[float, Field(gt=0, lt=100)]


class HookCommand(BaseModel):
    """A command that is run round a compaction, on the host, without a shell."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    """Program and arguments."""

    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds until it is ended; a command may have to start an interpreter or ask a service."""

    on_failure: Literal["veto", "go-on"] = "veto"
    """What it means before a compaction that the command cannot be run, is too slow, or breaks. A command that is there
    to stop compactions must not be got around by breaking it."""


class HookSettings(BaseModel):
    """The commands, in the order they run."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    before_compact: tuple[HookCommand, ...] = ()
    after_compact: tuple[HookCommand, ...] = ()


class CompactionSettings(BaseModel):
    """The `compaction` object of a settings file. Keys are camelCase in files, snake_case in Python."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    enabled: StrictBool = True
    """Whether compaction happens by itself at the threshold. Requested and manual ones do not ask this."""

    reserve_tokens: Tokens = RESERVE_TOKENS
    """Threshold compaction fires when the context passes window - reserve."""

    keep_recent_tokens: Annotated[int, Field(ge=0)] = KEEP_RECENT_TOKENS
    """How much of the newest history stays word for word."""

    agent_callable: StrictBool = True
    """Whether the agent may compact itself from a cell."""

    agent_floor_percent: Annotated[float, Field(ge=0, lt=100)] = 0.0
    """Below this share of the window a request from a cell is refused; 0 switches the floor off."""

    threshold_percent: Percent | None = None
    """Fire at this share of the window instead of window - reserve."""

    threshold_tokens: Tokens | None = None
    """Fire at this many tokens; wins over the percentage; clamped to [1, window - 1]."""

    style: Annotated[str, Field(min_length=1)] = "sections"
    """The prompt family, output contract and rebuild strategy."""

    style_folders: tuple[str, ...] = ()
    """Folders with styles of your own, each a folder of the style's name (see docs/styles.md)."""

    prompt: str | None = None
    """Replaces the style's instruction text; form and safety stay."""

    prompt_file: str | None = None
    """The same out of a file; wins over `prompt`."""

    model: str | None = None
    """The summariser's own model; None: the session's model."""

    channel: Literal["model", "native"] = "model"
    """`native`: the summary is written by the provider's own compaction, where that gives a text (Anthropic)."""

    remote_endpoint: str | None = None
    """An address that writes summaries (see docs/summaries.md); None: a model is asked."""

    remote_token_variable: str | None = None
    """The environment variable with the bearer token for that address."""

    offline_fallback: StrictBool = True
    """Whether the offline summariser steps in when the model's summary fails twice."""

    background: StrictBool = True
    """Whether a summary is begun as soon as a compaction is asked for, so that the turn boundary need not wait."""

    max_attempts_in_a_row: Literal[1, 2] = 2
    """Compactions without one successful response of the model between them, before the run stops."""

    max_compactions: Annotated[int, Field(ge=1)] | None = None
    """Compactions of one session, manual ones not limited; None: no cap."""

    hooks: HookSettings = HookSettings()
    """Commands that are told before a compaction, and may stop it or write the summary, and after it."""


def settings_for_window(settings: CompactionSettings, window: int | None) -> CompactionSettings:
    """The settings as they hold for a window. A default reserve that does not fit into it becomes 15 % of it.

    Raises:
        SettingsError: the reserve was chosen, and is as large as the window or larger.
    """
    if window is None or settings.reserve_tokens < window:
        return settings
    if "reserve_tokens" in settings.model_fields_set:
        raise SettingsError(
            "settings",
            f"{settings.reserve_tokens:,} leaves nothing of a context window of {window:,} tokens; choose less",
            key="compaction.reserveTokens",
        )
    fitting = max(1, int(window * SMALL_WINDOW_RESERVE_SHARE))
    return settings.model_copy(update={"reserve_tokens": fitting})
