from __future__ import annotations

import itertools
from dataclasses import replace

import anyio
import pytest

from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, plan
from selfcompact.compaction.style.contract import TURN_SECTION
from selfcompact.compaction.summary.fold import Progress
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.compaction.summary.summarise import summarise
from selfcompact.compaction.summary.summarisers import OfflineSummariser, SummaryReply
from selfcompact.errors import (
    AuthenticationFailed,
    ContextOverflow,
    ProviderUnavailable,
    RateLimited,
    SummaryRejected,
)
from selfcompact.messages import AssistantMessage, Message, Usage
from selfcompact.settings.compaction import CompactionSettings
from tests.compaction.build import (
    Answer,
    PlayedSummariser,
    logged,
    rounds,
    said,
    sections,
    sections_or_prefix,
    turns,
    whole_turns,
)
from tests.requests_sent import parts_of

STRICT = CompactionSettings(keep_recent_tokens=200, offline_fallback=False)
LENIENT = CompactionSettings(keep_recent_tokens=200)


def planned(messages: list[Message], instructions: str | None = None) -> Plan:
    found = plan(Ledger(logged(messages)), STRICT, 200_000, instructions=instructions)
    assert isinstance(found, Plan)
    return found


async def _no_sleep(_: float) -> None:
    await anyio.lowlevel.checkpoint()


async def test_a_summary_in_its_form_is_taken_as_it_is() -> None:
    summariser = PlayedSummariser([sections()])
    summary = await summarise(planned(whole_turns(20)), summariser, STRICT)
    assert (summary.text, summary.requests, summary.usage.total, summary.offline) == (sections(), 1, 150, False)


async def test_the_request_carries_the_conversation_and_the_instructions_each_in_its_own_part() -> None:
    summariser = PlayedSummariser([sections()])
    await summarise(planned(whole_turns(20), "keep the failing test names"), summariser, STRICT)
    parts = parts_of(summariser.requests[0].prompt)
    assert "[User]: Question 0?" in parts["conversation"]
    assert parts["instructions"] == "keep the failing test names"
    assert "previous-summary" not in parts


async def test_a_split_turn_gets_a_summary_of_its_own_merged_into_one_text() -> None:
    summariser = PlayedSummariser([sections_or_prefix])
    summary = await summarise(planned([*turns(10), said("go"), *rounds(60, start=50)]), summariser, STRICT)
    assert summary.requests == 2
    assert summary.text.startswith(sections())
    assert f"## {TURN_SECTION}\n### Original Request\nDo it." in summary.text


async def test_a_turn_with_nothing_before_it_is_summarised_as_the_history() -> None:
    summariser = PlayedSummariser([sections()])
    summary = await summarise(planned([said("go"), *rounds(60)]), summariser, STRICT)
    assert (summary.requests, summary.text) == (1, sections())


BAD: list[tuple[str, Answer, str]] = [
    ("empty", "", "no visible text"),
    ("blank", " \n ", "no visible text"),
    ("thinking only", SummaryReply("", usage=Usage(output=900)), "no visible text"),
    ("tool-calling", SummaryReply(sections(), stop_reason="toolUse", tool_calls=1), "asks for a tool"),
    ("truncated", SummaryReply(sections(), stop_reason="length"), "cut off"),
    ("refusing", "I'm sorry, but I can't help with that.", "declines"),
    ("prose", "All went well.", "none of the headings"),
    ("incomplete", "## Goal\nReach it.\n\n## Next Steps\n1. Go on.", "'Progress' is missing"),
    ("too long", sections(Critical_Context="word " * 60_000), "longer than"),
]


@pytest.mark.parametrize(("answer", "violation"), [pytest.param(a, v, id=name) for name, a, v in BAD])
async def test_a_reply_that_cannot_be_a_summary_is_asked_for_once_more_and_then_rejected(
    answer: Answer, violation: str
) -> None:
    summariser = PlayedSummariser([answer])
    with pytest.raises(SummaryRejected, match=violation):
        await summarise(planned(whole_turns(20)), summariser, STRICT)
    assert len(summariser.requests) == 2
    assert violation.strip("'").split(" ")[0] in summariser.requests[1].prompt


@pytest.mark.parametrize(("answer", "violation"), [pytest.param(a, v, id=name) for name, a, v in BAD])
async def test_after_two_bad_replies_the_offline_summary_steps_in_and_says_why(answer: Answer, violation: str) -> None:
    summary = await summarise(planned(whole_turns(20)), PlayedSummariser([answer]), LENIENT)
    assert summary.offline
    assert summary.failure is not None
    assert violation in summary.failure
    assert "Question 0?" in summary.text


async def test_a_second_reply_in_its_form_is_taken() -> None:
    summary = await summarise(planned(whole_turns(20)), PlayedSummariser(["nonsense", sections()]), STRICT)
    assert (summary.text, summary.requests) == (sections(), 2)


async def test_an_error_of_the_provider_is_never_a_summary() -> None:
    """The error keeps its status and text."""
    with pytest.raises(AuthenticationFailed) as failed:
        await summarise(
            planned(whole_turns(20)), PlayedSummariser([AuthenticationFailed("bad key", status=401)]), STRICT
        )
    assert (failed.value.status, failed.value.provider_message) == (401, "bad key")


