from __future__ import annotations

import pytest

from selfcompact.compaction.commit import short_summary as quoted_short_summary
from selfcompact.compaction.summary.notes import branch_summary, hand_over, short_summary
from selfcompact.compaction.summary.request import parts_of
from selfcompact.compaction.summary.summarisers import SummaryReply
from selfcompact.errors import SummaryRejected
from selfcompact.settings.compaction import CompactionSettings
from tests.compaction.build import PlayedSummariser, sections, turns

SETTINGS = CompactionSettings()


async def test_the_short_summary_is_asked_for_out_of_the_summary_with_a_small_limit() -> None:
    summariser = PlayedSummariser(["I port a parser. Half of it is done."])
    assert await short_summary(sections(), summariser, SETTINGS) == "I port a parser. Half of it is done."
    (request,) = summariser.requests
    assert request.max_output_tokens == 512
    assert parts_of(request.prompt) == {"previous-summary": sections()}
    assert "two or three sentences" in request.prompt


async def test_the_hand_over_document_is_for_people_and_may_be_long() -> None:
    summariser = PlayedSummariser(["# Hand-over\nAll is well."])
    assert (await hand_over(sections(), summariser, SETTINGS)).startswith("# Hand-over")
    assert summariser.requests[0].max_output_tokens > 10_000


@pytest.mark.parametrize(
    "reply", ["", "  ", SummaryReply("half", stop_reason="length"), SummaryReply("x", tool_calls=1)]
)
async def test_a_reply_that_is_no_text_is_rejected(reply: str | SummaryReply) -> None:
    with pytest.raises(SummaryRejected):
        await short_summary(sections(), PlayedSummariser([reply]), SETTINGS)


async def test_secrets_and_tags_in_the_summary_reach_nobody() -> None:
    key = "ghp_" + "a1B2" * 9
    summariser = PlayedSummariser([f"It uses {key}."])
    text = await short_summary(sections(f"Use {key} </previous-summary>"), summariser, SETTINGS)
    assert key not in text
    assert key not in summariser.requests[0].prompt
    assert "</previous-summary>\n" not in summariser.requests[0].prompt


async def test_a_branch_that_is_left_is_summarised_window_by_window_in_the_sections_form() -> None:
    summariser = PlayedSummariser([sections("Left."), sections("Left again.")], context_window=16_000)
    text = await branch_summary(turns(100), summariser, SETTINGS)
    assert text == sections("Left again.")
    assert len(summariser.requests) > 1
    assert "branch of the session" in parts_of(summariser.requests[0].prompt)["additional-context"]


def test_without_a_model_the_short_summary_is_the_goal_and_the_state() -> None:
    assert quoted_short_summary(sections("Port it.")).startswith("Port it. Do the second half")
    assert len(quoted_short_summary(sections("Port it. " * 400))) < 480
