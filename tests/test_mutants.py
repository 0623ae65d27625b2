"""The list of known mutants is up to date, and its runner cannot be satisfied by tests that did not run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import ROOT, Mutant, Report, main, parsed, read_list, verdict

MUTANTS = read_list()
TEST = "tests/test_x.py::test_one"
MUTANT = Mutant("m", "bridge/x.py", "old", "new", (TEST,), "because")


def test_every_old_text_stands_in_its_file_once_and_is_changed() -> None:
    assert [problem for mutant in MUTANTS if (problem := mutant.problem(ROOT))] == []
    assert [mutant.name for mutant in MUTANTS if mutant.old == mutant.new] == []
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_mutant_is_python_and_names_tests_that_exist() -> None:
    for mutant in MUTANTS:
        ast.parse((ROOT / mutant.file).read_text(encoding="utf-8").replace(mutant.old, mutant.new))
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            file, _, name = test.partition("::")
            functions = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
            names = [node.name for node in functions if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
            assert name.split("[")[0] in names, test


def test_a_text_that_has_moved_or_stands_twice_is_told(tmp_path: Path) -> None:
    assert "there is no file bridge/x.py" in (MUTANT.problem(tmp_path) or "")
    (tmp_path / "bridge").mkdir()
    for text, told in (("", "stands 0 times"), ("old, old", "stands 2 times"), ("old", None)):
        (tmp_path / "bridge/x.py").write_text(text)
        problem = MUTANT.problem(tmp_path)
        assert problem is None if told is None else told in (problem or "")


def test_a_list_that_is_not_up_to_date_or_a_name_that_is_not_in_it_is_an_error_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = tmp_path / "list.toml"
    stale.write_text(
        '[[mutant]]\nname = "m"\nfile = "README.md"\nold = "nowhere to be found"\nnew = ""\ntests = []\nwhy = "w"\n'
    )
    assert main(["--list", str(stale)]) == 2
    assert "stands 0 times in README.md" in capsys.readouterr().out
    with pytest.raises(SystemExit) as error:
        main(["no-such-mutant"])
    assert error.value.code == 2


@pytest.mark.parametrize(
    ("code", "outcomes", "told"),
    [
        (1, {TEST: {"failure"}}, None),
        (1, {TEST: {"failure", "passed"}}, None),
        (0, {TEST: {"passed"}}, "survived"),
        (1, {TEST: {"error"}}, "but: error"),
        (1, {TEST: {"skipped"}}, "but: skipped"),
        (1, {"tests/test_x.py::test_two": {"failure"}}, "was not run"),
        (2, {}, "pytest ended with 2"),
        (4, {}, "pytest ended with 4"),
        (5, {}, "pytest ended with 5"),
    ],
)
def test_only_a_named_test_that_fails_by_itself_counts(
    code: int, outcomes: dict[str, set[str]], told: str | None
) -> None:
    found = verdict(MUTANT, Report(code, {test: frozenset(each) for test, each in outcomes.items()}))
    assert found is None if told is None else told in (found or "")


def test_outcomes_are_read_from_pytests_report_for_a_test_and_for_each_of_its_cases() -> None:
    junit = """<testsuites><testsuite>
      <testcase file="tests/test_x.py" name="test_one[a]"><failure message="m"/></testcase>
      <testcase file="tests/test_x.py" name="test_one[b]"/>
      <testcase file="tests/test_x.py" name="test_two"><skipped/></testcase>
    </testsuite></testsuites>"""
    assert parsed(junit) == {
        TEST: {"failure", "passed"},
        f"{TEST}[a]": {"failure"},
        f"{TEST}[b]": {"passed"},
        "tests/test_x.py::test_two": {"skipped"},
    }
