from __future__ import annotations

from selfcompact.compaction.commit import short_summary
from selfcompact.compaction.summary.branch import branch_summary
from selfcompact.settings.compaction import CompactionSettings
from tests.compaction.build import PlayedSummariser, sections, turns
from tests.requests_sent import parts_of

SETTINGS = CompactionSettings()


async def test_a_branch_that_is_left_is_summarised_window_by_window_in_the_sections_form() -> None:
    summariser = PlayedSummariser([sections("Left."), sections("Left again.")], context_window=16_000)
    text = await branch_summary(turns(100), summariser, SETTINGS)
    assert text == sections("Left again.")
    assert len(summariser.requests) > 1
    assert "branch of the session" in parts_of(summariser.requests[0].prompt)["additional-context"]


def test_without_a_model_the_short_summary_is_the_goal_and_the_state() -> None:
    assert short_summary(sections("Port it.")).startswith("Port it. Do the second half")
    assert len(short_summary(sections("Port it. " * 400))) < 480
