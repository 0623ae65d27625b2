from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.compaction.summary.summarisers import ModelSummariser
from selfcompact.errors import AuthenticationFailed, ModelTimeout
from selfcompact.models.protocol import ModelRequest, StreamEvent, TextDelta
from selfcompact.models.scripted import ScriptedModel
from tests.requests_sent import prompt_text

ASKED = SummaryRequest("system", "prompt", 500)


async def test_a_model_is_asked_without_tools_with_a_limit_of_its_own_and_for_a_summary() -> None:
    model = ScriptedModel([], summaries=["the summary"])
    heard: list[int] = []
    reply = await ModelSummariser(model, cache_key="session-1").ask(ASKED, heard.append)
    (request,) = model.requests
    assert (request.system, prompt_text(request), request.tools) == ("system", "prompt", ())
    assert (request.max_output_tokens, request.purpose, request.cache_key) == (500, "summary", "session-1")
    assert reply.text == "the summary"
    assert reply.usage is not None
    assert heard[-1] == len("the summary")


async def test_an_error_of_the_model_passes_through_as_itself() -> None:
    model = ScriptedModel([], summaries=[AuthenticationFailed("bad key", status=401)])
    with pytest.raises(AuthenticationFailed):
        await ModelSummariser(model).ask(ASKED)


class Silent:
    """A model that says one word and then nothing any more."""

    provider, model_id, context_window, max_output_tokens = "test", "silent", None, None

    def __init__(self) -> None:
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        try:
            yield TextDelta("word")
            await anyio.sleep_forever()
        finally:
            self.closed = True


async def test_a_stream_that_falls_silent_is_given_up_and_closed() -> None:
    """The limit is on silence, not on the whole."""
    model = Silent()
    with pytest.raises(ModelTimeout):
        await ModelSummariser(model, idle_s=0.05).ask(ASKED)
    assert model.closed


async def test_a_stream_that_is_cancelled_is_closed() -> None:
    model = Silent()
    with anyio.move_on_after(0.05):
        await ModelSummariser(model).ask(ASKED)
    assert model.closed


async def test_reasoning_is_not_shown_to_models_that_would_take_it_for_their_own() -> None:
    model = Silent()
    assert not ModelSummariser(model).drops_thinking
    model.provider = "anthropic"
    assert ModelSummariser(model).drops_thinking
