"""The kernel that a session works with: one cell at a time, always an answer, and the truth about its state.

A kernel may die, hang or be restarted; `Kernel` stays. Whatever is asked of it is answered within a bound: a cell that
does not stop when it is interrupted is ended together with its process, the next cell gets a fresh kernel, and the
result says that the names of the old one are gone. Nothing is ever run a second time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from host_bridge.host.dispatcher import Dispatcher
from host_bridge.host.line import BridgeStats
from selfcompact.errors import KernelClosed, SandboxUnavailable, WorkspaceError
from selfcompact.kernel.cell import Cell, OnOutput
from selfcompact.kernel.generation import KILL_WAIT_S, Generation, Recipe, run_generation
from selfcompact.kernel.result import CellResult, CellStatus
from selfcompact.kernel.snapshot import (
    SNAPSHOT_TIMEOUT_S,
    SnapshotReport,
    copy_in,
    copy_out,
    load_expression,
    report_from,
    save_expression,
)
from selfcompact.kernel.state import ASK, StateManifest, manifest_from
from selfcompact.private_files import discard
from selfcompact.sandbox.bubblewrap import find_bwrap
from selfcompact.sandbox.environment import allowed
from selfcompact.sandbox.interpreter import inspect_interpreter
from selfcompact.sandbox.limit_notes import limit_reached
from selfcompact.sandbox.policy import SandboxPolicy
from selfcompact.settings.kernel import KernelSettings

IDLE_WAIT_S = 1.0
"""After a cell's reply, how long the rest of its output may keep silent before the cell counts as complete."""

OUTPUT_WAIT_S = 20.0
"""And how long it is read at most, when a cell has produced more than can be read at once."""

STOPPED_WAIT_S = 0.5
"""The same after a cell that had to be stopped: who aborts does not wait for the rest of a flood."""

REPLY_WAIT_S = 10.0
"""After the kernel has said that it is idle, how long its reply is waited for; one that was lost never comes."""

REOPEN_S = 2.0
"""How long a kernel whose messages were lost may take to be heard again, before it counts as lost itself."""

STATE_TIMEOUT_S = 5.0
"""How long the kernel may take to list its names."""

FRESH_NOTE = "A new kernel was started: the names of the old one are gone."


@dataclass(frozen=True)
class SandboxInfo:
    """What stands around the kernel. `warning` is a line for the user, empty when there is nothing to warn of."""

    kind: str
    detail: str
    warning: str = ""
    held_back: tuple[str, ...] = ()
    """Allowed variables that were not passed on, because they look like keys."""


