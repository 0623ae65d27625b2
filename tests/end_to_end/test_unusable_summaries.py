"""Replies that are no summaries, from vendors' own clients. Real kernel, real log, a server on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

import selfcompact as sc
from selfcompact.models.registry import make_model
from selfcompact.testing import Call, FakeProvider, Fault, Reply, cell_reply
from selfcompact.testing.replies import Answer
from tests.session.memory_kernel import SUMMARY

from .conftest import OpenSession
from .helpers import FILL, fill, history_text, of_type

BAD: dict[str, Answer] = {
    "empty": Reply(""),
    "blank": Reply("  \n\n  "),
    "thinking only": Reply("", thinking="The form has these headings.", signature="signed"),
    "a tool call": Reply(SUMMARY, calls=(Call("ipython", {"code": "1"}),)),
    "cut at the output limit": Reply(SUMMARY, finish="length"),
    "filtered": Reply("I can not help with that.", finish="content_filter"),
    "refused in words": Reply("I'm sorry, but I can't help with summarising this conversation."),
    "out of form": Reply("The session went well and much was done, which I shall not list here."),
    "denied": Fault(403, {"error": {"message": "not for this key", "type": "permission_error"}}),
}
"""Each is sent twice: once, and when it is asked for once more. What is denied is not asked for again."""


@pytest.mark.parametrize(
    "family",
    [
        "openai-chat",
        pytest.param("openai", marks=pytest.mark.slow),
        pytest.param("anthropic", marks=pytest.mark.slow),
    ],
)
async def test_a_reply_that_is_no_summary_is_refused_asked_for_once_more_and_changes_nothing(
    tmp_path: Path, family: str
) -> None:
    """Each way in turn in one session, and in the end a summary that is one."""
    answers: list[Answer] = [cell_reply(FILL), cell_reply(FILL, usage=(4_000, 50)), Reply("ok", usage=(4_100, 5))]
    bad = {name: reply for name, reply in BAD.items() if not (family == "openai" and name == "filtered")}
    replies = [reply for name, reply in bad.items() for _ in range(1 if name == "denied" else 2)]
    settings = sc.Settings.model_validate(
        {"compaction": {"keepRecentTokens": 300, "reserveTokens": 4000, "offlineFallback": False}}
    )
    async with FakeProvider(answers, summaries=[*replies, Reply(SUMMARY)]) as server:
        url = server.anthropic_url if family == "anthropic" else server.openai_url
        model = make_model(f"{family}:fake", base_url=url, context_window=32_000)
        async with sc.open_session(
            model, workspace=tmp_path, session_file=f"{tmp_path}.jsonl", settings=settings
        ) as session:
            await session.prompt("go")
            before = session.history
            for name in bad:
                asked = len(server.requests)
                outcome = await session.compact()
                assert (outcome.status, session.history == before) == ("failed", True), name
                assert outcome.message, name
                assert len(server.requests) - asked == (1 if name == "denied" else 2), name
            assert (await session.compact()).status == "completed"
            log = session.session_file.read_text()
    assert log.count('"type":"compaction"') == 1


async def test_a_reply_outside_the_form_is_told_what_was_wrong_with_it(opened: OpenSession) -> None:
    steps = [*fill(), sc.cell("await compact.run()"), sc.say("ok")]
    summaries = ["## Goal\nA goal and nothing else that the form asks for.", SUMMARY]
    async with opened(steps, summaries=summaries, offline_fallback=False, background=False) as session:
        result = await session.prompt("go")
        model = session.model
        assert isinstance(model, sc.ScriptedModel)
        _, again = [str(r.messages[0].to_json()) for r in model.requests if r.purpose == "summary"]
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert "An earlier answer was not usable" in again


async def test_when_no_reply_is_a_summary_the_offline_summariser_steps_in_and_says_why(opened: OpenSession) -> None:
    steps = [*fill(), sc.cell("await compact.run()"), sc.say("ok")]
    async with opened(steps, summaries=["no form at all"] * 8) as session:
        result = await session.prompt("go")
    (outcome,) = result.compactions
    assert outcome.result is not None
    assert outcome.result.offline
    assert outcome.result.details is not None
    ours = outcome.result.details["selfcompact"]
    assert isinstance(ours, dict)
    assert "summary was rejected" in str(ours["failure"])


async def test_a_summary_that_makes_the_context_no_smaller_is_refused_and_the_old_history_stays(
    opened: OpenSession,
) -> None:
    """`not_beneficial`."""
    long = SUMMARY.replace("1. Go on.", "\n".join(f"{n}. Step number {n} of what comes next." for n in range(1, 200)))
    steps = [sc.cell(FILL), sc.cell("x = 1\nprint('y' * 900)"), sc.cell("await compact.run()"), sc.say("went on")]
    async with opened(steps, summaries=[long] * 4, reserve_tokens=12_000, offline_fallback=False) as session:
        stream = session.events()
        result = await session.prompt("go")
        (end,) = of_type(stream.pending(), "compaction_end")
        text = history_text(session)
    (outcome,) = result.compactions
    assert isinstance(outcome.error, sc.NotBeneficial), outcome
    assert outcome.error.code == "not_beneficial"
    assert end.status == "failed"
    assert "would not help" in end.error_message
    assert (result.status, result.text) == ("done", "went on")
    assert "line 59: some words" in text