async def test_transient_errors_are_tried_again_and_others_are_not() -> None:
    """A rate limit is waited for, as long as the provider asks."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await anyio.lowlevel.checkpoint()

    answers: list[Answer] = [
        RateLimited("slow down", retry_after_s=7),
        ProviderUnavailable("down", status=503),
        sections(),
    ]
    summary = await summarise(planned(whole_turns(20)), PlayedSummariser(answers), STRICT, sleep=sleep)
    assert summary.text == sections()
    assert waited[0] == 7
    assert 0.5 <= waited[1] <= 4


async def test_a_failing_part_of_a_split_turn_fails_as_itself() -> None:
    def answer(request: SummaryRequest) -> Answer:
        return AuthenticationFailed("bad key", status=401) if "beginning of a turn" in request.prompt else sections()

    with pytest.raises(AuthenticationFailed):
        await summarise(planned([*turns(10), said("go"), *rounds(60, start=50)]), PlayedSummariser([answer]), STRICT)


async def test_a_long_conversation_is_folded_window_by_window() -> None:
    """Each window updates the summary of the one before."""
    summariser = PlayedSummariser([sections(f"Aim {n}.") for n in range(50)], context_window=16_000)
    heard: list[Progress] = []
    summary = await summarise(planned(whole_turns(150)), summariser, STRICT, on_progress=heard.append)
    assert len(summariser.requests) > 3
    prompts = [parts_of(request.prompt) for request in summariser.requests]
    assert [("previous-summary" in parts) for parts in prompts] == [False] + [True] * (len(prompts) - 1)
    assert [f"Aim {n - 1}." in parts["previous-summary"] for n, parts in enumerate(prompts) if n] == [True] * (
        len(prompts) - 1
    )
    assert summary.text == sections(f"Aim {len(prompts) - 1}.")
    together = "\n".join(parts["conversation"] for parts in prompts)
    assert all(f"Question {n}?" in together for n in range(140))
    assert {progress.part for progress in heard} == {"history"}
    assert heard[-1].window == heard[-1].windows


async def test_after_an_overflow_every_further_request_is_smaller_and_the_floor_ends_it() -> None:
    """No request is repeated at its size."""
    summariser = PlayedSummariser([ContextOverflow("too long")], context_window=64_000)
    with pytest.raises(ContextOverflow):
        await summarise(planned(whole_turns(150)), summariser, STRICT)
    sizes = [len(request.prompt) for request in summariser.requests]
    assert len(sizes) > 2
    assert all(later < earlier for earlier, later in itertools.pairwise(sizes))


async def test_what_was_summarised_before_an_overflow_is_not_sent_again() -> None:
    limit = 12_000

    def answer(request: SummaryRequest) -> Answer:
        return ContextOverflow("too long") if len(parts_of(request.prompt)["conversation"]) > limit else sections()

    summariser = PlayedSummariser([answer], context_window=64_000)
    await summarise(planned(whole_turns(150)), summariser, STRICT)
    answered = [p for r in summariser.requests if len(p := parts_of(r.prompt)["conversation"]) <= limit]
    assert sum(part.count("[User]: Question 3?") for part in answered) == 1


async def test_instructions_literals_that_the_summary_lacks_are_kept_by_code() -> None:
    found = planned(whole_turns(20), 'keep `test_a::b` and "Reach the aim." and tests/nowhere.py')
    summary = await summarise(found, PlayedSummariser([sections()]), STRICT)
    assert summary.kept.missing == ("test_a::b",)
    assert set(summary.kept.carried) == {"test_a::b", "Reach the aim."}


async def test_an_open_question_of_the_last_message_that_the_summary_lacks_is_added_word_for_word() -> None:
    messages: list[Message] = [*turns(10), said("Which of the two files shall it be?"), *rounds(30, start=50)]
    found = planned([replace(m, content=m.tool_calls) if isinstance(m, AssistantMessage) else m for m in messages])
    summary = await summarise(found, PlayedSummariser([sections_or_prefix]), STRICT)
    assert "- Open question: Which of the two files shall it be?" in summary.text
    assert any("open question" in repair for repair in summary.repaired)


async def test_secrets_reach_neither_the_summariser_nor_the_summary() -> None:
    secret, pattern = "correct-horse-battery", "ghp_" + "a1B2" * 9
    messages: list[Message] = [said(f"use {secret}"), *rounds(40, result=f"out {pattern} {{n}}")]
    summariser = PlayedSummariser([sections(Critical_Context=f"The key is {secret} or {pattern}.")])
    summary = await summarise(planned(messages, f"keep {secret}"), summariser, STRICT, secrets=[secret])
    for text in (*(request.prompt for request in summariser.requests), summary.text):
        assert secret not in text
        assert pattern not in text


async def test_the_offline_summariser_needs_no_model() -> None:
    summary = await summarise(planned(whole_turns(20)), OfflineSummariser(), STRICT)
    assert summary.offline
    assert summary.failure is None
    assert "Question 0?" in summary.text


async def test_cancelling_stops_the_request() -> None:
    started = anyio.Event()

    class Hanging(PlayedSummariser):
        async def ask(self, request: SummaryRequest, on_text: object = None) -> SummaryReply:
            started.set()
            await anyio.sleep_forever()
            raise AssertionError

    async with anyio.create_task_group() as group:
        group.start_soon(summarise, planned(whole_turns(20)), Hanging([""]), STRICT)
        await started.wait()
        group.cancel_scope.cancel()
