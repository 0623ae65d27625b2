"""What the limits and brakes read from the log, entry by entry."""

from __future__ import annotations

from typing import Any

import pytest

from selfcompact.codec import camel
from selfcompact.entries import CompactionEntry, CustomEntry, Entry, MessageEntry
from selfcompact.messages import Message
from selfcompact.session.attempts import (
    ATTEMPT,
    MATERIAL_SHARE,
    MAX_FAILURES,
    MAX_INEFFECTIVE,
    MIN_SAVED_SHARE,
    AttemptAccount,
    AttemptHistory,
    attempt_history,
    hardly_helped,
)
from tests.compaction.build import answered, said


def compacted(before: int = 1_000, **noted: Any) -> CompactionEntry:
    return CompactionEntry(
        id="c",
        timestamp="t",
        summary="s",
        first_kept_entry_id="k",
        tokens_before=before,
        details={"selfcompact": {camel(name): value for name, value in noted.items()}},
    )


def message(told: Message) -> MessageEntry:
    return MessageEntry(id="m", timestamp="t", message=told)


def attempt(status: str = "failed", reason: str = "threshold", **more: Any) -> CustomEntry:
    return CustomEntry(
        id="a",
        timestamp="t",
        custom_type=ATTEMPT,
        data={"status": status, "reason": reason, "tokensBefore": 900} | more,
    )


def test_the_numbers_of_the_brakes_are_those_of_the_docs() -> None:
    assert (MAX_FAILURES, MAX_INEFFECTIVE, MIN_SAVED_SHARE, MATERIAL_SHARE) == (3, 2, 0.05, 0.1)


def test_a_session_without_compactions_has_no_history() -> None:
    assert attempt_history([message(said("q")), message(answered("a"))]) == AttemptHistory()


@pytest.mark.parametrize(
    ("between", "in_a_row", "for_overflow"),
    [
        ([], 2, True),
        ([message(said("more"))], 2, True),
        ([message(answered("half", stop_reason="aborted"))], 2, True),
        ([message(answered("half", stop_reason="error"))], 2, True),
        ([message(answered("whole"))], 1, False),
        ([message(answered("cut", stop_reason="length"))], 1, False),
    ],
    ids=["nothing", "a question", "an aborted response", "a failed response", "a response", "a response cut off"],
)
def test_only_a_response_that_carries_an_answer_begins_the_count_anew(
    between: list[Entry], in_a_row: int, for_overflow: bool
) -> None:
    account = AttemptAccount([compacted(reason="overflow"), *between, compacted(reason="threshold")])
    assert account.in_a_row == account.history().in_a_row == in_a_row
    assert account.history().for_overflow is for_overflow


def test_a_compaction_remembers_those_before_it_that_left_the_live_path() -> None:
    assert attempt_history([compacted(in_a_row=4)]).in_a_row == 4
    assert attempt_history([compacted(), compacted(), compacted(in_a_row=1)]).in_a_row == 3


@pytest.mark.parametrize(
    ("entries", "completed"),
    [([], 0), ([compacted()], 1), ([compacted(window_number=7)], 7), ([compacted(window_number=7), attempt()], 7)],
)
def test_the_compactions_of_the_whole_session_are_counted_by_the_newest_record(
    entries: list[Entry], completed: int
) -> None:
    assert attempt_history(entries).completed == completed


@pytest.mark.parametrize(("before", "after", "hardly"), [(1_000, 950, False), (1_000, 951, True), (1_000, 1_200, True)])
def test_a_compaction_that_saves_exactly_the_share_has_helped(before: int, after: int, hardly: bool) -> None:
    assert hardly_helped(before, after) is hardly


@pytest.mark.parametrize(
    ("entry", "ineffective"),
    [
        (compacted(tokens_after=100), 0),
        (compacted(tokens_after=100, ineffective_before=5), 0),
        (compacted(tokens_after=990), 1),
        (compacted(tokens_after=990, ineffective_before=1), 2),
        (compacted(ineffective_before=1), 0),
    ],
)
def test_compactions_that_hardly_helped_are_counted_until_one_helps(entry: CompactionEntry, ineffective: int) -> None:
    assert attempt_history([entry]).ineffective_in_a_row == ineffective


def test_two_compactions_that_hardly_helped_rest_the_threshold_until_a_tenth_was_added() -> None:
    first = compacted(tokens_after=990)
    assert attempt_history([first]).disarmed_until is None
    history = attempt_history([first, compacted(tokens_after=980, ineffective_before=1)])
    assert history.disarmed_until == 1_078
    assert history.disarmed_cause is not None
    assert "2 compactions in a row saved less than 5% of the context" in history.disarmed_cause


def test_three_failures_at_the_threshold_rest_it_until_a_tenth_was_added_to_the_last_ones_context() -> None:
    failures = [attempt(tokensBefore=500), attempt(tokensBefore=700), attempt(tokensBefore=900)]
    assert attempt_history(failures[:2]).disarmed_until is None
    history = attempt_history(failures)
    assert history.disarmed_until == 990
    assert history.disarmed_cause == "3 automatic compactions in a row failed"
    assert attempt_history([*failures, attempt(tokensBefore=1_000)]).disarmed_until == 1_100


@pytest.mark.parametrize(
    "other",
    [
        attempt(reason="requested"),
        attempt(reason="overflow"),
        attempt(status="vetoed"),
        attempt(status="interrupted"),
        CustomEntry(id="x", timestamp="t", custom_type="else", data={"status": "failed", "reason": "threshold"}),
        CustomEntry(id="x", timestamp="t", custom_type=ATTEMPT, data="failed"),
    ],
)
def test_nothing_but_a_failure_at_the_threshold_counts_for_the_breaker(other: Entry) -> None:
    assert attempt_history([attempt(), attempt(), other]).disarmed_until is None
    assert attempt_history([attempt(), other, attempt(), attempt()]).disarmed_until == 990


def test_a_completed_compaction_closes_the_breaker() -> None:
    assert attempt_history([attempt(), attempt(), attempt(), compacted()]).disarmed_until is None
    assert attempt_history([attempt(), attempt(), compacted(), attempt()]).disarmed_until is None


@pytest.mark.parametrize("size", ["many", None, True, 1.5])
def test_a_record_without_a_readable_size_lets_go_at_once(size: object) -> None:
    assert attempt_history([attempt(tokensBefore=size)] * 3).disarmed_until == 0
