"""Break the product in known ways and see that its tests notice: `python -m tests.mutants [NAME…]`.

`mutants.toml` lists changes that once passed every test. Each is made in a copy of the sources, never in the checkout,
and the tests that guard it are run there. A mutant passes when every one of those tests fails by itself: not while it
is collected, not in a fixture. All of them must pass in a copy that nothing was changed in.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")

FOLDERS = ("bridge", "host", "kernel_skill", "tests", "benchmarks", "docs", "examples")
FILES = ("ARCHITECTURE.md", "CHANGELOG.md", "Makefile", "README.md", "SKILL.md", "pyproject.toml")
"""What the tests read: everything but what is made from it."""

IMPORTED = ("bridge", "host", "kernel_skill", ".")
"""Where modules are looked for, before the checkout that the environment was installed from."""

WORKERS = 2
TIMEOUT_S = 600.0
"""For the tests of one mutant; each test has its own limit besides."""

PROBE = """
import compact, host_bridge, selfcompact, tests
from selfcompact.kernel.runtime import kernel_side_packages
for module in (compact, host_bridge, selfcompact, tests):
    print(module.__file__)
for path in kernel_side_packages().values():
    print(path / "__init__.py")
"""
"""Prints where everything comes from, what a kernel is given included."""


@dataclass(frozen=True)
class Mutant:
    """One change: `old`, which stands in `file` exactly once, becomes `new`. `tests` are pytest's node ids."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str

    def problem(self, root: Path) -> str | None:
        """Why this mutant cannot be made of these sources, in a sentence; None when it can."""
        path = root / self.file
        if not path.is_file():
            return f"{self.name}: there is no file {self.file}; name the one that the code went to"
        count = path.read_text(encoding="utf-8").count(self.old)
        if count != 1:
            return f"{self.name}: its old text stands {count} times in {self.file}, not once; bring the list up to date"
        return None


@dataclass(frozen=True)
class Report:
    """What pytest said: its exit code, and how each test (without its parameters) came out."""

    code: int
    outcomes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    output: str = ""


