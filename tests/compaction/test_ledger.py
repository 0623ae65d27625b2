from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from selfcompact.compaction.planning.ledger import Ledger, is_trustworthy
from selfcompact.compaction.style.frame import framed
from selfcompact.entries import CompactionEntry, CustomEntry, Entry, MessageEntry
from selfcompact.messages import Usage
from selfcompact.text.tokens import ScriptAwareEstimator
from tests.chars_estimator import CharsEstimator
from tests.compaction.build import answered, called, logged, resulted, rounds, said, turns


def compaction(first_kept: str, *, summary: str = "what happened", entry_id: str = "c0") -> CompactionEntry:
    return CompactionEntry(
        id=entry_id, parent_id=None, timestamp="", summary=summary, first_kept_entry_id=first_kept, tokens_before=1
    )


def _appended(ledger: Ledger, *entries: Entry) -> Ledger:
    for entry in entries:
        ledger.append(entry)
    return ledger


def test_before_any_report_the_estimate_counts_the_overhead_of_system_prompt_and_tools() -> None:
    bare, heavy = Ledger(logged([said("hello")])), Ledger(logged([said("hello")]), overhead_tokens=10_000)
    assert heavy.estimated_tokens == bare.estimated_tokens + 10_000
    assert bare.reported_tokens == bare.estimated_tokens > 0


def test_a_report_is_the_anchor_and_what_came_after_it_is_added() -> None:
    ledger = Ledger(logged([said("q"), answered("", called("c1"), usage=Usage(input=900, output=50, cache_read=50))]))
    assert ledger.estimated_tokens == 1000
    ledger.append(logged([resulted("c1", "word " * 500)], start=2)[0])
    assert 1400 < ledger.estimated_tokens < 1700


def test_reports_of_failed_aborted_or_empty_responses_are_not_trusted() -> None:
    for reason in ("error", "aborted"):
        assert not is_trustworthy(answered("x", usage=Usage(input=5), stop_reason=reason))
    assert not is_trustworthy(answered("x", usage=Usage()))
    assert not is_trustworthy(answered("x"))
    assert is_trustworthy(answered("x", usage=Usage(input=5)))


def test_a_report_from_before_the_compaction_is_never_used() -> None:
    """The old figure is replaced in the same step, and only a fresh report is told."""
    ledger = Ledger(logged([said("q"), answered("a", usage=Usage(input=90_000, output=10))]))
    before = ledger.reported_tokens
    assert before == 90_010
    ledger.append(compaction("00000001"))
    after = ledger.reported_tokens
    assert after is None
    assert 0 < ledger.estimated_tokens < 1000
    ledger.append(logged([answered("b", usage=Usage(input=500, output=10))], start=5)[0])
    assert ledger.reported_tokens == 510


def test_billed_output_that_is_not_in_the_message_is_not_counted_for_the_next_request() -> None:
    ledger = Ledger(logged([said("q"), answered("yes", usage=Usage(input=1000, output=8000))]))
    assert 1000 < ledger.estimated_tokens < 1050


def test_a_compaction_moves_the_live_path_to_its_first_kept_entry() -> None:
    ledger = _appended(Ledger(logged(turns(5))), compaction("00000010"))
    assert ledger.entries[0].id == "00000010"
    assert ledger.newest_compaction is not None
    assert ledger.compaction_position() == len(ledger.entries) - 1


def test_a_compaction_whose_first_kept_entry_is_unknown_keeps_nothing_before_it() -> None:
    ledger = _appended(Ledger(logged(turns(2))), compaction("nowhere"))
    assert [entry.id for entry in ledger.entries] == ["c0"]


def test_the_estimate_after_a_compaction_counts_the_summary_with_its_frame() -> None:
    ledger = _appended(Ledger(logged(turns(2)), estimator=CharsEstimator()), compaction("nowhere", summary="s" * 4000))
    assert ledger.estimated_tokens == CharsEstimator().text(framed("s" * 4000))


def test_entries_that_are_no_messages_weigh_nothing() -> None:
    ledger = Ledger(logged([said("q")]))
    before = ledger.estimated_tokens
    ledger.append(CustomEntry(id="x", parent_id=None, timestamp="", custom_type="selfcompact.note", data="d" * 4000))
    assert ledger.estimated_tokens == before


def test_estimates_are_scaled_by_what_reports_say_about_them() -> None:
    history = turns(60)
    estimator = ScriptAwareEstimator()
    own = sum(map(estimator.message, history))
    ledger = Ledger(logged([*history, answered("a", usage=Usage(input=2 * own, output=5))]))
    assert abs(ledger.ratio - 2.0) < 0.01
    assert ledger.scaled(100) == 200
    before = ledger.estimated_tokens
    ledger.append(MessageEntry(id="n", parent_id=None, timestamp="", message=said("word " * 1000)))
    assert ledger.estimated_tokens - before == round(2.0 * estimator.message(said("word " * 1000)))


def test_a_report_that_is_nonsense_moves_estimates_only_within_bounds() -> None:
    for reported, ratio in ((10**9, 3.0), (1, 0.5)):
        ledger = Ledger(logged([*turns(60), answered("a", usage=Usage(input=reported, output=5))]))
        assert ledger.ratio == ratio


@given(st.lists(st.integers(0, 30), max_size=4), st.integers(1, 30))
def test_appending_one_by_one_and_reading_all_at_once_give_the_same_account(cuts: list[int], extra: int) -> None:
    entries: list[Entry] = logged([said("go"), *rounds(40)])
    for number, cut in enumerate(cuts):
        entries.append(compaction(f"{cut:08x}", entry_id=f"c{number}"))
        entries += logged(rounds(extra), start=1000 * (number + 1))
    one_by_one = _appended(Ledger(overhead_tokens=7), *entries)
    live = Ledger(one_by_one.entries, overhead_tokens=7)
    assert live.estimated_tokens == one_by_one.estimated_tokens
    assert list(live.entries) == list(one_by_one.entries)
