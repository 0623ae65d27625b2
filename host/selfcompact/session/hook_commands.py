"""Hooks that are commands: JSON on standard input, an exit code and JSON on standard output.

Before a compaction: exit code 0 lets it go on, and the answer may be `{"summary": "…"}` or `{"cancel": true, "reason":
"…"}`; exit code 2 cancels it whatever it prints, with the reason on standard error. After one: the answer may be
`{"context": "…"}`. Every other exit code, and output that is not such JSON, is a failing hook. Whether a command reads
its input does not matter. Commands run on the host, not in the sandbox: they are the operator's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

import anyio
import anyio.abc

from selfcompact.codec import Json
from selfcompact.events import CompactionResult
from selfcompact.session.hooks import CompactionPreparation, SuppliedSummary, Veto
from selfcompact.settings.compaction import HookCommand

VETO_EXIT_CODE = 2

MAX_ANSWER_BYTES = 1024 * 1024
"""What is read of a command's answer, and of its complaints."""

LAST_WORDS_S = 0.5
"""After a command has ended, how long its outputs are read that something else holds open."""


class HookFailed(Exception):
    """A hook's command did not do what a hook does; the text says what."""


class BeforeCommand:
    """A command as a hook before compactions."""

    def __init__(self, command: HookCommand) -> None:
        self._command = command
        self.timeout_s, self.on_failure = command.timeout_s, command.on_failure
        self.__qualname__ = f"`{' '.join(command.argv)}`"

    async def __call__(self, preparation: CompactionPreparation) -> Veto | SuppliedSummary | None:
        code, answer, complaint = await _run(self._command, {"event": "before_compact", **preparation.to_json()})
        reason = answer.get("reason")
        reason = (reason if isinstance(reason, str) else "") or complaint or "no reason given"
        if code == VETO_EXIT_CODE:
            return Veto(f"{self.__qualname__}: {reason}")
        cancel = answer.get("cancel")
        if cancel is not None and not isinstance(cancel, bool):
            raise HookFailed("answered a `cancel` that is not true or false")
        if cancel:
            return Veto(f"{self.__qualname__}: {reason}")
        summary = _text(answer, "summary")
        return SuppliedSummary(summary) if summary.strip() else None


class AfterCommand:
    """A command as a hook after compactions."""

    def __init__(self, command: HookCommand) -> None:
        self._command = command
        self.timeout_s, self.on_failure = command.timeout_s, command.on_failure
        self.__qualname__ = f"`{' '.join(command.argv)}`"

    async def __call__(self, result: CompactionResult) -> str | None:
        _, answer, _ = await _run(self._command, {"event": "after_compact", **result.to_json()})
        return _text(answer, "context") or None


def _text(answer: Mapping[str, Json], key: str) -> str:
    """What the answer says under this key; empty when it says nothing."""
    found = answer.get(key)
    if found is not None and not isinstance(found, str):
        raise HookFailed(f"answered a `{key}` that is not text")
    return found or ""


async def _run(command: HookCommand, data: Mapping[str, Json]) -> tuple[int, Mapping[str, Json], str]:
    try:
        with anyio.fail_after(command.timeout_s):
            code, said, complained = await _communicate(command.argv, json.dumps(data).encode())
    except TimeoutError as error:
        raise HookFailed(f"took longer than {command.timeout_s:g} s and was ended") from error
    except OSError as error:
        raise HookFailed(f"cannot be started ({error.strerror})") from error
    complaint = complained.decode("utf-8", "replace").strip()
    if code not in (0, VETO_EXIT_CODE):
        raise HookFailed(f"ended with exit code {code} ({complaint[-300:] or 'no message'})")
    try:
        answer = _object(said.decode("utf-8", "replace").strip())
    except HookFailed:
        if code != VETO_EXIT_CODE:
            raise
        answer = {}
    return code, answer, complaint


def _object(text: str) -> Mapping[str, Json]:
    try:
        answer = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise HookFailed(f"answered something that is not JSON ({error})") from error
    if not isinstance(answer, dict):
        raise HookFailed("answered JSON that is not an object")
    return answer


async def _communicate(argv: Sequence[str], data: bytes) -> tuple[int, bytes, bytes]:
    """Run a command to its end: its exit code and the beginning of what it said on each of its two outputs.

    It need not read its input. When this returns or is cancelled, the command and what it started are gone.
    """
    said, complained = bytearray(), bytearray()
    process = await anyio.open_process(
        list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    async with process:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_feed, process.stdin, data)
                async with anyio.create_task_group() as outputs:
                    outputs.start_soon(_collect, process.stdout, said)
                    outputs.start_soon(_collect, process.stderr, complained)
                    await _ended(process.pid)
                    # A child left behind may hold the outputs open for ever; what it said itself is here at once.
                    outputs.cancel_scope.deadline = anyio.current_time() + LAST_WORDS_S
                tasks.cancel_scope.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        code = await process.wait()
    return code, bytes(said), bytes(complained)


async def _ended(pid: int) -> None:
    """Wait for a child to end. Asyncio's own wait also waits for whoever holds the child's outputs."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def _feed(stdin: anyio.abc.ByteSendStream, data: bytes) -> None:
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await stdin.send(data)
        await stdin.aclose()


async def _collect(output: anyio.abc.ByteReceiveStream, kept: bytearray) -> None:
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            chunk = await output.receive()
            kept += chunk[: MAX_ANSWER_BYTES - len(kept)]
