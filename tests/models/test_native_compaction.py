"""The provider's own compaction as a writer of summaries: Anthropic's serves, OpenAI's cannot, and both are tried."""

from __future__ import annotations

from pathlib import Path

import pytest

import selfcompact as sc
from selfcompact.compaction.summary.choice import chosen_summariser
from selfcompact.compaction.summary.native import native_summariser
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.errors import ContextOverflow, ModelError, ProviderUnavailable, SettingsError
from selfcompact.messages import user
from selfcompact.models.protocol import ModelRequest
from selfcompact.models.providers import ProviderModel
from selfcompact.models.registry import make_model
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.testing import FakeProvider, Fault, Reply, cell_reply, overflow_fault

from .test_whole_sessions import FILL, SUMMARY

NATIVE = CompactionSettings(channel="native")
CLAUDE = "anthropic:claude-opus-4-8"
REQUEST = SummaryRequest("You summarise.", "<conversation>…</conversation>", 900)


def claude(server: FakeProvider, name: str = CLAUDE) -> ProviderModel:
    model = make_model(name, base_url=server.anthropic_url, context_window=32_000)
    assert isinstance(model, ProviderModel)
    return model


def unused(name: str) -> ProviderModel:
    raise AssertionError(f"{name} was not to be made")


async def test_anthropics_compaction_answers_our_request_with_a_text() -> None:
    async with FakeProvider(summaries=[Reply(SUMMARY, usage=(900, 200), cached=400)]) as server:
        summariser = chosen_summariser(NATIVE, claude(server), other=unused)
        assert summariser.name == f"{CLAUDE} (native)"
        heard: list[int] = []
        reply = await native_summariser(claude(server)).ask(REQUEST, heard.append)
        (request,) = server.requests
    assert reply.text == SUMMARY
    assert heard == [len(SUMMARY)]
    assert reply.usage is not None
    assert (reply.usage.prompt, reply.usage.cache_read, reply.usage.output) == (900, 400, 200)
    assert request.body["compaction"]["type"] == "summarize"
    assert "exactly its form" in request.body["compaction"]["instructions"]
    assert request.body["max_tokens"] == 900
    assert REQUEST.prompt in str(request.body["messages"])
    assert REQUEST.system in str(request.body["system"])


async def test_a_session_is_compacted_natively_and_a_bad_summary_is_asked_for_again(tmp_path: Path) -> None:
    """What comes out of it is checked as any other summary."""
    answers = [
        cell_reply(FILL, usage=(1_000, 50)),
        cell_reply(FILL, usage=(2_500, 50)),
        cell_reply("await compact.run('keep `line 7`')", usage=(4_000, 50)),
        Reply("Done.", usage=(1_500, 20)),
    ]
    settings = sc.Settings.model_validate(
        {"compaction": {"keepRecentTokens": 300, "reserveTokens": 4000, "offlineFallback": False, "channel": "native"}}
    )
    summaries = [Reply("Here is no form at all."), *[Reply(SUMMARY, usage=(900, 200))] * 4]
    async with FakeProvider(answers, summaries=summaries) as server:
        async with sc.open_session(
            claude(server),
            workspace=tmp_path,
            session_file=f"{tmp_path}.jsonl",
            settings=settings,
        ) as session:
            result = await session.prompt("go")
        told = [request for request in server.requests if request.is_summary]
    assert result.error is None
    assert [(each.reason, each.status) for each in result.compactions] == [("requested", "completed")]
    (outcome,) = result.compactions
    assert outcome.result is not None
    assert "written by the provider" in outcome.result.summary
    assert "line 7" in outcome.result.summary
    assert all("compaction" in request.body for request in told)
    assert len(told) >= 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Reply(""), ModelError),
        (Fault(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), ModelError),
        (overflow_fault("anthropic"), ContextOverflow),
    ],
)
async def test_its_failures_are_the_ones_of_any_model(answer: Reply | Fault, error: type[ModelError]) -> None:
    async with FakeProvider(summaries=[answer] * 3) as server:
        with pytest.raises(error) as caught:
            await native_summariser(claude(server)).ask(REQUEST)
    if isinstance(answer, Fault) and answer.status == 529:
        assert isinstance(caught.value, ProviderUnavailable)


async def test_openais_compaction_gives_nothing_that_can_be_read() -> None:
    """Tried for real: the item is encrypted, so no text comes back, and the setting says so before a session opens."""
    async with FakeProvider(summaries=[Reply(SUMMARY)]) as server:
        model = make_model("openai:gpt-5", base_url=server.openai_url, context_window=32_000)
        assert isinstance(model, ProviderModel)
        assert model.native_compaction == "opaque"
        with pytest.raises(ModelError, match="nothing that can be read"):
            await model.compact_natively(ModelRequest("s", (user("hello"),), purpose="summary"), "focus")
        assert server.requests[0].path == "/v1/responses/compact"
    with pytest.raises(SettingsError, match=r"compaction\.channel: .*only its provider can read") as caught:
        chosen_summariser(NATIVE, model, other=unused)
    assert "set it to model" in str(caught.value)


@pytest.mark.parametrize("name", ["anthropic:claude-sonnet-4-5", "openai-chat:gpt-4.1"])
def test_a_model_without_one_is_told_at_once(name: str) -> None:
    model = make_model(name, base_url="http://127.0.0.1:9/v1", context_window=32_000)
    with pytest.raises(SettingsError, match="no compaction of its own"):
        chosen_summariser(NATIVE, model, other=unused)
    with pytest.raises(SettingsError, match="no compaction of its own"):
        chosen_summariser(NATIVE, sc.ScriptedModel([]), other=unused)
