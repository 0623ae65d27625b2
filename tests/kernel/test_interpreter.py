"""What is asked of the interpreter that kernels run, and how often."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from selfcompact.sandbox.interpreter import inspect_interpreter


def test_the_interpreter_is_asked_once_and_again_when_it_changes(tmp_path: Path) -> None:
    """A program that counts its starts stands before the real one, as version managers have it."""
    program, starts = tmp_path / "python", tmp_path / "starts"

    def write(note: str, changed_at_s: int) -> None:
        program.write_text(f'#!/bin/sh\necho {note} >> {starts}\nexec {sys.executable} "$@"\n')
        program.chmod(0o755)
        os.utime(program, (changed_at_s, changed_at_s))

    write("old", 1_000)
    first = inspect_interpreter(program)
    assert inspect_interpreter(program) is first
    assert starts.read_text().split() == ["old"]
    write("new", 2_000)
    assert inspect_interpreter(program) == first
    assert inspect_interpreter(program) == first
    assert starts.read_text().split() == ["old", "new"]
    assert first.executable == Path(sys.executable)


def test_the_interpreter_of_this_program_is_the_one_that_is_taken_when_none_is_named() -> None:
    found = inspect_interpreter()
    assert found is inspect_interpreter(Path(sys.executable))
    assert found.version >= (3, 11)
    assert all(path.is_absolute() and path != Path("/") for path in found.needs)
