from __future__ import annotations

import pytest

from selfcompact.compaction.planning.files import FileOps, clean_path, files_of
from tests.compaction.build import answered, called


@pytest.mark.parametrize(
    ("path", "cleaned"),
    [
        ("a/b.py", "a/b.py"),
        (" 'a b.py' ", "a b.py"),
        ("a.py:10-20", "a.py"),
        ("a.py:3", "a.py"),
        ("a.py#L3-L9", "a.py"),
        ("https://x.org/a.py", ""),
        ("file:///a.py", ""),
        ("two\nlines", ""),
        ("", ""),
    ],
)
def test_a_path_is_a_path_without_line_range_and_no_url(path: str, cleaned: str) -> None:
    assert clean_path(path) == cleaned


def of_cell(code: str) -> FileOps:
    return files_of([answered("", called("c", code))])


@pytest.mark.parametrize(
    ("code", "read", "edited", "written"),
    [
        ("open('a.txt').read()", ["a.txt"], [], []),
        ("with open('a.txt', 'w') as f: pass", [], [], ["a.txt"]),
        ("open('a.txt', mode='a')", [], ["a.txt"], []),
        ("open(r'a.txt', 'rb')", ["a.txt"], [], []),
        ("Path('a.md').read_text()", ["a.md"], [], []),
        ("pathlib.Path('a.md').write_text(text)", [], [], ["a.md"]),
        ("pd.read_csv('a.csv').to_csv('b.csv')", ["a.csv"], [], ["b.csv"]),
        ("%%writefile src/new.py\nx = 1", [], [], ["src/new.py"]),
        ("!cat a.txt b.txt", ["a.txt", "b.txt"], [], []),
        ("!head -n 5 a.txt | sort > c.txt", ["a.txt"], [], ["c.txt"]),
        ("!sed -i 's/a/b/' conf.ini", [], ["conf.ini"], []),
        ("!sed -n '1,5p' conf.ini", ["conf.ini"], [], []),
        ("%%bash\necho hi >> log.txt\ncp a.py b.py", ["a.py"], ["log.txt"], ["b.py"]),
        ("!git apply fix.patch", ["fix.patch"], [], []),
        ("subprocess.run('cat a.txt', shell=True)", ["a.txt"], [], []),
        ("!pytest -q 2>&1 > /dev/null", [], [], []),
        ("x = 1  # nothing about files", [], [], []),
    ],
)
def test_what_cells_show_about_files(code: str, read: list[str], edited: list[str], written: list[str]) -> None:
    found = of_cell(code)
    assert (list(found.read), list(found.edited), list(found.written)) == (read, edited, written)


def test_a_git_apply_with_the_patch_in_the_cell_names_the_files_of_the_patch() -> None:
    code = "%%bash\ngit apply <<'EOF'\n--- a/src/x.py\n+++ b/src/x.py\n@@ -1 +1 @@\n-a\n+b\nEOF"
    assert of_cell(code).edited == ("src/x.py",)


def test_tools_of_common_names_are_understood() -> None:
    calls = answered(
        "",
        called("1", name="Read", file_path="a.py"),
        called("2", name="str_replace", path="b.py", old="x", new="y"),
        called("3", name="write_file", filename="c.py", content="z"),
        called("4", name="apply_patch", input="*** Update File: d.py\n@@\n"),
        called("5", name="unrelated", path="e.py"),
    )
    assert files_of([calls]) == FileOps(read=("a.py",), edited=("b.py", "d.py"), written=("c.py",))


def test_a_file_that_was_read_and_changed_counts_as_changed() -> None:
    ops = FileOps(read=("a", "b"), edited=("b",), written=("c",))
    assert (ops.read_files, ops.modified_files) == (("a",), ("b", "c"))
    carried = FileOps(read=("c", "d")).with_earlier({"readFiles": ["a"], "modifiedFiles": ["b", 3], "other": 1})
    assert (carried.read_files, carried.modified_files) == (("a", "c", "d"), ("b",))
