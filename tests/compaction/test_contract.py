from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcompact.compaction.style.contract import (
    NONE,
    PREFIX_CONTRACT,
    SECTIONS_CONTRACT,
    check,
    demoted,
    parse_sections,
    render,
    with_turn,
)
from tests.compaction.build import PREFIX, sections

GOOD = sections()


def test_a_summary_in_its_form_passes_unchanged() -> None:
    checked = check(GOOD, SECTIONS_CONTRACT)
    assert (checked.text, checked.repairs, checked.violations) == (GOOD, (), ())


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        (f"Here is the summary:\n\n{GOOD}", "before the first heading"),
        (f"```markdown\n{GOOD}\n```", "fence"),
        (f"<summary>\n{GOOD}\n</summary>", "tag around"),
        (GOOD.replace("## Goal", "# Goal:"), "'## Goal'"),
        (GOOD.replace("## Goal", "**Goal**"), "'## Goal'"),
        (GOOD.replace("## Key Decisions\n(none)\n\n", ""), "'Key Decisions' was added"),
        (GOOD.replace("### Blocked\n(none)", ""), "'Blocked' was added"),
    ],
)
def test_what_can_be_put_right_without_touching_the_content_is_repaired_and_named(text: str, repair: str) -> None:
    checked = check(text, SECTIONS_CONTRACT)
    assert checked.text == GOOD
    assert checked.violations == ()
    assert any(repair in named for named in checked.repairs)


def test_sections_out_of_order_are_put_in_order() -> None:
    _, parts = parse_sections(GOOD)
    shuffled = "\n\n".join(f"## {part.heading}\n{part.body}" for part in reversed(parts))
    assert check(shuffled, SECTIONS_CONTRACT).text == GOOD


def test_a_section_outside_the_form_goes_to_the_end_with_its_content() -> None:
    checked = check(f"{GOOD}\n\n## Extra\nWorth keeping.", SECTIONS_CONTRACT)
    assert checked.violations == ()
    assert "### Extra\nWorth keeping." in checked.text.split("## Additional Notes")[1]


def test_a_heading_inside_a_code_fence_is_text() -> None:
    fenced = sections(Critical_Context="```sh\n## Goal\nmake\n```")
    assert check(fenced, SECTIONS_CONTRACT).text == fenced


@pytest.mark.parametrize("missing", ["Goal", "Progress", "Next Steps"])
def test_a_required_section_that_is_missing_or_empty_is_a_violation(missing: str) -> None:
    _, parts = parse_sections(GOOD)
    gone = "\n\n".join(f"## {p.heading}\n{p.body}" for p in parts if p.heading != missing)
    assert f"the section {missing!r} is missing" in check(gone, SECTIONS_CONTRACT).violations
    empty = check(sections(**{missing.replace(" ", "_"): NONE}), SECTIONS_CONTRACT)
    assert f"the section {missing!r} is empty" in empty.violations


def test_many_messages_need_a_summary_that_says_something() -> None:
    short = "## Goal\nAim.\n\n## Progress\n### Done\n- Some.\n\n## Next Steps\n1. More of it."
    assert check(short, SECTIONS_CONTRACT, message_count=5).violations == ()
    assert any("too few" in v for v in check(short, SECTIONS_CONTRACT, message_count=500).violations)


def test_a_turn_prefix_becomes_the_last_section_one_level_lower() -> None:
    merged = with_turn(GOOD, check(PREFIX, PREFIX_CONTRACT).text)
    assert merged.startswith(GOOD)
    assert [part.heading for part in parse_sections(merged)[1]][-1] == "Current Turn"
    assert "### Early Progress" in merged


_LINE = st.text(st.characters(blacklist_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029#`~"), max_size=30).map(
    str.strip
)


@given(st.fixed_dictionaries({name: st.lists(_LINE, max_size=4).map("\n".join) for name in SECTIONS_CONTRACT.headings}))
def test_what_is_rendered_is_parsed_back(bodies: dict[str, str]) -> None:
    parsed = {part.heading: part.body for part in parse_sections(render(bodies, SECTIONS_CONTRACT))[1]}
    assert parsed == {name: body.strip() or NONE for name, body in bodies.items()}


@given(st.text())
def test_checking_never_fails_and_checking_its_result_changes_nothing_more(text: str) -> None:
    checked = check(text, SECTIONS_CONTRACT)
    if not checked.violations:
        again = check(checked.text, SECTIONS_CONTRACT)
        assert (again.text, again.violations) == (checked.text, ())
    assert demoted(demoted(text)) is not None
