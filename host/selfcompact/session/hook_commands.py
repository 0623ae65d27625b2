"""Hooks that are commands: JSON on standard input, an exit code and JSON on standard output.

Before a compaction: exit code 0 lets it go on, and the answer may be `{"summary": "…"}` or `{"cancel": true, "reason":
"…"}`; exit code 2 cancels it, with the reason on standard error. After one: the answer may be `{"context": "…"}`. Every
other exit code, and output that is not JSON, is a failing hook. Commands run on the host, not in the sandbox: they
are the operator's.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

import anyio

from selfcompact.codec import Json
from selfcompact.events import CompactionResult
from selfcompact.session.hooks import CompactionPreparation, SuppliedSummary, Veto
from selfcompact.settings.compaction import HookCommand

VETO_EXIT_CODE = 2


class HookFailed(Exception):
    """A hook's command did not do what a hook does; the text says what."""


class BeforeCommand:
    """A command as a hook before compactions."""

    keeps_its_own_time = True

    def __init__(self, command: HookCommand) -> None:
        self._command = command
        self.__qualname__ = f"`{' '.join(command.argv)}`"

    async def __call__(self, preparation: CompactionPreparation) -> Veto | SuppliedSummary | None:
        code, answer, complaint = await _run(self._command, {"event": "before_compact", **preparation.to_json()})
        if code == VETO_EXIT_CODE or answer.get("cancel") is True:
            reason = answer.get("reason") or complaint or "no reason given"
            return Veto(f"{self.__qualname__}: {reason}")
        summary = answer.get("summary")
        return SuppliedSummary(summary) if isinstance(summary, str) and summary.strip() else None


class AfterCommand:
    """A command as a hook after compactions."""

    keeps_its_own_time = True

    def __init__(self, command: HookCommand) -> None:
        self._command = command
        self.__qualname__ = f"`{' '.join(command.argv)}`"

    async def __call__(self, result: CompactionResult) -> str | None:
        _, answer, _ = await _run(self._command, {"event": "after_compact", **result.to_json()})
        context = answer.get("context")
        return context if isinstance(context, str) else None


async def _run(command: HookCommand, data: Mapping[str, Json]) -> tuple[int, Mapping[str, Json], str]:
    try:
        with anyio.fail_after(command.timeout_s):
            done = await anyio.run_process(
                list(command.argv),
                input=json.dumps(data).encode(),
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
    except TimeoutError as error:
        raise HookFailed(f"took longer than {command.timeout_s:g} s and was ended") from error
    except OSError as error:
        raise HookFailed(f"cannot be started ({error.strerror})") from error
    complaint = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode not in (0, VETO_EXIT_CODE):
        raise HookFailed(f"ended with exit code {done.returncode} ({complaint[-300:] or 'no message'})")
    text = done.stdout.decode("utf-8", "replace").strip()
    try:
        answer = json.loads(text) if text else {}
    except ValueError as error:
        raise HookFailed(f"answered something that is not JSON ({error})") from error
    if not isinstance(answer, dict):
        raise HookFailed("answered JSON that is not an object")
    return done.returncode, answer, complaint
