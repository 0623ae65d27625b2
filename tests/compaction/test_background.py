from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import pytest

from selfcompact.compaction.ahead import Background, Prepared
from selfcompact.compaction.commit import compaction_entry
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Skip
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.compaction.summary.summarisers import OfflineSummariser, SummaryReply
from selfcompact.errors import AuthenticationFailed
from selfcompact.session.history import build_history, validate_history
from selfcompact.settings.compaction import CompactionSettings
from tests.compaction.build import Answer, PlayedSummariser, logged, rounds, said, sections, sections_or_prefix, turns
from tests.requests_sent import parts_of

SETTINGS = CompactionSettings(keep_recent_tokens=400, offline_fallback=False)


@dataclass
class Gated(PlayedSummariser):
    """Answers when its gate is open; tells when it is asked and when a request was cancelled."""

    gate: anyio.Event = field(default_factory=anyio.Event)
    asked: anyio.Event = field(default_factory=anyio.Event)
    cancelled: int = 0

    async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
        self.asked.set()
        try:
            await self.gate.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return await super().ask(request, on_text)


def is_running(ahead: Background) -> bool:
    return ahead._draft is not None and not ahead._draft.done.is_set()


def grown(ledger: Ledger, count: int, *, start: int = 700) -> None:
    for entry in logged(rounds(count, start=start), start=start):
        ledger.append(entry)


def ledger_of_turns() -> Ledger:
    return Ledger(logged(turns(30)))


def background(summariser: PlayedSummariser, settings: CompactionSettings = SETTINGS) -> Background:
    return Background(summariser, settings, window=200_000)


async def prepared(ahead: Background, ledger: Ledger, instructions: str | None = None) -> Prepared:
    found = await ahead.finish(ledger, instructions=instructions)
    assert isinstance(found, Prepared)
    return found


async def test_a_summary_begun_when_it_was_asked_for_is_taken_at_the_boundary_without_another_request() -> None:
    summariser, ledger = Gated([sections_or_prefix]), ledger_of_turns()
    ahead = background(summariser)
    async with anyio.create_task_group() as group:
        assert ahead.start(group, ledger, instructions="keep `zulu`")
        await summariser.asked.wait()
        assert is_running(ahead)
        grown(ledger, 1)
        summariser.gate.set()
        found = await prepared(ahead, ledger, "keep `zulu`")
    asked = len(summariser.requests)
    assert found.ahead
    assert found.summary.requests == asked
    assert found.summary.kept.missing == ("zulu",)
    entry = compaction_entry(found.plan, found.summary, parent_id=None)
    ledger.append(entry)
    assert validate_history(build_history(ledger.entries)) == []


async def test_the_cut_made_ahead_serves_when_the_tail_grew_a_little_and_nothing_is_lost() -> None:
    summariser, ledger = Gated([sections_or_prefix]), ledger_of_turns()
    ahead = background(summariser)
    async with anyio.create_task_group() as group:
        ahead.start(group, ledger)
        grown(ledger, 2)
        summariser.gate.set()
        found = await prepared(ahead, ledger)
    everything = [entry.id for entry in ledger.entries]
    assert [e.id for e in found.plan.removed.entries] + [e.id for e in found.plan.kept.entries] == everything
    summarised = "\n".join(parts_of(request.prompt)["conversation"] for request in summariser.requests)
    assert summarised.count("[User]:") == sum(1 for m in found.plan.removed if m.role == "user")


async def test_a_tail_that_grew_much_extends_the_text_by_what_lies_between_the_cuts() -> None:
    summariser, ledger = Gated([sections("Ahead."), sections("Ahead.")]), Ledger(logged([said("go"), *rounds(60)]))
    ahead = background(summariser)
    async with anyio.create_task_group() as group:
        ahead.start(group, ledger)
        summariser.gate.set()
        await summariser.asked.wait()
        grown(ledger, 200)
        found = await prepared(ahead, ledger)
    first, last = summariser.requests[0], summariser.requests[-1]
    assert found.ahead
    assert found.summary.requests == len(summariser.requests) == 2
    assert parts_of(last.prompt)["previous-summary"].startswith("## Goal\nAhead.")
    assert "Step 3." in parts_of(first.prompt)["conversation"]
    assert "Step 3." not in parts_of(last.prompt)["conversation"]
    assert "Step 750." in parts_of(last.prompt)["conversation"]
    together = "".join(parts_of(request.prompt)["conversation"] for request in summariser.requests)
    assert all(f"Step {n}." in together for n in range(60))


