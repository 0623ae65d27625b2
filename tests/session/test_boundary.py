"""The boundary's decisions, as a table."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from selfcompact.session.attempts import AttemptHistory
from selfcompact.session.boundary import BoundaryFacts, Compact, Continue, Decision, Stop, boundary
from selfcompact.session.requests import PendingRequest

ASKED = PendingRequest("keep x")
MANUAL = PendingRequest("by hand")
FULL = BoundaryFacts(estimated_tokens=101, over_threshold=True)
ONE, TWO = AttemptHistory(in_a_row=1), AttemptHistory(in_a_row=2)
CAP = AttemptHistory(completed=3)


def full(**facts: Any) -> BoundaryFacts:
    """Facts of a context that is over its threshold."""
    return dataclasses.replace(FULL, **facts)


@pytest.mark.parametrize(
    ("facts", "decision"),
    [
        (BoundaryFacts(), Continue()),
        (BoundaryFacts(wants_more=False), Stop()),
        (BoundaryFacts(pending=ASKED), Compact("requested", "keep x")),
        (BoundaryFacts(pending=ASKED, wants_more=False), Compact("requested", "keep x")),
        (BoundaryFacts(pending=ASKED, enabled=False), Compact("requested", "keep x")),
        (BoundaryFacts(pending=PendingRequest()), Compact("requested", None)),
        (BoundaryFacts(manual=MANUAL, pending=ASKED), Compact("manual", "by hand")),
        (full(), Compact("threshold")),
        (full(enabled=False), Continue()),
        (full(pending=ASKED), Compact("requested", "keep x")),
        (BoundaryFacts(estimated_tokens=10**9), Continue()),
        (BoundaryFacts(overflow="too long"), Compact("overflow", None, retry=True)),
        (full(overflow="too long", pending=ASKED), Compact("overflow", "keep x", retry=True)),
        (full(overflow="too long", pending=ASKED, manual=MANUAL), Compact("overflow", "by hand", retry=True)),
        (BoundaryFacts(overflow="too long", enabled=False), Compact("overflow", None, retry=True)),
        (
            BoundaryFacts(overflow="too long", attempts=ONE),
            Compact("overflow", None, retry=True),
        ),
        (
            BoundaryFacts(overflow="too long", attempts=AttemptHistory(in_a_row=1, for_overflow=True)),
            Stop("too long", limit=True),
        ),
        (BoundaryFacts(overflow="too long", attempts=TWO), Stop("too long", limit=True)),
        (full(attempts=TWO), Continue()),
        (BoundaryFacts(pending=ASKED, attempts=TWO), Continue()),
        (full(attempts=AttemptHistory(disarmed_until=102)), Continue()),
        (full(attempts=AttemptHistory(disarmed_until=101)), Compact("threshold")),
        (BoundaryFacts(pending=ASKED, attempts=AttemptHistory(disarmed_until=102)), Compact("requested", "keep x")),
        (BoundaryFacts(overflow="x", attempts=AttemptHistory(disarmed_until=102)), Compact("overflow", retry=True)),
        (full(attempts=CAP, max_compactions=3), Continue()),
        (BoundaryFacts(pending=ASKED, attempts=CAP, max_compactions=3), Continue()),
        (
            BoundaryFacts(manual=MANUAL, attempts=CAP, max_compactions=3),
            Compact("manual", "by hand"),
        ),
        (BoundaryFacts(overflow="x", attempts=CAP, max_compactions=3), Stop("x")),
        (
            BoundaryFacts(overflow="x", attempts=AttemptHistory(completed=2), max_compactions=3),
            Compact("overflow", retry=True),
        ),
    ],
)
def test_each_situation_leads_to_its_decision(facts: BoundaryFacts, decision: Decision) -> None:
    assert boundary(facts) == decision


def test_no_combination_of_facts_compacts_more_than_the_limit_allows() -> None:
    """At the limit nothing compacts, whatever is asked for."""
    for pending, manual, overflow, enabled, wants_more in itertools.product(
        [None, ASKED], [None, MANUAL], [None, "too long"], [True, False], [True, False]
    ):
        facts = full(
            pending=pending,
            manual=manual,
            overflow=overflow,
            enabled=enabled,
            wants_more=wants_more,
            attempts=TWO,
        )
        assert not isinstance(boundary(facts), Compact)
