"""Which of the channels writes a session's summaries."""

from __future__ import annotations

from collections.abc import Callable

from selfcompact.compaction.summary.summarisers import ModelSummariser, Summariser
from selfcompact.models.protocol import Model
from selfcompact.settings.compaction import CompactionSettings


def chosen_summariser(
    settings: CompactionSettings, model: Model, *, other: Callable[[str], Model], cache_key: str | None = None
) -> Summariser:
    """The summariser that the settings name: a remote endpoint, another model, or the session's own, which may write it
    by its provider's own compaction.

    `other` makes a model from the name in `compaction.model`. `cache_key` groups the requests of one session at the
    provider. Offline is not chosen here: a session without a model gives an `OfflineSummariser` itself.

    Raises:
        SettingsError: the provider's own compaction is asked for, and there is none that can serve.
    """
    if settings.remote_endpoint is not None:
        # Imported here: a session that asks a model need not load an HTTP client.
        from selfcompact.compaction.summary.remote import RemoteSummariser

        return RemoteSummariser(settings.remote_endpoint, settings.remote_token_variable)
    chosen = other(settings.model) if settings.model is not None else model
    if settings.channel == "native":
        from selfcompact.compaction.summary.native import native_summariser

        return native_summariser(chosen)
    return ModelSummariser(chosen, cache_key=cache_key)
