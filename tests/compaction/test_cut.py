from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcompact.compaction.planning.cut import find_cut
from selfcompact.compaction.planning.files import files_of
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.path import is_cut_point
from selfcompact.entries import Entry, MessageEntry, ThinkingLevelChangeEntry
from selfcompact.messages import Message, ToolResultMessage, UserMessage
from tests.chars_estimator import CharsEstimator
from tests.compaction.build import CUT_CASES, SESSION, answered, called, entries_of_file, logged, resulted, rounds, said


@pytest.fixture(scope="module")
def real_ledger() -> Ledger:
    return Ledger(entries_of_file(SESSION), estimator=CharsEstimator(), calibrate=False)


@pytest.mark.parametrize("case", json.loads(CUT_CASES.read_text())["cases"], ids=lambda c: str(c["keepRecentTokens"]))
def test_an_independent_implementation_cuts_a_real_session_at_the_same_place(
    case: dict[str, int], real_ledger: Ledger
) -> None:
    path = real_ledger.path
    cut = find_cut(path, case["keepRecentTokens"])
    assert cut is not None
    files = files_of(path.span(0, cut.first_kept))
    assert {
        "firstKeptEntryIndex": cut.first_kept,
        "turnStartIndex": cut.turn_start,
        "isSplitTurn": cut.is_split_turn,
        "messagesToSummarize": path.message_count(0, cut.history_end),
        "turnPrefixMessages": path.message_count(cut.history_end, cut.first_kept),
        "tokensBefore": real_ledger.estimated_tokens,
        "readFiles": len(files.read),
        "edited": len(files.edited),
        "written": len(files.written),
    } == {key: value for key, value in case.items() if key not in ("keepRecentTokens", "hasPrevious")}


def _ledger(messages: list[Message]) -> Ledger:
    return Ledger(logged(messages), estimator=CharsEstimator(), calibrate=False)


def test_nothing_is_cut_when_everything_fits() -> None:
    assert find_cut(_ledger([said("hello"), answered("hi")]).path, 100) is None


def test_a_cut_never_separates_a_result_from_its_call() -> None:
    cut = find_cut(_ledger([said("a" * 400), *rounds(1, result="r" * 400)]).path, 50)
    assert cut is not None
    assert cut.first_kept == 1


def test_one_huge_result_at_the_end_leaves_its_call_and_itself_in_the_tail() -> None:
    """Not everything is kept, and not nothing."""
    ledger = _ledger(
        [*[m for n in range(20) for m in (said(f"q{n}" * 20), answered("a" * 40))], *rounds(1, result="r" * 9000)]
    )
    cut = find_cut(ledger.path, 100)
    assert cut is not None
    assert cut.first_kept == 40


def test_one_user_message_and_many_rounds_can_be_cut_anywhere_between_rounds() -> None:
    cut = find_cut(_ledger([said("go"), *rounds(300, result="r" * 100)]).path, 1000)
    assert cut is not None
    assert (cut.turn_start, cut.is_split_turn, cut.history_end) == (0, True, 0)
    assert cut.first_kept > 500


def test_a_settings_entry_before_a_user_message_is_kept_with_it_and_splits_no_turn() -> None:
    entries: list[Entry] = logged([said("a" * 400), answered("b" * 400)])
    entries.append(ThinkingLevelChangeEntry(id="t", parent_id="00000001", timestamp="", thinking_level="low"))
    entries += [MessageEntry(id="u", parent_id="t", timestamp="", message=said("c" * 400))]
    ledger = Ledger(entries, estimator=CharsEstimator(), calibrate=False)
    cut = find_cut(ledger.path, 50)
    assert cut is not None
    assert (cut.first_kept, cut.is_split_turn) == (2, False)


MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda n: said("u" * n), st.integers(0, 400)),
        st.builds(lambda n: answered("a" * n), st.integers(0, 400)),
        st.builds(lambda n: resulted("c", "r" * n), st.integers(0, 400)),
        st.builds(lambda n: answered("", called("c", "x" * n)), st.integers(0, 400)),
    ),
    max_size=40,
)


@given(MESSAGES, st.integers(0, 2000))
def test_the_cut_is_the_one_that_walking_back_finds(messages: list[Message], keep: int) -> None:
    ledger = _ledger(messages)
    entries, estimator = list(ledger.entries), CharsEstimator()
    total, reached = 0, None
    for index in range(len(entries) - 1, -1, -1):
        total += estimator.message(messages[index])
        if total >= keep and total > 0:
            reached = index
            break
    points = [index for index, entry in enumerate(entries) if is_cut_point(entry)]
    expected = None if reached is None or not points else next((p for p in points if p >= reached), points[-1])
    cut = find_cut(ledger.path, keep)
    assert (None if cut is None else cut.first_kept) == expected
    if cut is not None:
        assert not isinstance(messages[cut.first_kept], ToolResultMessage)
        users = [i for i in range(cut.first_kept) if isinstance(messages[i], UserMessage)]
        splits = not isinstance(messages[cut.first_kept], UserMessage) and bool(users)
        assert cut.turn_start == (users[-1] if splits else None)
