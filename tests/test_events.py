"""The events: every type documented, every one readable from its JSON again, in an order that can be relied on."""

from __future__ import annotations

import re

import pytest

from selfcompact.events import Event

from . import events_doc


def test_the_events_page_is_what_the_types_say() -> None:
    assert events_doc.missing() == set()
    assert events_doc.PATH.read_text(encoding="utf-8") == events_doc.render(), "run: python -m tests.events_doc"


@pytest.mark.parametrize("event", events_doc.EXAMPLES, ids=lambda event: event.type)
def test_an_event_survives_its_json_form(event: Event) -> None:
    data = event.to_json()
    assert data["type"] == event.type
    assert type(event).from_json(data) == event
    assert all(re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", key) for key in data)


ORDER = re.compile(
    r"""
    agent_start,(message_start,message_end,)+
    (
        (compaction_start,(compaction_progress,)*compaction_end,)?
        (message_start,message_end,)*
        turn_start,
        (message_start,(message_update,)*message_end,retry_scheduled,)*
        message_start,(message_update,)*message_end,
        (tool_execution_start,(tool_execution_update,)*tool_execution_end,message_start,message_end,)*
        turn_end,
    )*
    (compaction_start,(compaction_progress,)*compaction_end,)?
    agent_end,
    """,
    re.VERBOSE,
)

ANYWHERE = {
    "agent_callable_changed",
    "auto_compaction_disarmed",
    "compaction_scheduled",
    "kernel_restarted",
    "model_changed",
    "request_dropped",
    "warning",
}


def in_order(kinds: list[str]) -> bool:
    """Whether the events of one run came in the documented order."""
    return ORDER.fullmatch("".join(f"{kind}," for kind in kinds if kind not in ANYWHERE)) is not None


def test_the_order_check_itself_can_fail() -> None:
    turn = ["turn_start", "message_start", "message_end", "turn_end"]
    assert in_order(["agent_start", "message_start", "message_end", *turn, "agent_end"])
    assert not in_order(["agent_start", "message_start", "message_end", *turn])
    assert not in_order(["agent_start", "message_start", "message_end", *turn, "compaction_start", "agent_end"])
    assert not in_order(["agent_start", *turn, "agent_end"])
