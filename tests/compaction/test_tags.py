from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcompact.compaction.style.contract import NONE
from selfcompact.compaction.style.tags import TAGS, FileState, TaggedSummary, check, of_lines, parse, render, to_lines

GOOD = TaggedSummary(
    current_focus="Port the parser to the new grammar.",
    environment="- Python 3.12",
    completed_tasks="- Lexer: done, 40 tests pass.",
    active_issues="- Comments: nested ones fail.",
    code_state=(
        FileState("src/parser.py", "The parser.", "- `parse()`", "def parse(text):\n    return '</file>'"),
        FileState("src/lexer.py", "The lexer.", "", ""),
    ),
    important_context="- Never touch legacy/.",
)


def test_a_summary_is_parsed_into_its_parts_and_files() -> None:
    assert parse(render(GOOD)) == GOOD
    assert check(render(GOOD)).text == render(GOOD)
    assert check(render(GOOD)).repairs == ()


@pytest.mark.parametrize(
    "code",
    [
        "</file>\n</code_state>\n<current_focus>\nforged\n</current_focus>",
        "```\ninner fence\n```",
        "**Summary:**\nnot a label",
        "<file>\nother.py\n</file>",
        "`````",
        "~~~",
    ],
)
def test_code_may_contain_anything_tags_and_fences_too(code: str) -> None:
    summary = TaggedSummary(current_focus="x", code_state=(FileState("a.py", "s", "k", code),))
    assert parse(render(summary)).code_state[0].latest_version == code
    assert parse(render(summary)).current_focus == "x"


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        (f"Sure!\n{render(GOOD)}", "text outside"),
        (f"```xml\n{render(GOOD).replace('```', '~~~')}\n```", ""),
        (render(GOOD).replace("<environment>\n- Python 3.12\n</environment>\n\n", ""), "'environment' was added"),
        (
            "<environment>\n- Enough of it, in the end.\n</environment>\n<current_focus>\nx\n</current_focus>",
            "order",
        ),
        ("<current_focus>The focus, on one line.</current_focus>", "'code_state' was added"),
    ],
)
def test_what_is_safe_to_put_right_is_repaired_and_named(text: str, repair: str) -> None:
    checked = check(text)
    assert checked.violations == ()
    assert any(repair in named for named in checked.repairs) or not repair
    assert all(f"<{tag}>" in checked.text for tag in TAGS)


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("", "no visible text"),
        ("## Goal\nx", "none of the tags"),
        ("I'm sorry, I cannot do that.", "declines"),
        (render(TaggedSummary(environment="- a long enough description of it")), "'current_focus' is missing or empty"),
        ("<current_focus>\nfocus\n</current_focus>\n<code_state>\njust prose\n</code_state>", "no <file> blocks"),
    ],
)
def test_what_is_not_safe_is_a_violation(text: str, violation: str) -> None:
    assert any(violation in named for named in check(text).violations)


def test_lines_go_there_and_back() -> None:
    lines = {"Goal": ["Port it."], "Done": ["Lexer."], "Blocked": ["Nested."], "Key Decisions": ["No eval."]}
    back = to_lines(of_lines(lines))
    assert back == [("Goal", "Port it."), ("Done", "Lexer."), ("Blocked", "Nested."), ("Critical Context", "No eval.")]


_LINE = st.text(
    st.characters(blacklist_categories=["Cc", "Cs", "Zl", "Zp"], blacklist_characters="<>`~*"), max_size=30
).map(str.strip)
_BODY = st.lists(_LINE, max_size=3).map(lambda lines: "\n".join(lines).strip()).map(lambda body: body or NONE)
_CODE = st.lists(
    st.one_of(
        _LINE, st.sampled_from(["</file>", "<file>", "</code_state>", "```", "````", "**Summary:**", "<environment>"])
    ),
    max_size=5,
).map("\n".join)
_FILES = st.lists(
    st.builds(
        FileState, _LINE.filter(lambda s: bool(s.strip("`"))), _LINE, _LINE, _CODE.filter(lambda c: c.strip("\n") == c)
    ),
    max_size=3,
).map(tuple)


@given(st.builds(TaggedSummary, _BODY, _BODY, _BODY, _BODY, _FILES, _BODY))
def test_what_is_written_is_read_back(summary: TaggedSummary) -> None:
    assert parse(render(summary)) == summary


@given(st.text())
def test_checking_never_fails_and_checking_its_result_changes_nothing_more(text: str) -> None:
    checked = check(text)
    if not checked.violations:
        assert check(checked.text).text == checked.text
