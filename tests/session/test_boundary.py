"""The boundary's decisions, as a table."""

from __future__ import annotations

import itertools

import pytest

from selfcompact.session.boundary import BoundaryFacts, Compact, Continue, Decision, Stop, boundary
from selfcompact.session.requests import PendingRequest

ASKED = PendingRequest(1, "keep x")
MANUAL = PendingRequest(1, "by hand")
FULL = {"estimated_tokens": 101, "threshold_tokens": 100}


@pytest.mark.parametrize(
    ("facts", "decision"),
    [
        (BoundaryFacts(), Continue()),
        (BoundaryFacts(wants_more=False), Stop()),
        (BoundaryFacts(pending=ASKED), Compact("requested", "keep x")),
        (BoundaryFacts(pending=ASKED, wants_more=False), Compact("requested", "keep x")),
        (BoundaryFacts(pending=ASKED, enabled=False), Compact("requested", "keep x")),
        (BoundaryFacts(pending=PendingRequest(1)), Compact("requested", None)),
        (BoundaryFacts(manual=MANUAL, pending=ASKED), Compact("manual", "by hand")),
        (BoundaryFacts(**FULL), Compact("threshold")),
        (BoundaryFacts(**FULL, enabled=False), Continue()),
        (BoundaryFacts(**FULL, pending=ASKED), Compact("requested", "keep x")),
        (BoundaryFacts(estimated_tokens=100, threshold_tokens=100), Continue()),
        (BoundaryFacts(estimated_tokens=10**9, threshold_tokens=None), Continue()),
        (BoundaryFacts(overflow="too long"), Compact("overflow", None, retry=True)),
        (BoundaryFacts(overflow="too long", pending=ASKED, **FULL), Compact("overflow", "keep x", retry=True)),
        (BoundaryFacts(overflow="too long", enabled=False), Compact("overflow", None, retry=True)),
        (BoundaryFacts(overflow="too long", attempts_in_a_row=1), Compact("overflow", None, retry=True)),
        (BoundaryFacts(overflow="too long", overflow_compacted=True), Stop("too long", limit=True)),
        (BoundaryFacts(overflow="too long", attempts_in_a_row=2), Stop("too long", limit=True)),
        (BoundaryFacts(**FULL, attempts_in_a_row=2), Continue()),
        (BoundaryFacts(pending=ASKED, attempts_in_a_row=2), Continue()),
    ],
)
def test_each_situation_leads_to_its_decision(facts: BoundaryFacts, decision: Decision) -> None:
    """FAULTS 1, 2, 14, 66; CONTRACT 3."""
    assert boundary(facts) == decision


def test_no_combination_of_facts_compacts_more_than_the_limit_allows() -> None:
    """FAULTS 1: at the limit nothing compacts, whatever is asked for."""
    for pending, manual, overflow, enabled, wants_more in itertools.product(
        [None, ASKED], [None, MANUAL], [None, "too long"], [True, False], [True, False]
    ):
        facts = BoundaryFacts(
            pending=pending,
            manual=manual,
            overflow=overflow,
            enabled=enabled,
            wants_more=wants_more,
            attempts_in_a_row=2,
            **FULL,
        )
        assert not isinstance(boundary(facts), Compact)
