"""What a kernel left behind is removed whatever it is, and what cannot be removed disturbs nobody."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from selfcompact.kernel.removing import remove_tree
from selfcompact.kernel.runtime import GONE, PREFIX, make_runtime_directory

from .conftest import OpenKernel

NOBODY = 65534

NEST = """
import os
os.chdir("/run/selfcompact/kernel")
for n in range({depth}):
    os.mkdir("d"); os.chdir("d")
os.chdir("/")
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The place of runtime directories; whatever a failing test left in it goes."""
    folder = Path("/tmp") / f"sc-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    assert remove_tree(folder)


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("depth", [1_500, pytest.param(20_000, marks=pytest.mark.slow)])
async def test_directories_nested_deeper_than_a_recursion_goes_are_gone_with_the_kernel(
    opened: OpenKernel, base: Path, depth: int
) -> None:
    async with opened() as kernel:
        result = await kernel.execute(NEST.format(depth=depth))
        assert (result.status, result.text) == ("ok", "")
        assert len(left_in(base)) == 1
    assert left_in(base) == []
    async with opened() as kernel:
        assert (await kernel.execute("6 * 7")).text == "42"


def test_what_is_closed_odd_or_a_link_is_removed_and_nothing_outside_is_touched(base: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_text("kept")
    tree = base / "tree"
    (tree / "closed" / "inner").mkdir(parents=True)
    (tree / "closed" / "inner" / "file").write_text("x")
    (tree / "link").symlink_to(outside)
    (tree / "closed" / "up").symlink_to("..")
    os.mkfifo(tree / "pipe")
    os.mkdir(os.fsencode(tree) + b"/\xff\xfe")  # noqa: PTH102 - a name that is no text
    (tree / "closed" / "inner").chmod(0)
    (tree / "closed").chmod(0)
    assert remove_tree(tree)
    assert not tree.exists()
    assert (outside / "kept").read_text() == "kept"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


CLOSED_TREES = {
    "nested, each closed to its owner": lambda tree: nest(tree, 6, 0o000),
    "nested, each only to be read": lambda tree: nest(tree, 6, 0o500),
    "nested, each only to be passed through": lambda tree: nest(tree, 6, 0o100),
}


def nest(tree: Path, depth: int, mode: int) -> None:
    """Directories in directories with a file in each, closed from the innermost to the outermost."""
    path = tree
    for _ in range(depth):
        path.mkdir()
        (path / "file").write_text("x")
        path = path / "d"
    while path != tree.parent:
        path = path.parent
        if path != tree.parent:
            path.chmod(mode)


def as_an_ordinary_user(work: Callable[[], bool], place: Path) -> bool:
    """What `work` says in a child without root's right to pass by modes; `place` is given to that user."""
    if os.getuid() == 0:
        os.chown(place, NOBODY, NOBODY)
    child = os.fork()
    if child == 0:
        code = 2
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("kind", CLOSED_TREES)
def test_directories_closed_to_an_ordinary_user_are_gone_as_well(base: Path, kind: str) -> None:
    tree = base / "tree"

    def work() -> bool:
        CLOSED_TREES[kind](tree)
        return remove_tree(tree)

    assert as_an_ordinary_user(work, base)
    assert not tree.exists()


def test_a_link_that_takes_a_directorys_place_has_nothing_opened_behind_it(base: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (base / "tree").mkdir()
    (base / "tree" / "link").symlink_to(outside)
    assert remove_tree(base / "tree")
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500


def test_a_removal_has_a_limit_and_what_it_leaves_is_removed_by_the_next_one(base: Path) -> None:
    tree = base / "tree"
    for n in range(50):
        (tree / str(n)).mkdir(parents=True)
        for m in range(200):
            (tree / str(n) / str(m)).touch()
    assert not remove_tree(tree, limit_s=0.005)
    assert tree.exists()
    assert remove_tree(tree)


def test_a_link_in_the_place_of_the_directory_is_not_followed(base: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kept").touch()
    (base / "tree").symlink_to(tmp_path / "mine")
    remove_tree(base / "tree")
    assert (tmp_path / "mine" / "kept").exists()


def test_left_overs_of_killed_hosts_go_at_the_next_start_and_never_fail_it(base: Path) -> None:
    deep = base / f"{PREFIX}killed"
    deep.mkdir()
    (deep / "lock").touch()
    descriptor = os.open(deep, os.O_RDONLY)
    for _ in range(3 * sys.getrecursionlimit()):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    (base / f"{PREFIX}file").touch()
    (base / f"{PREFIX}link").symlink_to("/etc")
    living = make_runtime_directory()
    for _ in range(60):  # on a machine that is busy one start may not get to its end; the next one goes on with it
        make_runtime_directory().remove()
        if not deep.exists() and not list(base.glob(f"{GONE}*")):
            break
    assert not deep.exists()
    assert list(base.glob(f"{GONE}*")) == []
    assert living.path.exists()
    living.remove()
    assert not living.path.exists()
