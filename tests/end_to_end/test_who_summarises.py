"""Who writes the summaries of a session, and what becomes of answers that are no summaries. Real kernel, real log."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import selfcompact as sc
from selfcompact.messages import AssistantMessage
from selfcompact.models.protocol import Completed, Model, ModelRequest, StreamEvent, TextDelta
from selfcompact.models.registry import make_model
from selfcompact.settings.retry import RetrySettings
from selfcompact.testing import FakeProvider, Reply, cell_reply
from tests.session.memory_kernel import SUMMARY

from .conftest import OpenSession
from .helpers import FILL, fill, of_type

FAMILIES = [
    "openai-chat",
    pytest.param("openai", marks=pytest.mark.slow),
    pytest.param("anthropic", marks=pytest.mark.slow),
]
COMPACTION: dict[str, Any] = {"keepRecentTokens": 300, "reserveTokens": 4000, "offlineFallback": False}
FULL = (4_000, 50)
"""What a response reports when the context holds a few full outputs."""

WRITTEN = Reply(SUMMARY, usage=(900, 200))
ASK = "await compact.run('keep it')"


def model_at(server: FakeProvider, family: str = "openai-chat", name: str = "fake") -> Model:
    url = server.anthropic_url if family == "anthropic" else server.openai_url
    return make_model(f"{family}:{name}", base_url=url, context_window=32_000)


def settings(**compaction: Any) -> sc.Settings:
    return sc.Settings.model_validate({"compaction": {**COMPACTION, **compaction}})


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_summary_whose_stream_broke_off_is_never_installed(tmp_path: Path, family: str) -> None:
    """As the same reply in a turn, it is asked for again, though its form is right and only its last word
    is not. Anthropic's streams begin with usage."""
    text = f"{SUMMARY.rsplit('(none)', 1)[0]}The account may be overdrawn by at most 4,0"
    cut = Reply(text, finish="", usage=(900, 200) if family == "anthropic" else None)
    answers = [cell_reply(FILL), cell_reply(FILL), cell_reply(ASK, usage=FULL), Reply("ok")]
    async with FakeProvider(answers, summaries=[cut, WRITTEN]) as server:
        async with sc.open_session(
            model_at(server, family),
            workspace=tmp_path,
            session_file=f"{tmp_path}.jsonl",
            settings=settings(),
        ) as session:
            result = await session.prompt("go")
        asked = sum(request.is_summary for request in server.requests)
    (outcome,) = result.compactions
    assert outcome.result is not None, outcome.message
    assert SUMMARY.strip() in outcome.result.summary
    assert asked == 2


async def test_after_a_switch_the_new_model_writes_the_summaries(tmp_path: Path) -> None:
    """Also those that are begun ahead; the model of before, whose key may be gone, is not asked again."""
    full = [cell_reply(FILL), cell_reply(FILL)]
    async with (
        FakeProvider([*full, cell_reply(ASK, usage=FULL), *full, Reply("ok")], summaries=[WRITTEN]) as first,
        FakeProvider([cell_reply(ASK, usage=FULL), Reply("ok")], summaries=itertools.repeat(WRITTEN)) as second,
        sc.open_session(
            model_at(first),
            workspace=tmp_path,
            session_file=f"{tmp_path}.jsonl",
            settings=settings(),
        ) as session,
    ):
        await session.prompt("go")
        session.set_model(model_at(second, name="other"))
        result = await session.prompt("and on")
        asked = [[request.is_summary for request in server.requests].count(True) for server in (first, second)]
    (outcome,) = result.compactions
    assert outcome.result is not None, outcome.message
    ours: Any = (outcome.result.details or {})["selfcompact"]
    assert ours["summariser"] == "openai-chat:other"
    assert asked == [1, 1]


async def test_a_summariser_that_the_settings_name_stays_when_the_model_is_switched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeProvider([cell_reply(ASK, usage=FULL), Reply("ok")], summaries=itertools.repeat(WRITTEN)) as server:
        named = {"openai-chat:writer": {"baseUrl": server.openai_url}}
        chosen = sc.Settings.model_validate(
            {"compaction": {**COMPACTION, "model": "openai-chat:writer"}, "models": named}
        )
        first = sc.ScriptedModel([*fill(), sc.say("ok")], summaries=[], context_window=32_000)
        async with sc.open_session(
            first, workspace=tmp_path, session_file=f"{tmp_path}.jsonl", settings=chosen
        ) as session:
            await session.prompt("go")
            session.set_model(model_at(server, name="other"))
            result = await session.prompt("on")
    (outcome,) = result.compactions
    assert outcome.result is not None, outcome.message
    ours: Any = (outcome.result.details or {})["selfcompact"]
    assert ours["summariser"] == "openai-chat:writer"


