"""What is said about the kernel's state is what the kernel says, and never a guess."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_kernel import MAX_NAMES
from selfcompact.kernel import Kernel
from selfcompact.kernel.snapshot import TOTAL_BYTES, copy_out, report_from
from selfcompact.kernel.state import StateManifest, manifest_from

from .conftest import KERNEL_PYTHON, OpenKernel


async def shapes(kernel: Kernel) -> dict[str, str]:
    return {entry.name: entry.shape for entry in (await kernel.names()).names}


async def test_the_living_names_are_listed_with_types_and_short_shapes(opened: OpenKernel) -> None:
    code = """
import json
numbers = list(range(12)); table = {n: n for n in range(1200)}; text = "x" * 1500; flag = True; nothing = None
def load(path, limit, *more, **options): ...
class Parser: ...
parser = Parser(); huge = 10 ** 400; _hidden = 1
class numpy_like: pass
"""
    async with opened() as kernel:
        await kernel.execute(code)
        found = await shapes(kernel)
        assert found == {
            "json": "module json",
            "numbers": "list of 12",
            "table": "dict of 1,200",
            "text": "str of 1,500 characters",
            "flag": "bool True",
            "nothing": "None",
            "load": "function(path, limit, *args, **kwargs)",
            "Parser": "class Parser",
            "parser": "Parser",
            "huge": "int of 1,329 bits",
            "numpy_like": "class numpy_like",
        }
        assert "- table: dict of 1,200" in (await kernel.names()).to_text()


async def test_listing_leaves_no_trace_in_the_kernel(opened: OpenKernel) -> None:
    async with opened() as kernel:
        await kernel.execute("21 * 2")
        for _ in range(3):
            await kernel.names()
        after = await kernel.execute("_, len(In), list(Out)")
        assert (after.text, after.execution_count) == ("(42, 3, [1])", 2)


async def test_objects_that_fight_back_are_listed_all_the_same(opened: OpenKernel) -> None:
    code = """
class Evil:
    def __getattr__(self, name): raise SystemExit
    def __repr__(self): raise SystemExit
    def __len__(self): raise SystemExit
    @property
    def shape(self): import time; time.sleep(100)
evil = Evil()
Evil.__module__ = "numpy"
Evil.shape = property(lambda self: 1 / 0)
del Evil
many = [globals().__setitem__(f"v{n}", n) for n in range(300)]
"""
    async with opened() as kernel:
        await kernel.execute(code)
        manifest = await kernel.names()
        assert manifest.known
        assert len(manifest.names) == MAX_NAMES
        assert manifest.omitted == 202
        assert f"and {manifest.omitted} more" in manifest.to_text()


async def test_a_busy_or_dead_kernel_is_unknown_and_not_waited_for(opened: OpenKernel) -> None:
    async with opened() as kernel, anyio.create_task_group() as tasks:
        tasks.start_soon(kernel.execute, "import time; time.sleep(60)")
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(1):
            manifest = await kernel.names()
        assert (manifest.known, "a cell is running" in manifest.to_text()) == (False, True)
        await kernel.interrupt()


async def test_a_wedged_kernel_is_unknown_after_five_seconds(
    opened: OpenKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfcompact.kernel.kernel.STATE_TIMEOUT_S", 0.3)
    async with opened() as kernel:
        await kernel.execute(
            "import asyncio, time\nasync def wedge():\n    time.sleep(60)\nt = asyncio.ensure_future(wedge())"
        )
        manifest = await kernel.names()
        assert "did not answer in time" in manifest.to_text()


@pytest.mark.parametrize(
    "reply",
    [{}, {"user_expressions": 3}, {"user_expressions": {"names": {"data": {"application/json": {"names": [3]}}}}}],
)
def test_an_answer_that_is_none_is_unknown(reply: dict[str, Any]) -> None:
    assert not manifest_from(json.dumps(reply).encode(), 1).known
    assert report_from(json.dumps(reply).encode()).problem


@pytest.mark.parametrize("omitted", ["Infinity", "1e999", "NaN", "-3", "true", "[]", "9" * 5000], ids=len)
def test_a_number_of_names_that_is_none_is_an_answer_that_cannot_be_read(omitted: str) -> None:
    listing = '{"names": [], "omitted": ' + omitted + "}"
    reply = '{"user_expressions": {"names": {"data": {"application/json": ' + listing + "}}}}"
    manifest = manifest_from(reply.encode(), 1)
    assert (manifest.known, manifest.reason) == (False, "the kernel's answer cannot be read")


def test_what_the_kernel_says_is_bounded_and_plain() -> None:
    entry = {"name": "\x1b[31mn" * 100, "type": "t\nt", "shape": "s"}
    data = {"names": [entry] * 500, "omitted": 3}
    reply = {"user_expressions": {"names": {"data": {"application/json": data}}}}
    manifest = manifest_from(json.dumps(reply).encode(), 1)
    assert len(manifest.names) == MAX_NAMES
    assert manifest.names[0].name == ("n" * 100)[:120]
    assert manifest.names[0].type == "t t"
    assert StateManifest(True, 1).to_text() == "No variables are defined in the Python kernel."


needs_dill = pytest.mark.skipif(bool(KERNEL_PYTHON), reason="these kernels hold ipykernel and nothing else, so no dill")


@needs_dill
async def test_a_snapshot_brings_the_variables_back_into_another_kernel(opened: OpenKernel, tmp_path: Path) -> None:
    """The host's own modules are no part of it; what cannot be saved is named with the reason."""
    code = """
import json as js, threading
base = 10
def add(n): return base + n
class Point:
    def __init__(self, x): self.x = x
point = Point(3); data = {"a": [1, 2]}; lock = threading.Lock(); gen = (n for n in [])
"""
    path = tmp_path / "kept" / "snapshot"
    async with opened() as kernel:
        await kernel.execute(code)
        saved = await kernel.snapshot(path)
        assert set(saved.names) >= {"js", "base", "add", "Point", "point", "data"}
        assert {entry.name for entry in saved.skipped} >= {"gen"}
        assert "compact" not in saved.names
    async with opened() as kernel:
        restored = await kernel.restore(path)
        assert restored.problem == ""
        result = await kernel.execute("js.dumps(data), add(1), point.x, Point(4).x, await compact.status() is not None")
        assert result.text == "('{\"a\": [1, 2]}', 11, 3, 4, True)"
        assert "gen (" in restored.to_text().split("Lost variables:")[1]
        assert result.execution_count == 1
        assert list((await shapes(kernel)).keys())