class Kernel:
    """A kernel that is always there. Made by `open_kernel`, usable inside its block.

    One cell runs at a time; further calls of `execute` wait in order. All methods belong to the event loop that
    opened it.
    """

    def __init__(self, recipe: Recipe, tasks: anyio.abc.TaskGroup, sandbox: SandboxInfo) -> None:
        self._recipe, self._tasks, self._sandbox = recipe, tasks, sandbox
        self._turn = anyio.Lock()
        self._current: Generation | None = None
        self._count = 0
        self._cell: Cell | None = None
        self._note: str | None = None
        self._closed = False

    @property
    def generation(self) -> int:
        """How many kernels were started, this one included: 1 at first, one more after each restart."""
        return self._count

    @property
    def pid(self) -> int | None:
        """The kernel's process as the host numbers it; None when no kernel is alive."""
        return self._current.pid if self._current is not None and self._current.usable else None

    @property
    def bridge_stats(self) -> BridgeStats:
        """The bridge of the present generation."""
        return self._current.stats if self._current else BridgeStats()

    @property
    def sandbox(self) -> SandboxInfo:
        """What stands around the kernel."""
        return self._sandbox

    @property
    def cgroup_limits(self) -> frozenset[str]:
        """What is limited for all processes of the sandbox together: `pids`, `memory`, both or none."""
        return self._current.cgroup_limits if self._current is not None else frozenset()

    @property
    def busy(self) -> bool:
        """Whether a cell is running."""
        return self._cell is not None

    async def execute(self, code: str, timeout_s: float | None = None, on_output: OnOutput | None = None) -> CellResult:
        """Run a cell and return what it gave; failures of the cell are results and not exceptions.

        `timeout_s` replaces the setting `cell_timeout_s`. `on_output` is called with each piece of text as it comes.
        When the calling task is cancelled, the cell is interrupted, or its kernel killed when that does not help,
        before the cancellation goes on.

        Raises:
            KernelClosed: the kernel was closed. KernelStartError, SandboxUnavailable: no new kernel could be had.
        """
        async with self._turn:
            generation = await self._living()
            note, self._note = self._note, None
            cell = Cell(self._recipe.settings, on_output)
            self._cell = cell
            late = generation.channels.take_late()
            message_id = generation.channels.start_cell(code, cell)
            try:
                status = await self._run(generation, cell, timeout_s or self._recipe.settings.cell_timeout_s)
            finally:
                generation.channels.forget_cell(message_id)
                self._cell = None
            if status == "timeout":
                limit_s = timeout_s or self._recipe.settings.cell_timeout_s
                note = _joined(note, f"The cell ran longer than its limit of {limit_s:g} s and was stopped.")
            result = cell.result(status, generation=generation.number, late=late)
            limit = limit_reached(self._recipe.policy, result.error_name, result.error_value, result.text)
            return replace(result, note=_joined(note, self._account(generation, cell), limit))

    async def interrupt(self) -> None:
        """Stop the running cell and return when it has stopped; without one this does nothing. Takes a few seconds
        at most: a cell that does not stop is ended with its kernel."""
        cell = self._cell
        if cell is not None:
            cell.stop()
            await cell.over.wait()

    async def restart(self) -> None:
        """End this kernel and start another one; every name is gone. A running cell ends with status `died`.

        Raises:
            KernelClosed, KernelStartError, SandboxUnavailable.
        """
        if self._current is not None:
            await self._end(self._current, wedged=self._cell is not None)
        async with self._turn:
            await self._living()

    async def names(self) -> StateManifest:
        """List the living names, within 5 s and without a trace in the kernel.

        `known` is False when the kernel is busy, dead, or does not answer.
        """
        generation = self._current
        if generation is None or not generation.usable:
            return StateManifest(False, self._count, reason="no kernel is alive")
        if self._turn.locked():
            return StateManifest(False, self._count, reason="a cell is running")
        async with self._turn:
            reply = await generation.channels.evaluate({"names": ASK}, STATE_TIMEOUT_S)
        return manifest_from(reply, generation.number)

    async def snapshot(self, path: Path) -> SnapshotReport:
        """Save the living variables to `path`; an older snapshot there is replaced at once or not at all.

        Variables that cannot be saved, or are too large, are skipped and named. Waits for a running cell.
        """
        async with self._turn:
            generation = self._current
            if generation is None or not generation.usable:
                return SnapshotReport(problem="no kernel is alive")
            outside, inside = generation.shared_file("snapshot")
            report = report_from(
                await generation.channels.evaluate({"report": save_expression(inside)}, SNAPSHOT_TIMEOUT_S)
            )
            if report.problem:
                return report
            problem = await anyio.to_thread.run_sync(copy_out, outside, path)
            discard(outside)
            return SnapshotReport(problem=problem) if problem else report

    async def restore(self, path: Path) -> SnapshotReport:
        """Bring the variables of a snapshot back into the kernel; says which came back and which are lost, and why.

        Unpickling runs code, inside the sandbox only. Waits for a running cell.
        """
        async with self._turn:
            generation = await self._living()
            outside, inside = generation.shared_file("restore")
            problem = await anyio.to_thread.run_sync(copy_in, path, outside)
            if problem:
                return SnapshotReport(problem=problem)
            reply = await generation.channels.evaluate({"report": load_expression(inside)}, SNAPSHOT_TIMEOUT_S)
            discard(outside)
            return report_from(reply)

    async def _run(self, generation: Generation, cell: Cell, timeout_s: float | None) -> CellStatus:
        """Wait for the cell, stop it when it must be stopped, and say how it ended."""
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(self._watch, generation, cell)
            try:
                with anyio.move_on_after(timeout_s):
                    await cell.wake.wait()
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._settle(generation, cell)
                    await self._drain(generation, cell, STOPPED_WAIT_S)
                raise
            over_time = not cell.wake.is_set()
            if not cell.over.is_set():
                with anyio.CancelScope(shield=True):
                    await self._settle(generation, cell)
            stopped = over_time or cell.asked_to_stop
            await self._drain(generation, cell, STOPPED_WAIT_S if stopped else OUTPUT_WAIT_S)
            watchers.cancel_scope.cancel()
        if over_time:
            return "timeout"
        if cell.asked_to_stop:
            return "aborted"
        if cell.reply is None:
            return "error" if generation.usable else "died"
        return "ok" if cell.reply.status == "ok" else "error"

    async def _watch(self, generation: Generation, cell: Cell) -> None:
        """End the cell when its kernel dies, or when it is idle and its reply must have been lost."""
        async with anyio.create_task_group() as tasks:

            async def lost() -> None:
                await cell.idle.wait()
                await anyio.sleep(REPLY_WAIT_S)
                cell.end()

            tasks.start_soon(lost)
            await generation.dead.wait()
            cell.end()
            tasks.cancel_scope.cancel()

    async def _settle(self, generation: Generation, cell: Cell) -> None:
        """Interrupt the cell; when it has not stopped within the grace, end its kernel.

        Always ends the cell, and with it the processes that were started while it ran.
        """
        grace_s = self._recipe.settings.interrupt_grace_s
        for _ in range(2):  # a second signal for cells that were between two bytecodes of a handler
            if generation.usable and not cell.over.is_set():
                generation.interrupt()
                with anyio.move_on_after(grace_s / 2):
                    await cell.over.wait()
        if not cell.over.is_set():
            await self._end(generation, wedged=True)
            cell.end()
        if generation.usable:
            generation.process.kill_children_since(cell.started_boot_s)

    async def _drain(self, generation: Generation, cell: Cell, limit_s: float) -> None:
        """Read the rest of the cell's output: until the kernel says it is idle, or nothing comes for a while.

        What has not come within `limit_s` seconds is given up, with the connection that it would come on.
        """
        with anyio.move_on_after(limit_s):
            while not cell.idle.is_set() and generation.usable:
                before = cell.messages
                with anyio.move_on_after(IDLE_WAIT_S):
                    await cell.idle.wait()
                if cell.messages == before:
                    break
        if generation.usable and (not cell.idle.is_set() or cell.reply is None):
            cell.lost = True
            if not await generation.channels.reopen(REOPEN_S):
                await self._end(generation, wedged=True)

    def _account(self, generation: Generation, cell: Cell) -> str | None:
        """What the host has to say about how the cell ended."""
        if generation.usable:
            return "Part of what the kernel sent was lost: it was too much to read." if cell.lost else None
        if generation.death is not None:
            return f"The kernel died: {generation.death.reason}. Its names are gone; the next cell gets a new kernel."
        return "The cell did not stop when it was interrupted, so its kernel was ended: its names are gone."

    async def _living(self) -> Generation:
        """The present kernel, or a new one when it is dead. The caller holds the turn."""
        if self._closed:
            raise KernelClosed
        if self._current is not None:
            if self._current.usable:
                return self._current
            await self._end(self._current)
        return await self._start()

    async def _start(self) -> Generation:
        if self._count:
            self._note = FRESH_NOTE
        self._count += 1
        self._current = await self._tasks.start(run_generation, self._recipe, self._count)
        return self._current

    async def _end(self, generation: Generation, *, wedged: bool = False) -> None:
        """End a kernel for good and wait until everything of it is gone. Bounded."""
        if not generation.closed.is_set():
            generation.wedged = wedged
            generation.stop.set()
            with anyio.move_on_after(KILL_WAIT_S * 2):
                await generation.closed.wait()


