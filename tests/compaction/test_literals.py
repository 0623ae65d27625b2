from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcompact.compaction.summary.literals import KeptLiterals, bare_literals, kept_literals, quoted_literals
from selfcompact.text.tokens import ScriptAwareEstimator


@pytest.mark.parametrize(
    ("instructions", "literals"),
    [
        ("keep `a_b` and `c d`", ("a_b", "c d")),
        ('keep "the plan" and “the rest”', ("the plan", "the rest")),
        ("keep 'one' but don't touch Bob's", ("one",)),
        ("keep ```py\nx = 1\ny = 2\n``` whole", ("x = 1\ny = 2",)),
        ("keep ``a ` b``", ("a ` b",)),
        ('keep `say "hi"`', ('say "hi"',)),
        ("保留「回归测试」", ("回归测试",)),
        ("keep everything", ()),
    ],
)
def test_literals_are_what_stands_in_quotes_backticks_or_fences(instructions: str, literals: tuple[str, ...]) -> None:
    assert quoted_literals(instructions) == literals


def test_paths_and_test_ids_are_found_without_quotes() -> None:
    found = bare_literals("keep tests/a/test_x.py::test_y[1-2] and src/app.py, config.toml; e.g. not this")
    assert set(found) == {"tests/a/test_x.py::test_y[1-2]", "src/app.py", "config.toml"}


def _kept(
    instructions: str, *, summary: str = "", earlier: tuple[str, ...] = (), history: str = "", budget: int = 500
) -> KeptLiterals:
    return kept_literals(
        instructions,
        earlier=earlier,
        summary=summary,
        history=[history],
        budget_tokens=budget,
        estimator=ScriptAwareEstimator(),
    )


def test_only_what_the_summary_lacks_is_appended_but_all_of_it_is_carried_on() -> None:
    """A later summary may drop what this one has."""
    kept = _kept("keep `alpha` and `beta`", summary="alpha is here")
    assert (kept.carried, kept.missing) == (("alpha", "beta"), ("beta",))
    later = _kept("", summary="nothing", earlier=kept.carried)
    assert later.missing == ("alpha", "beta")


def test_a_bare_path_is_kept_when_the_history_knows_it() -> None:
    assert _kept("keep src/app.py", history="edited src/app.py").missing == ("src/app.py",)
    assert _kept("keep src/app.py", history="nothing").missing == ()


def test_what_does_not_fit_is_named_and_new_literals_go_first() -> None:
    kept = _kept(f"keep `{'long ' * 400}` and `short`", earlier=("old",), budget=20)
    assert kept.carried == ("short", "old")
    assert len(kept.left_out) == 1
    assert "Did not fit" in kept.text()


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=40), max_size=4))
def test_every_missing_literal_stands_word_for_word_in_the_appended_text(literals: list[str]) -> None:
    kept = KeptLiterals(carried=tuple(literals), missing=tuple(literals))
    assert all(literal in kept.text() for literal in literals)
