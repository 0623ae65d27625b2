from __future__ import annotations

from selfcompact.compaction.summary.choice import chosen_summariser
from selfcompact.compaction.summary.remote import RemoteSummariser
from selfcompact.compaction.summary.summarisers import ModelSummariser
from selfcompact.models.protocol import Model
from selfcompact.models.scripted import ScriptedModel
from selfcompact.settings.compaction import CompactionSettings


def made(name: str) -> Model:
    return ScriptedModel([], model_id=name, context_window=50_000)


def test_the_sessions_model_writes_summaries_when_nothing_else_is_named() -> None:
    own = made("own")
    chosen = chosen_summariser(CompactionSettings(), own, other=made, cache_key="s1")
    assert chosen == ModelSummariser(own, cache_key="s1")


def test_another_model_writes_them_with_its_own_window() -> None:
    """The summariser's window is not the agent's."""
    chosen = chosen_summariser(CompactionSettings(model="scripted:small"), ScriptedModel([]), other=made)
    assert isinstance(chosen, ModelSummariser)
    assert (chosen.name, chosen.context_window) == ("scripted:scripted:small", 50_000)


def test_an_endpoint_wins_over_models() -> None:
    settings = CompactionSettings(model="x", remote_endpoint="http://127.0.0.1/s", remote_token_variable="TOKEN")
    chosen = chosen_summariser(settings, made("own"), other=made)
    assert isinstance(chosen, RemoteSummariser)
    assert (chosen.endpoint, chosen.token_variable) == ("http://127.0.0.1/s", "TOKEN")