def read_list(path: Path = LIST) -> list[Mutant]:
    """The mutants of a list, in its order."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def verdict(mutant: Mutant, report: Report) -> str | None:
    """Why these tests do not guard against the mutant; None when they do."""
    if report.code == 0:
        return "survived: all of its tests pass"
    if report.code != 1:
        return f"its tests did not run (pytest ended with {report.code})"
    for test in mutant.tests:
        outcomes = report.outcomes.get(test, frozenset())
        if "failure" not in outcomes:
            return f"{test} did not fail by itself, but: {', '.join(sorted(outcomes)) or 'was not run'}"
    return None


def parsed(junit: str) -> dict[str, frozenset[str]]:
    """The outcomes in a report of pytest's (xunit1): `passed`, `failure`, `error`, `skipped` of each test.

    A test with cases stands under its name with all outcomes, and under the name of each case with that one's.
    """
    found: dict[str, set[str]] = {}
    for case in ET.fromstring(junit).iter("testcase"):
        tags = {child.tag for child in case} & {"failure", "error", "skipped"}
        name = case.get("name", "")
        for known in {name, name.partition("[")[0]}:
            found.setdefault(f"{case.get('file', '')}::{known}", set()).update(tags or {"passed"})
    return {test: frozenset(outcomes) for test, outcomes in found.items()}


class Copy:
    """A copy of the sources in a folder of its own. One mutant at a time; `mutated` puts the file back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "copy"
        self._temporary = folder / "t"
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy(ROOT / name, self.folder / name)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the copy, and import from nowhere else what is ours."""
        path = os.pathsep.join(str(self.folder / name) for name in IMPORTED)
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTEST_ADDOPTS", None)
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def strangers(self) -> list[str]:
        """The modules that would not be imported from this copy; empty when all are."""
        probe = self.run("-c", PROBE)
        here = f"{self.folder.resolve()}{os.sep}"
        lines = probe.stdout.splitlines()
        return [line for line in lines if not line.startswith(here)] if probe.returncode == 0 else lines

    def test(self, tests: Iterable[str]) -> Report:
        """Run these tests."""
        junit = self._temporary.with_suffix(".xml")
        junit.unlink(missing_ok=True)
        options = ("-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={junit}")
        done = self.run("-m", "pytest", *options, f"--basetemp={self._temporary}", *tests)
        outcomes = parsed(junit.read_text(encoding="utf-8")) if junit.exists() else {}
        return Report(done.returncode, outcomes, done.stdout)

    def test_mutant(self, mutant: Mutant) -> Report:
        """Run a mutant's tests with its change made, and take the change back."""
        path = self.folder / mutant.file
        original = path.read_text(encoding="utf-8")
        path.write_text(original.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            return self.test(mutant.tests)
        finally:
            path.write_text(original, encoding="utf-8")


def say(text: str) -> None:
    """To the terminal at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def unchanged_problems(copies: Sequence[Copy], mutants: Sequence[Mutant]) -> list[str]:
    """What is wrong before anything is changed: modules from elsewhere, and guards that fail anyway."""
    strangers = [line for copy in copies for line in copy.strangers()]
    if strangers:
        return [f"imported from outside of the copy: {line}" for line in strangers]
    files: dict[str, list[str]] = {}
    for test in dict.fromkeys(test for mutant in mutants for test in mutant.tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    shares: list[list[str]] = [[] for _ in copies]
    for tests in sorted(files.values(), key=len, reverse=True):
        min(shares, key=len).extend(tests)
    with ThreadPoolExecutor(len(copies)) as pool:
        reports = list(pool.map(lambda copy, tests: copy.test(tests) if tests else Report(0), copies, shares))
    return [f"the guards do not pass unchanged:\n{report.output}" for report in reports if report.code != 0]


def try_mutants(copies: Sequence[Copy], mutants: Sequence[Mutant]) -> int:
    """Try each mutant in a copy that is free, tell how it came out, and return how many are not guarded against."""
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def attempt(mutant: Mutant) -> bool:
        copy, began = free.get(), time.monotonic()
        try:
            report = copy.test_mutant(mutant)
            problem = verdict(mutant, report)
        except subprocess.TimeoutExpired:
            problem = f"its tests took longer than {TIMEOUT_S:g} s"
        finally:
            free.put(copy)
        said = f"FAILED  {mutant.name}: {problem} ({mutant.why})" if problem else f"passed  {mutant.name}"
        say(f"{said}  {time.monotonic() - began:.1f} s")
        return problem is not None

    with ThreadPoolExecutor(len(copies)) as pool:
        return sum(pool.map(attempt, mutants))


def selected(names: Sequence[str], mutants: Sequence[Mutant], fail: Callable[[str], object]) -> list[Mutant]:
    """The mutants of these names, all of them when there are none."""
    unknown = sorted(set(names) - {mutant.name for mutant in mutants})
    if unknown:
        fail(f"no mutant is called {', '.join(unknown)}; there are {', '.join(mutant.name for mutant in mutants)}")
    return [mutant for mutant in mutants if not names or mutant.name in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants; 0 when every one is noticed, 1 when one is not, 2 when the list is not up to date."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Break the product in known ways.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these mutants; all without")
    parser.add_argument("--list", type=Path, default=LIST, metavar="FILE", help="another list")
    options = parser.parse_args(arguments)
    mutants = selected(options.names, read_list(options.list), parser.error)
    stale = [problem for mutant in mutants if (problem := mutant.problem(ROOT))]
    if stale:
        say("\n".join(stale))
        return 2
    with tempfile.TemporaryDirectory(prefix="selfcompact-mutants-") as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(1, min(WORKERS, len(mutants)) + 1)]
        problems = unchanged_problems(copies, mutants)
        if problems:
            say("\n".join(problems))
            return 1
        failed = try_mutants(copies, mutants)
    say(f"{len(mutants) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
