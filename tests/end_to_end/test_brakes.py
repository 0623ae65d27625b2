"""Limits that keep automatic compaction from burning money: they brake, say so, hold after a reload, let go again."""

from __future__ import annotations

import pytest

import selfcompact as sc
from selfcompact.messages import Usage

from .conftest import OpenSession
from .helpers import FILL, fill, of_type

FULL = Usage(input=28_100, output=10)
"""What a response reports when the context is over the threshold of 28,000."""

DOWN: list[str | sc.ModelError] = [sc.PermissionDenied("the summariser's key may not", status=403)] * 50


async def test_after_three_failures_in_a_row_the_threshold_rests_and_says_so(opened: OpenSession) -> None:
    """The summariser is not asked at every turn for ever; also after a reload."""
    steps = [*fill(), *(sc.cell("1", usage=FULL) for _ in range(8)), sc.say("ok", usage=FULL)]
    async with opened(steps, summaries=DOWN, offline_fallback=False) as session:
        stream = session.events()
        result = await session.prompt("go")
        events = stream.pending()
    assert result.status == "done"
    assert [(o.reason, o.status) for o in result.compactions] == [("threshold", "failed")] * 3
    (disarmed,) = of_type(events, "auto_compaction_disarmed")
    assert "3 automatic compactions in a row failed" in disarmed.cause
    async with opened(
        [sc.cell("1", usage=FULL), sc.say("ok", usage=FULL)],
        summaries=DOWN,
        offline_fallback=False,
        session_file=session.session_file,
    ) as session:
        again = await session.prompt("more")
    assert again.compactions == ()


async def test_a_resting_threshold_wakes_when_the_context_has_grown(opened: OpenSession) -> None:
    grown = Usage(input=31_900, output=50)
    steps = [
        *fill(),
        *(sc.cell("1", usage=FULL) for _ in range(4)),
        sc.cell("1", usage=grown),
        sc.say("ok", usage=grown),
    ]
    async with opened(steps, summaries=DOWN, offline_fallback=False) as session:
        result = await session.prompt("go")
    assert len(result.compactions) == 3 + 1
    assert {o.status for o in result.compactions} == {"failed"}


async def test_a_request_from_a_cell_still_runs_while_the_threshold_rests(opened: OpenSession) -> None:
    steps = [
        *fill(),
        *(sc.cell("1", usage=FULL) for _ in range(4)),
        sc.cell("await compact.run()", usage=FULL),
        sc.say("ok"),
    ]
    summaries = [*DOWN[:3], SUMMARY]
    async with opened(steps, summaries=summaries, offline_fallback=False, background=False) as session:
        result = await session.prompt("go")
    assert [(o.reason, o.status) for o in result.compactions] == [("threshold", "failed")] * 3 + [
        ("requested", "completed")
    ]


SUMMARY = """\
## Goal
Print numbers.

## Constraints & Preferences
(none)

## Progress
### Done
- [x] Printed lines of words, several times, as asked for in the beginning of the session.

### In Progress
(none)

### Blocked
(none)

## Key Decisions
(none)

## Next Steps
1. Answer.

## Critical Context
(none)
"""


async def test_the_cap_on_compactions_refuses_requests_and_lets_the_overflow_through(opened: OpenSession) -> None:
    """At the cap the context limit stops the run again."""
    rounds = [*fill(), sc.cell("await compact.run()")]
    steps = [*rounds, *rounds, sc.overflow("prompt is too long"), sc.say("never")]
    async with opened(steps, max_compactions=1) as session:
        result = await session.prompt("go")
        assert session.status().would_compact is False
        assert "as often as the operator allows" in (session.status().reason or "")
        manual = await session.compact()
    assert [o.reason for o in result.compactions] == ["requested"]
    assert isinstance(result.error, sc.ContextOverflow)
    assert manual.status == "completed"


async def test_two_compactions_in_a_row_without_a_response_are_the_limit(opened: OpenSession) -> None:
    """A manual one, a threshold one, and then no third, though the context overflows. A typed error ends the
    run, no summariser is asked, and opening the session again changes nothing."""
    said = "prompt is too long: 33000 tokens > 32000 maximum"
    steps = [*fill(4), sc.say("ok"), sc.overflow(said), sc.say("never")]
    async with opened(steps, threshold_tokens=10_000) as session:
        await session.prompt("go")
        assert (await session.compact()).status == "completed"
        result = await session.prompt(f"{FILL}\n" * 700)
        log = session.session_file.read_text()
    assert [(o.reason, o.status) for o in result.compactions] == [("threshold", "completed")]
    assert result.status == "failed"
    assert isinstance(result.error, sc.CompactionLimit)
    assert (result.error.limit, result.error.provider_message) == (2, said)
    assert log.count('"type":"compaction"') == 2
    async with opened([sc.overflow(said), sc.say("never")], session_file=session.session_file) as session:
        again = await session.prompt("more")
    assert isinstance(again.error, sc.CompactionLimit)
    assert again.compactions == ()


async def test_a_successful_response_between_two_compactions_makes_room_for_more(opened: OpenSession) -> None:
    rounds = [*fill(), sc.cell("await compact.run()")]
    async with opened([*rounds, *rounds, *rounds, sc.say("ok")]) as session:
        result = await session.prompt("go")
    assert [(o.reason, o.status) for o in result.compactions] == [("requested", "completed")] * 3


@pytest.mark.parametrize("window", [12_000, 16_384])
async def test_a_default_reserve_that_does_not_fit_a_small_window_becomes_15_percent(
    opened: OpenSession, window: int
) -> None:
    model = sc.ScriptedModel([sc.say("ok")], context_window=window)
    async with opened([], window=window, reserve_tokens=1000) as session:
        workspace = session.workspace
    async with sc.open_session(
        model, workspace=workspace, settings=sc.Settings(), session_file=f"{workspace}.jsonl"
    ) as session:
        assert session.status().threshold_tokens == window - int(window * 0.15)


async def test_a_chosen_reserve_that_does_not_fit_is_an_error(opened: OpenSession) -> None:
    with pytest.raises(sc.SettingsError, match=r"compaction\.reserveTokens: 4,000 leaves nothing"):
        async with opened([sc.say("ok")], window=4_000):
            pass
