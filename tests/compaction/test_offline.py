from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcompact.compaction.offline.facts import errors, is_decision, is_rule, names_defined, open_questions, statements
from selfcompact.compaction.offline.writing import fitting_tokens, offline_summary
from selfcompact.compaction.planning.cut import Cut
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, plan_at
from selfcompact.compaction.style.contract import SECTIONS_CONTRACT, check, parse_sections
from selfcompact.messages import Message
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.text.tokens import ScriptAwareEstimator
from tests.compaction.build import answered, called, logged, resulted, rounds, said, turns

TRACEBACK = (
    "---------------------------------------------------------------------------\n"
    "ValueError                                Traceback (most recent call last)\n"
    "Cell In[3], line 1\n----> 1 load('a.csv')\n\nValueError: column 'price' is missing in a.csv"
)


def planned(messages: list[Message], instructions: str | None = None) -> Plan:
    ledger = Ledger(logged(messages))
    return plan_at(ledger, Cut(len(messages)), CompactionSettings(), 200_000, instructions=instructions)


def summarised(messages: list[Message], instructions: str | None = None, budget: int = 4_000) -> str:
    return offline_summary(planned(messages, instructions), budget_tokens=budget)


def section(text: str, name: str) -> str:
    return next(part.body for part in parse_sections(text)[1] if part.heading == name)


def test_the_form_is_that_of_the_sections_style() -> None:
    checked = check(summarised(turns(10)), SECTIONS_CONTRACT, message_count=40)
    assert (checked.repairs, checked.violations) == ((), ())


def test_the_goal_is_the_users_own_words_and_the_newest_request_is_whole() -> None:
    text = summarised(
        [said("Port the parser to the new grammar."), *rounds(3), said("Now also fix\nthe lexer."), *rounds(2)]
    )
    assert "Port the parser to the new grammar." in section(text, "Goal")
    assert "Newest request: Now also fix\n  the lexer." in section(text, "Goal")


def test_rules_of_the_user_are_kept_word_for_word() -> None:
    text = summarised([said("Refactor it. Never touch legacy/. Always run make lint before you say done."), *rounds(3)])
    assert "Never touch legacy/." in section(text, "Constraints & Preferences")
    assert "Always run make lint before you say done." in section(text, "Constraints & Preferences")


def test_every_distinct_error_is_there_word_for_word_with_its_last_state() -> None:
    again = "load('a.csv')"
    messages: list[Message] = [
        said("go"),
        answered("", called("1", again)),
        resulted("1", TRACEBACK),
        answered("", called("2", again)),
        resulted("2", "ok, 300 rows"),
        answered("", called("3", "import nope")),
        resulted("3", "ModuleNotFoundError: No module named 'nope'", is_error=True),
        answered("", called("4", "import nope")),
        resulted("4", "ModuleNotFoundError: No module named 'nope'", is_error=True),
    ]
    context = section(summarised(messages), "Critical Context")
    assert (
        "Error (the same call went well later) in ipython: load('a.csv'): ValueError: column 'price' is missing"
        in context
    )
    assert "Error (not seen to be solved, 2 times)" in context
    assert "No module named 'nope'" in section(summarised(messages), "Progress").split("### Blocked")[1]


def test_an_output_that_only_mentions_an_error_is_none() -> None:
    assert errors([answered("", called("1", "x")), resulted("1", "0 errors, ValueError: is a class")]) == ()


def test_every_modified_file_is_named() -> None:
    calls = [answered("", called(f"e{n}", name="edit", path=f"src/m{n}.py")) for n in range(30)]
    answers = [resulted(f"e{n}", "ok") for n in range(30)]
    messages: list[Message] = [said("go"), *(m for pair in zip(calls, answers, strict=True) for m in pair)]
    assert all(f"src/m{n}.py" in summarised(messages, budget=1_000) for n in range(30))


def test_names_made_in_cells_are_told_with_what_they_were_made_of() -> None:
    cells = [
        "import os\nrows, cols = [], {}\nclass Table: pass",
        "%%time\ndef load(path): ...\n!ls\nrows = load('a')",
        "broken(",
    ]
    names = names_defined([answered("", called(str(n), cell)) for n, cell in enumerate(cells)])
    assert names == {"cols": "{}", "Table": "class", "load": "function", "rows": "load('a')"}


def test_what_the_last_cells_printed_is_quoted() -> None:
    messages: list[Message] = [said("go"), *rounds(30, code="count({n})", result="looking\n{n} rows")]
    done = section(summarised(messages), "Progress")
    assert "`count(29)` printed last: 29 rows" in done
    assert "count(3)`" not in done


