"""The small values that a session owns: the state, the slot for a request, the inbox, the event streams, the floor."""

from __future__ import annotations

import anyio
import pytest

from selfcompact.errors import SessionBusy, SessionClosed
from selfcompact.events import AgentStart, Event, TurnStart
from selfcompact.messages import text_of, user
from selfcompact.session.inbox import Inbox
from selfcompact.session.requests import PendingRequest, RequestSlot, floor_reason
from selfcompact.session.state import SessionState
from selfcompact.session.status import percent_of
from selfcompact.session.stream import EventHub
from selfcompact.session.unwrap import unwrap_group

ONE, TWO, THREE = (TurnStart(turn=number) for number in (1, 2, 3))


# The state


def now(state: SessionState) -> str:
    """The state as a plain text, which a type checker does not narrow."""
    return state.value


async def test_a_state_is_claimed_by_one_and_settles_when_that_is_over() -> None:
    state = SessionState()
    assert now(state) == "idle"
    state.claim("running")
    with pytest.raises(SessionBusy, match="running"):
        state.claim("compacting")
    with state.within("at_boundary"):
        with state.within("compacting"):
            assert now(state) == "compacting"
        assert now(state) == "at_boundary"
    assert now(state) == "running"
    waited: list[str] = []

    async def wait() -> None:
        await state.settled()
        waited.append(now(state))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert waited == []
        state.settle()
    assert waited == ["idle"]
    with anyio.fail_after(1):
        await state.settled()
    state.claim("running")


def test_a_state_comes_back_also_from_an_error() -> None:
    state = SessionState()
    state.claim("running")
    with pytest.raises(KeyError), state.within("compacting"):
        raise KeyError
    assert now(state) == "running"


def test_closing_ends_what_may_be_begun_and_tells_what_still_settles() -> None:
    state = SessionState()
    state.claim("running")
    assert state.close()
    assert now(state) == "running"
    state.settle()
    assert now(state) == "closed"
    assert not state.close()
    with pytest.raises(SessionClosed):
        state.claim("running")
    with pytest.raises(SessionClosed):
        state.check_open()


# The slot and the inbox


def test_the_slot_holds_the_newest_request_and_gives_it_once() -> None:
    slot = RequestSlot()
    assert [slot.pending, slot.clear()] == [None, None]
    slot.put(PendingRequest("older"))
    slot.put(PendingRequest("newer"))
    assert slot.pending == PendingRequest("newer")
    assert [slot.clear(), slot.pending, slot.clear()] == [PendingRequest("newer"), None, None]


def waiting(inbox: Inbox) -> bool:
    return inbox.waiting


def test_steering_goes_together_and_first_and_follow_ups_one_by_one_when_the_run_would_end() -> None:
    inbox = Inbox()
    assert waiting(inbox) is False
    inbox.follow_up(user("later"))
    assert waiting(inbox) is True
    inbox.follow_up(user("last"))
    for text in ("now", "and this"):
        inbox.steer(user(text))

    def taken(*, run_would_end: bool) -> list[str]:
        return [text_of(message) for message in inbox.take(run_would_end=run_would_end)]

    assert taken(run_would_end=True) == ["now", "and this"]
    assert taken(run_would_end=False) == []
    assert taken(run_would_end=True) == ["later"]
    assert waiting(inbox) is True
    assert taken(run_would_end=True) == ["last"]
    assert waiting(inbox) is False
    inbox.steer(user("only steering"))
    assert waiting(inbox) is True
    assert taken(run_would_end=False) == ["only steering"]


# The floor and the figures


@pytest.mark.parametrize(
    ("tokens", "window", "floor", "refused"),
    [
        (499, 1_000, 50.0, True),
        (500, 1_000, 50.0, False),
        (501, 1_000, 50.0, False),
        (1, 1_000, 0.0, False),
        (1, None, 50.0, False),
    ],
)
def test_the_floor_refuses_below_it_and_not_at_it(tokens: int, window: int | None, floor: float, refused: bool) -> None:
    assert (floor_reason(tokens, window, floor) is not None) is refused