def _joined(*notes: str | None) -> str | None:
    return " ".join(text for text in notes if text) or None


@asynccontextmanager
async def open_kernel(
    settings: KernelSettings, policy: SandboxPolicy, *, workspace: Path, dispatcher: Dispatcher
) -> AsyncIterator[Kernel]:
    """Start a kernel whose cells work in `workspace` and may ask `dispatcher`; leaving ends it and all it started.

    Leave it in the task that entered it. When the block is entered, the first kernel is ready.

    Raises:
        SandboxUnavailable, KernelStartError: no kernel could be had; nothing is left behind.
        WorkspaceError: the workspace is not a directory that can be used.
    """
    workspace = _usable(workspace, policy)
    sandbox = _describe(policy, workspace)
    recipe = Recipe(settings, policy, workspace, dispatcher, inspect_interpreter(settings.python))
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        kernel = Kernel(recipe, tasks, sandbox)
        try:
            await kernel._start()
        except Exception as error:  # noqa: BLE001 - re-raised outside the group, which would wrap it
            failure = error
        else:
            try:
                yield kernel
            except BaseException as error:  # noqa: BLE001 - re-raised outside the group, as above
                failure = error
            kernel._closed = True
            with anyio.CancelScope(shield=True):
                if kernel._current is not None:
                    await kernel._end(kernel._current)
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _usable(workspace: Path, policy: SandboxPolicy) -> Path:
    path = workspace.expanduser().absolute()
    if not path.is_dir():
        raise WorkspaceError(path, "it is not a directory; create it, or name another one")
    path = path.resolve()
    mode = os.R_OK | os.X_OK | (os.W_OK if policy.workspace == "read-write" else 0)
    if not os.access(path, mode):
        raise WorkspaceError(path, "you may not use it; change its permissions, or name another one")
    return path


def _describe(policy: SandboxPolicy, workspace: Path) -> SandboxInfo:
    if sys.platform != "linux":
        raise SandboxUnavailable(
            f"kernels are run on Linux only so far (this is {sys.platform})",
            "run it in a Linux container or virtual machine",
        )
    _, held_back = allowed(os.environ, policy.env)
    if policy.kind == "none":
        return SandboxInfo("none", "no sandbox", "cells run without a sandbox, with all your rights", held_back)
    bwrap = find_bwrap((workspace, *policy.write))
    version = ".".join(map(str, bwrap.version))
    return SandboxInfo("bwrap", f"bubblewrap {version} at {bwrap.path}", held_back=held_back)
