"""Who writes a session's summaries, looked up at each compaction.

A session's model can be switched, and the settings file can name another summariser while the session is open. A
summariser that was chosen once at opening would go on asking a model that is no longer the session's, perhaps with a
key that is gone.
"""

from __future__ import annotations

from typing import Protocol

from selfcompact.compaction.summary.choice import chosen_summariser
from selfcompact.compaction.summary.summarisers import OfflineSummariser, Summariser
from selfcompact.errors import UsageError
from selfcompact.models.protocol import Model
from selfcompact.models.registry import configured_model
from selfcompact.models.scripted import ScriptedModel
from selfcompact.settings.schema import Settings


class InForce(Protocol):
    """What a writer asks of its session."""

    @property
    def model(self) -> Model:
        """The model that answers the turns."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""

    def warn(self, sentence: str) -> None:
        """Tell an operator something."""


class SummaryWriter:
    """The summariser in force: the one that was given, else what the settings and the session's model say now.

    Owned by the session; `current` may be asked at any time and never waits. A choice that the settings make
    impossible (a model that cannot be used) is reported once, and the one before stays in force.
    """

    def __init__(
        self,
        given: Summariser | None,
        *,
        policy: InForce,
        cache_key: str,
    ) -> None:
        self._given, self._policy, self._cache_key = given, policy, cache_key
        self._chosen: Summariser | None = None
        self._chosen_for: tuple[object, ...] | None = None

    def current(self) -> Summariser:
        """Who writes the next summary."""
        if self._given is not None:
            return self._given
        model, settings = self._policy.model, self._policy.settings
        compaction = settings.compaction
        asked = (
            model,
            compaction.model,
            compaction.channel,
            compaction.remote_endpoint,
            compaction.remote_token_variable,
        )
        if self._chosen is None or self._chosen_for != asked:
            self._chosen = self._choose(model, settings)
            self._chosen_for = asked
        return self._chosen

    def _choose(self, model: Model, settings: Settings) -> Summariser:
        try:
            return default_summariser(model, settings, cache_key=self._cache_key)
        except UsageError as error:
            if self._chosen is None:
                raise
            self._policy.warn(f"{error}; summaries are written by {self._chosen.name} as before")
            return self._chosen


def default_summariser(model: Model, settings: Settings, *, cache_key: str | None = None) -> Summariser:
    """Who writes the summaries of a session with this model, when nobody was named.

    `cache_key` groups the session's requests at the provider.

    Raises:
        UsageError: the settings name a model that cannot be used.
    """
    compaction = settings.compaction
    named = compaction.model is not None or compaction.remote_endpoint is not None or compaction.channel == "native"
    if isinstance(model, ScriptedModel) and not model.summarises and not named:
        return OfflineSummariser()

    def other(name: str) -> Model:
        return configured_model(name, settings.models)

    return chosen_summariser(compaction, model, other=other, cache_key=cache_key)