def test_the_floors_reason_tells_usage_and_floor() -> None:
    reason = floor_reason(1_234, 10_000, 50.5)
    assert reason is not None
    assert "12.3 % full" in reason
    assert "50.5 %" in reason


@pytest.mark.parametrize(
    ("tokens", "window", "percent"),
    [(333, 1_000, 33.3), (2, 3, 66.7), (0, 1_000, 0.0), (None, 1_000, None), (5, None, None)],
)
def test_the_share_of_the_window_is_none_when_a_figure_is_not_known(
    tokens: int | None, window: int | None, percent: float | None
) -> None:
    assert percent_of(tokens, window) == percent


# Event streams


def emitted(hub: EventHub, *events: Event) -> None:
    for event in events:
        hub.emit(event)


async def test_each_reader_gets_every_event_from_its_opening_on_in_order() -> None:
    hub = EventHub()
    emitted(hub, ONE)
    first = hub.open()
    emitted(hub, TWO)
    second = hub.open()
    emitted(hub, THREE)
    assert first.pending() == [TWO, THREE]
    assert first.pending() == []
    assert second.pending() == [THREE]


async def test_a_reader_that_waits_is_woken_by_each_event_and_by_the_end() -> None:
    hub = EventHub()
    read: list[Event] = []

    async def reader() -> None:
        async for event in stream:
            read.append(event)  # noqa: PERF401 - each at its time

    stream = hub.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader)
        for count, event in enumerate([ONE, TWO, THREE], 1):
            await anyio.wait_all_tasks_blocked()
            hub.emit(event)
            await anyio.wait_all_tasks_blocked()
            assert len(read) == count
        emitted(hub, ONE, TWO)
        hub.close()
    assert read == [ONE, TWO, THREE, ONE, TWO]


async def test_an_ended_stream_is_read_to_its_end_and_then_is_over_for_good() -> None:
    hub = EventHub()
    stream = hub.open()
    emitted(hub, ONE, TWO)
    hub.close()
    emitted(hub, THREE)
    with anyio.fail_after(1):
        assert [event async for event in stream] == [ONE, TWO]
        assert [event async for event in stream] == []
        assert [event async for event in hub.open()] == []


async def test_a_reader_that_closes_gets_nothing_more_and_the_others_do() -> None:
    hub = EventHub()
    other = hub.open()
    async with hub.open() as stream:
        emitted(hub, ONE)
    emitted(hub, TWO)
    assert stream.pending() == [ONE]
    assert other.pending() == [ONE, TWO]
    await stream.aclose()
    with anyio.fail_after(1):
        assert [event async for event in stream] == []


async def test_closing_a_stream_wakes_the_task_that_reads_it() -> None:
    stream = EventHub().open()

    async def reader() -> None:
        assert [event async for event in stream] == []

    with anyio.fail_after(1):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader)
            await anyio.wait_all_tasks_blocked()
            await stream.aclose()


async def test_reading_an_event_that_is_there_is_a_place_where_a_cancellation_arrives() -> None:
    hub = EventHub()
    stream = hub.open()
    emitted(hub, ONE)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await anext(stream)
    assert scope.cancelled_caught
    assert stream.pending() == [ONE]


async def test_what_was_kept_before_anyone_read_goes_to_the_first_reader_alone() -> None:
    hub = EventHub()
    hub.keep(AgentStart())
    hub.keep(ONE)
    assert hub.open().pending() == [AgentStart(), ONE]
    assert hub.open().pending() == []


# Errors come out as themselves


def test_a_group_of_one_comes_out_as_that_error_with_its_cause_however_deep() -> None:
    cause = KeyError("why")
    error = ValueError("mine")
    error.__cause__ = cause
    with pytest.raises(ValueError, match="mine") as caught, unwrap_group():
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [error])])
    assert caught.value is error
    assert caught.value.__cause__ is cause


def test_a_group_of_several_passes_as_it_is_and_so_does_a_plain_error() -> None:
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("one"), KeyError("two")])])
    with pytest.raises(ExceptionGroup) as caught, unwrap_group():
        raise group
    assert caught.value is group
    plain = ValueError("plain")
    with pytest.raises(ValueError, match="plain") as alone, unwrap_group():
        raise plain
    assert alone.value is plain