@pytest.mark.parametrize(
    ("messages", "questions"),
    [
        ([said("a?"), answered("Shall I delete it? I wait.")], ("Shall I delete it?",)),
        ([said("Why does it fail?"), *rounds(1)[1:]], ("Why does it fail?",)),
        ([answered("Which one?"), said("the first"), answered("done")], ()),
    ],
)
def test_open_questions_are_those_that_nobody_answered(messages: list[Message], questions: tuple[str, ...]) -> None:
    assert open_questions(messages) == questions


def test_what_instructions_ask_for_is_told() -> None:
    assert "Asked to keep: keep the failing tests" in summarised(turns(5), "keep the failing tests")


def test_a_later_amount_takes_the_place_of_the_earlier_one() -> None:
    text = summarised(
        [said("The budget cap is $300 in total."), *rounds(2), said("The budget cap is $750 in total."), *rounds(2)]
    )
    assert "$750" in text
    assert "cap is $300" not in section(text, "Constraints & Preferences") + section(text, "Critical Context")


def test_two_sentences_that_only_look_alike_both_stay() -> None:
    text = summarised([said("Case A-101 must stay green."), said("Case B-202 must stay green."), *rounds(2)])
    assert "A-101" in text
    assert "B-202" in text


def test_a_pasted_log_is_not_taken_for_rules() -> None:
    log = "\n".join(f"line {n}: you should always see this" for n in range(500))
    rules = section(summarised([said(f"Look at this:\n{log}"), *rounds(2)]), "Constraints & Preferences")
    assert rules.count("should always") < 80


def test_sentences_of_one_line_stay_together() -> None:
    assert statements("The cap is 5. Never exceed it.\nNext line.") == ("The cap is 5. Never exceed it.", "Next line.")
    assert is_rule("你不要删除这个文件")
    assert not is_rule("The file has 3 lines")
    assert is_decision("We take sqlite instead of postgres because it needs no server")


def test_an_earlier_summary_is_merged_and_never_nested() -> None:
    first = summarised([said("Port it. Never use eval."), *rounds(4)])
    found = planned([said("Now test it."), *rounds(4)])
    object.__setattr__(found, "previous_summary", first)
    second = offline_summary(found, budget_tokens=4_000)
    assert second.count("## Goal") == 1
    assert section(second, "Constraints & Preferences").count("Never use eval.") == 1
    assert "Newest request: Now test it." in second
    assert "Earlier request" in second or "Port it." in section(second, "Goal")


def work_on(turns: int) -> int:
    """Function calls that the offline summary of so many turns makes."""
    messages: list[Message] = []
    for n in range(turns):
        messages += [
            said(f"Request {n}: change module_{n}.py and keep it under {n} lines."),
            answered(
                f"I changed module_{n}.py because it was too long.",
                called(f"c{n}", f"data_{n} = open('f{n}.txt').read()"),
            ),
            resulted(f"c{n}", TRACEBACK if n % 5 == 0 else "fine\n" * 20),
            answered(f"Fixed module_{n}.py, 12 tests passed."),
        ]
    found = planned(messages)
    calls = 0

    def count(_frame: object, kind: str, _argument: object) -> None:
        nonlocal calls
        calls += kind == "call"

    sys.setprofile(count)
    try:
        text = offline_summary(found, budget_tokens=fitting_tokens(found, 13_000))
    finally:
        sys.setprofile(None)
    assert f"Request {turns - 1}" in text
    return calls


def test_the_work_grows_no_faster_than_the_number_of_messages() -> None:
    assert work_on(320) < 5 * work_on(80)


MESSAGES = st.lists(
    st.one_of(
        st.builds(said, st.text(max_size=200)),
        st.builds(answered, st.text(max_size=200)),
        st.builds(lambda code: answered("", called("c", code)), st.text(max_size=100)),
        st.builds(resulted, st.just("c"), st.text(max_size=200), is_error=st.booleans()),
    ),
    min_size=1,
    max_size=15,
)


@settings(deadline=None)
@given(MESSAGES, st.integers(200, 3_000), st.text(max_size=100))
def test_it_never_fails_keeps_the_form_and_stays_in_its_budget(
    messages: list[Message], budget: int, words: str
) -> None:
    text = summarised(messages, words, budget)
    checked = check(text, SECTIONS_CONTRACT)
    assert checked.repairs == ()
    assert ScriptAwareEstimator().text(text) <= budget * 1.1 + 60