@needs_dill
async def test_a_variable_that_is_too_large_is_skipped_and_says_so(
    opened: OpenKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfcompact.kernel.snapshot.VARIABLE_BYTES", 100_000)
    monkeypatch.setattr("selfcompact.kernel.snapshot.TOTAL_BYTES", 150_000)
    async with opened() as kernel:
        await kernel.execute("a = b'x' * 90_000; b = b'y' * 90_000; c = b'z' * 200_000; d = 1")
        saved = await kernel.snapshot(tmp_path / "snapshot")
        assert saved.names == ("a", "d")
        assert [entry.name for entry in saved.skipped] == ["b", "c"]
        for entry in saved.skipped:
            assert re.fullmatch(r"larger than the 59,9\d\d bytes that are left", entry.reason)


async def test_without_dill_a_snapshot_says_what_to_install(opened: OpenKernel, tmp_path: Path) -> None:
    async with opened() as kernel:
        await kernel.execute("import sys; sys.modules['dill'] = None")
        saved = await kernel.snapshot(tmp_path / "snapshot")
        assert "pip install dill" in saved.problem
        assert not [entry async for entry in anyio.Path(tmp_path).glob("snapshot*")]


@needs_dill
async def test_a_damaged_or_missing_snapshot_is_a_reason_and_no_crash(opened: OpenKernel, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"PK\x03\x04" + b"noise" * 100)
    async with opened() as kernel:
        assert "cannot be read" in (await kernel.restore(tmp_path / "noise")).problem
        assert "cannot be read" in (await kernel.restore(tmp_path / "nothing")).problem
        assert (await kernel.execute("1")).text == "1"


def test_the_host_follows_no_link_and_reads_no_pipe_that_the_kernel_left(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    target = tmp_path / "out" / "snapshot"
    (tmp_path / "link").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 3 * TOTAL_BYTES)
    for name in ("link", "pipe", "huge", "nothing"):
        assert copy_out(tmp_path / name, target)
        assert not target.exists()


async def test_what_a_cell_puts_in_the_place_of_a_snapshot_is_a_reason_and_nothing_raises(
    opened: OpenKernel, tmp_path: Path
) -> None:
    """A directory cannot be unlinked, and stood where the host takes the snapshot from and gives it back."""
    swap = """
import agent_kernel.snapshot as kept, os, shutil
class Said:
    def _repr_mimebundle_(self, **_): return {"application/json": {"names": ["x"], "skipped": [], "problem": ""}}
def swapped(path, *_):
    if os.path.lexists(path): os.unlink(path)
    os.mkdir(path)
    return Said()
kept.save = kept.load = swapped
"""
    (tmp_path / "given").write_bytes(b"bytes")
    async with opened() as kernel:
        await kernel.execute(swap)
        assert "not a snapshot" in (await kernel.snapshot(tmp_path / "out")).problem
        assert (await kernel.restore(tmp_path / "given")).names == ("x",)
        assert not (tmp_path / "out").exists()
        assert (await kernel.execute("1 + 1")).text == "2"