async def test_a_summariser_that_the_changed_file_names_and_nobody_has_is_told_and_the_old_one_stays(
    tmp_path: Path,
) -> None:
    file = tmp_path / ".selfcompact/settings.json"
    file.parent.mkdir()
    plain = {"keepRecentTokens": 300, "reserveTokens": 4000}
    file.write_text(json.dumps({"compaction": plain}))

    def change(_messages: object) -> sc.Step:
        file.write_text(json.dumps({"compaction": {**plain, "model": "nobody-has:this"}}))
        return sc.cell("1")

    model = sc.ScriptedModel([*fill(), change, sc.cell(ASK), sc.say("ok")], summaries=[SUMMARY], context_window=32_000)
    async with sc.open_session(model, workspace=tmp_path, session_file=f"{tmp_path}.jsonl") as session:
        stream = session.events()
        result = await session.prompt("go")
        warnings = [event.message for event in of_type(stream.pending(), "warning")]
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert len(warnings) == 1
    assert "nobody-has:this" in warnings[0]
    assert "scripted:script as before" in warnings[0]


@dataclass
class Custom:
    """A model of somebody else's, with no more than the protocol asks for; its summaries go wrong in one way."""

    turns: sc.ScriptedModel
    fault: str
    provider: str = "custom"
    model_id: str = "custom"
    context_window: int | None = 32_000
    max_output_tokens: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        if request.purpose == "turn":
            async for event in self.turns.stream(request):
                yield event
        elif self.fault == "raises":
            yield TextDelta("## Goal")
            raise LookupError("no such route")
        elif self.fault == "has no end":
            yield TextDelta(SUMMARY)
        elif self.fault == "is a failed message":
            async for event in sc.ScriptedModel([sc.say(SUMMARY)]).stream(ModelRequest("", ())):
                if isinstance(event, Completed):
                    yield Completed(AssistantMessage(content=event.message.content, stop_reason="error", timestamp=0))


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("fault", ["raises", "has no end", "is empty", "is a failed message"])
async def test_whatever_a_custom_models_summary_does_is_a_failed_attempt_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, fallback: bool
) -> None:
    """Every compaction that is told to begin is told to end; the offline summariser may step in."""
    at_once = RetrySettings(max_retries=2, first_delay_s=0)
    monkeypatch.setattr("selfcompact.compaction.summary.retry.SUMMARY_RETRIES", at_once)
    turns = sc.ScriptedModel([*fill(), sc.cell(ASK), sc.say("went on")], context_window=32_000)
    async with sc.open_session(
        Custom(turns, fault),
        workspace=tmp_path,
        session_file=f"{tmp_path}.jsonl",
        settings=settings(offlineFallback=fallback),
    ) as session:
        stream = session.events()
        result = await session.prompt("go")
        events = stream.pending()
        log = session.session_file.read_text()
    assert (result.status, result.text) == ("done", "went on")
    assert [event.type for event in events if event.type in ("compaction_start", "compaction_end")] == [
        "compaction_start",
        "compaction_end",
    ]
    (outcome,) = result.compactions
    assert outcome.status == ("completed" if fallback else "failed")
    assert ('"type":"compaction"' in log) == fallback
    if outcome.result is not None:
        assert outcome.result.offline
    elif fault == "raises":
        assert "LookupError: no such route" in (outcome.message or "")
        assert isinstance(outcome.error, sc.ModelError)
        assert isinstance(outcome.error.__cause__, LookupError)


async def test_a_summary_from_a_hook_keeps_what_was_asked_for_and_no_secret(
    opened: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it, a summary passes the same redaction and keeping."""
    monkeypatch.setenv("SERVICE_API_KEY", "hunter2-hunter2-hunter2")

    async def supply(_: sc.CompactionPreparation) -> sc.SuppliedSummary:
        return sc.SuppliedSummary("## Goal\nWritten by a hook, with the key hunter2-hunter2-hunter2 in it.")

    steps = [*fill(), sc.cell("await compact.run('keep `tests/test_rates.py::test_eur`')"), sc.say("ok")]
    async with opened(steps, hooks=sc.Hooks(before_compact=[supply])) as session:
        result = await session.prompt("go")
        log = session.session_file.read_text()
    (outcome,) = result.compactions
    assert outcome.result is not None
    assert "Written by a hook" in outcome.result.summary
    assert "tests/test_rates.py::test_eur" in outcome.result.summary
    assert "hunter2-hunter2-hunter2" not in log


async def test_a_summariser_that_lacks_what_the_protocol_asks_for_is_a_failed_attempt(tmp_path: Path) -> None:
    """Whatever breaks, and wherever, the run goes on with its old history."""

    class Incomplete:
        name = "incomplete"

        async def ask(self, request: object, on_text: object = None) -> object:
            raise AssertionError("it is not even asked")

    incomplete: Any = Incomplete()
    model = sc.ScriptedModel([*fill(), sc.cell(ASK), sc.say("went on")], context_window=32_000)
    async with sc.open_session(
        model,
        workspace=tmp_path,
        session_file=f"{tmp_path}.jsonl",
        settings=settings(background=False),
        summariser=incomplete,
    ) as session:
        result = await session.prompt("go")
    assert (result.status, result.text) == ("done", "went on")
    (outcome,) = result.compactions
    assert outcome.status == "failed"
    assert "AttributeError" in (outcome.message or "")
    assert isinstance(outcome.error, sc.CompactionError)