async def test_other_instructions_cancel_what_was_begun_and_begin_anew() -> None:
    summariser, ledger = Gated([sections_or_prefix]), ledger_of_turns()
    ahead = background(summariser)
    async with anyio.create_task_group() as group:
        ahead.start(group, ledger, instructions="keep a")
        await summariser.asked.wait()
        ahead.start(group, ledger, instructions="keep b")
        summariser.gate.set()
        found = await prepared(ahead, ledger, "keep b")
    assert summariser.cancelled >= 1
    assert found.ahead
    assert all("keep b" in request.prompt for request in summariser.requests)


async def test_instructions_that_differ_at_the_boundary_are_honoured_and_the_waste_is_reported() -> None:
    summariser, ledger = Gated([sections_or_prefix]), ledger_of_turns()
    ahead = background(summariser)
    async with anyio.create_task_group() as group:
        ahead.start(group, ledger)
        summariser.gate.set()
        with anyio.fail_after(5):
            while is_running(ahead):
                await anyio.lowlevel.checkpoint()
        begun = len(summariser.requests)
        found = await prepared(ahead, ledger, "keep `later`")
    assert not found.ahead
    assert "keep `later`" in summariser.requests[-1].prompt
    assert found.summary.requests == len(summariser.requests) == 2 * begun
    assert found.summary.usage.input == 100 * len(summariser.requests)


async def test_cancelling_stops_the_request_and_leaves_nothing_for_the_boundary() -> None:
    summariser, ledger = Gated([sections_or_prefix]), ledger_of_turns()
    ahead = background(summariser)
    async with anyio.create_task_group() as group:
        ahead.start(group, ledger)
        await summariser.asked.wait()
        ahead.cancel()
    assert summariser.cancelled >= 1
    assert not is_running(ahead)
    summariser.gate.set()
    assert not (await prepared(ahead, ledger)).ahead


async def test_cancelling_the_boundary_cancels_what_runs_ahead() -> None:
    summariser, ledger = Gated([sections_or_prefix]), ledger_of_turns()
    ahead = background(summariser)
    async with anyio.create_task_group() as group:
        ahead.start(group, ledger)
        await summariser.asked.wait()
        with anyio.move_on_after(0.01):
            await ahead.finish(ledger)
        assert not is_running(ahead)
    assert summariser.cancelled >= 1


async def test_nothing_runs_ahead_when_it_is_switched_off_needs_no_model_or_has_nothing_to_do() -> None:
    async with anyio.create_task_group() as group:
        off = background(PlayedSummariser([sections()]), SETTINGS.model_copy(update={"background": False}))
        assert not off.start(group, ledger_of_turns())
        assert not Background(OfflineSummariser(), SETTINGS, window=None).start(group, ledger_of_turns())
        idle = background(PlayedSummariser([sections()]))
        assert not idle.start(group, Ledger(logged(turns(1))))
        assert isinstance(await idle.finish(Ledger(logged(turns(1)))), Skip)


async def test_a_provider_that_failed_ahead_fails_the_boundary_as_itself() -> None:
    answers: list[Answer] = [AuthenticationFailed("bad key", status=401)]
    ahead = background(PlayedSummariser(answers))
    async with anyio.create_task_group() as group:
        ahead.start(group, ledger_of_turns())
        with pytest.raises(AuthenticationFailed):
            await ahead.finish(ledger_of_turns())


async def test_a_draft_that_fell_back_to_offline_is_asked_for_again_at_the_boundary() -> None:
    ledger = Ledger(logged([said("go"), *rounds(60)]))
    answers: list[Answer] = [AuthenticationFailed("bad key", status=401), sections()]
    ahead = background(PlayedSummariser(answers), SETTINGS.model_copy(update={"offline_fallback": True}))
    async with anyio.create_task_group() as group:
        ahead.start(group, ledger)
        found = await prepared(ahead, ledger)
    assert (found.ahead, found.summary.offline, found.summary.text) == (False, False, sections())


async def test_a_compaction_that_came_between_makes_the_draft_worthless() -> None:
    summariser, ledger = Gated([sections_or_prefix]), ledger_of_turns()
    ahead = background(summariser)
    async with anyio.create_task_group() as group:
        ahead.start(group, ledger)
        summariser.gate.set()
        other = await prepared(background(PlayedSummariser([sections_or_prefix])), ledger)
        ledger.append(compaction_entry(other.plan, other.summary, parent_id=None))
        grown(ledger, 80)
        found = await prepared(ahead, ledger)
    assert not found.ahead
    assert found.plan.previous_summary is not None
