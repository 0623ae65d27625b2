"""The control group around a sandbox: what is told to be limited for all its processes together is limited.

Where this machine lets nobody make a group, a folder stands in for the hierarchy: the product writes the same files
there, and they are read instead of obeyed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from selfcompact.sandbox import cgroup

from .conftest import OpenKernel

MIB = 2**20
FILES = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max", "pids.max")}
"""Where the limit stands, in version 2 and in version 1."""


def groups_of(pid: int | str, controller: str) -> list[Path]:
    """The directories of a process's group that may hold this limit, by what the operating system says."""
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return [Path("/sys/fs/cgroup", controller, path.lstrip("/"))]
        if not controllers:
            found = [Path("/sys/fs/cgroup", path.lstrip("/"))]
    return found


def limit_of(pid: int | str, controller: str) -> str | None:
    """The limit that the operating system holds this process to."""
    for folder in groups_of(pid, controller):
        for name in FILES[controller]:
            if (folder / name).exists():
                return (folder / name).read_text().strip()
    return None


def parent_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]


def can_be_limited(controller: str) -> bool:
    """Whether a group with this limit can be made here, tried by hand."""
    for own in groups_of("self", controller):
        for base, name in ((own, FILES[controller][1]), (own.parent, FILES[controller][0])):
            made = base / f"tried-by-a-test-{os.getpid()}"
            try:
                made.mkdir()
            except OSError:
                continue
            try:
                if (made / name).exists():
                    return True
            finally:
                made.rmdir()
    return False


async def test_what_is_told_to_be_cgroup_limits_is_limited_and_the_rest_cannot_be(opened: OpenKernel) -> None:
    wanted = {"memory": str(700 * MIB), "pids": "200"}
    async with opened({"memory": "700MiB", "processes": 200}) as kernel:
        assert kernel.pid is not None
        for controller, limit in wanted.items():
            if controller in kernel.cgroup_limits:
                assert limit_of(kernel.pid, controller) == limit
            else:
                assert not can_be_limited(controller)


PLACES = {
    "version 1": ("4:memory:/mine\n8:pids:/\n0::/\n", {"memory": "memory/mine", "pids": "pids"}),
    "version 2": ("0::/user.slice/mine\n", {"memory": "user.slice", "pids": "user.slice"}),
    "version 2, at the root": ("0::/\n", {"memory": "", "pids": ""}),
}
"""What the operating system says of our own groups, and where those for kernels are made."""


@pytest.fixture
def stand_in(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A folder in the place of the hierarchy; where the groups of each controller are made in it."""
    own, places = PLACES[request.param]
    root = tmp_path / "cgroup"
    folders = {controller: root / place for controller, place in places.items()}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
        if request.param != "version 1":
            (folder / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(cgroup, "ROOT", root)
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    return folders


def made_in(folder: Path) -> Path:
    (group,) = folder.glob("selfcompact-*")
    return group


@pytest.mark.parametrize(("place", "stand_in"), [(place, place) for place in PLACES], indirect=["stand_in"])
async def test_the_limits_and_the_sandbox_are_written_into_its_group(
    opened: OpenKernel, place: str, stand_in: dict[str, Path]
) -> None:
    wanted = {"memory": str(700 * MIB), "pids": "200"}
    async with opened({"memory": "700MiB", "processes": 200}) as kernel:
        assert kernel.cgroup_limits == {"memory", "pids"}
        sandbox = parent_of(kernel.pid)
        for controller, limit in wanted.items():
            group = made_in(stand_in[controller])
            name = FILES[controller][1 if place == "version 1" else 0]
            assert (group / name).read_text() == limit
            assert (group / "cgroup.procs").read_text() == sandbox  # the parent of the kernel: its first process
    async with opened({"memory": None, "processes": None}) as kernel:
        assert kernel.cgroup_limits == frozenset()


@pytest.mark.parametrize("stand_in", ["version 2"], indirect=True)
async def test_a_kernel_that_was_ended_for_the_memory_of_its_sandbox_says_so(
    opened: OpenKernel, stand_in: dict[str, Path]
) -> None:
    """Here the cell ends its kernel itself, and the group says that the operating system did."""
    end = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    async with opened() as kernel:
        (made_in(stand_in["memory"]) / "memory.events").write_text("max 7\noom 1\noom_kill 1\n")
        result = await kernel.execute(end)
        assert result.status == "died"
        assert "the memory limit of its sandbox was reached (sandbox.memory)" in (result.note or "")
    async with opened() as kernel:
        result = await kernel.execute(end)
        assert result.status == "died"
        assert "sandbox.memory" not in (result.note or "")


TOGETHER = """
import os, subprocess, sys
hold = 'import time; input(); block = bytearray(b"x") * (350 * 2**20); print("has it", flush=True); time.sleep(60)'
command = [sys.executable, '-c', hold]
children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
with open('/proc/self/oom_score_adj', 'w') as file:
    file.write('{adjustment}')
for child in children:
    child.stdin.write(b'now\\n')
    child.stdin.flush()
print('ended by signal', os.WTERMSIG(os.wait()[1]))
"""
"""Two children of 350 MiB; the adjustment says who is ended when there is not enough for both."""


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["a child", "the kernel"])
async def test_more_memory_than_the_sandbox_may_have_ends_one_of_its_processes_and_nothing_else(
    opened: OpenKernel, ended: str
) -> None:
    """Several processes together, which no limit of a single one would stop."""
    if not can_be_limited("memory"):
        pytest.skip("this machine lets nobody make a control group; the tests above read what would be asked of it")
    async with opened({"memory": "700MiB"}) as kernel:
        result = await kernel.execute(TOGETHER.format(adjustment=1000 if ended == "the kernel" else 0), timeout_s=30)
        if ended == "the kernel":
            assert result.status == "died"
            assert "the memory limit of its sandbox was reached (sandbox.memory)" in (result.note or "")
        else:
            assert (result.status, result.text) == ("ok", "ended by signal 9")
        after = await kernel.execute("1 + 1")
        assert (after.text, after.generation) == ("2", 2 if ended == "the kernel" else 1)
