"""Hooks round a compaction: one before, that may stop it or write the summary, and one after, that may add context.

Hooks are async callables in Python and commands in settings (`hook_commands`). A hook that fails or takes too long
is reported and passed over: it is never a reason to lose a run.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import anyio

from selfcompact.codec import Json, camel
from selfcompact.events import CompactionReason, CompactionResult

HOOK_TIMEOUT_S = 30.0
"""For one hook written in Python; long enough to ask a person's approval service, short enough not to look hung."""


@dataclass(frozen=True)
class CompactionPreparation:
    """What a hook is told before anything is summarised. Tokens are the ledger's estimates of the context."""

    reason: CompactionReason
    trigger: str
    """`user`, `agent` or `auto`."""
    session_id: str
    session_file: str
    model: str
    instructions: str | None
    tokens_before: int
    expected_tokens_after: int
    messages_to_summarise: int
    first_kept_entry_id: str
    is_split_turn: bool

    def to_json(self) -> dict[str, Json]:
        """The form that commands read on standard input."""
        return {camel(name): value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Veto:
    """The compaction must not happen."""

    reason: str


@dataclass(frozen=True)
class SuppliedSummary:
    """Use this text instead of asking a summariser."""

    text: str


BeforeCompact = Callable[[CompactionPreparation], Awaitable["Veto | SuppliedSummary | None"]]
AfterCompact = Callable[[CompactionResult], Awaitable["str | None"]]


@dataclass(frozen=True)
class Hooks:
    """The hooks of a session, in the order they run. The first veto or supplied summary ends the round."""

    before_compact: Sequence[BeforeCompact] = ()
    after_compact: Sequence[AfterCompact] = ()
    timeout_s: float = HOOK_TIMEOUT_S

    async def before(
        self, preparation: CompactionPreparation, report: Callable[[str], None]
    ) -> Veto | SuppliedSummary | None:
        """What the hooks decide; None lets the compaction go on. hooks that failed are reported to `report`."""
        for hook in self.before_compact:
            answer = await self._call(partial(hook, preparation), hook, report)
            if isinstance(answer, Veto | SuppliedSummary):
                return answer
            if answer is not None:
                report(f"{_name(hook)} returned {type(answer).__name__}; a Veto, a SuppliedSummary or None is meant")
        return None

    async def after(self, result: CompactionResult, report: Callable[[str], None]) -> list[str]:
        """What the hooks want the model to know now, in order."""
        added: list[str] = []
        for hook in self.after_compact:
            answer = await self._call(partial(hook, result), hook, report)
            if isinstance(answer, str) and answer.strip():
                added.append(answer)
            elif answer is not None and not isinstance(answer, str):
                report(f"{_name(hook)} returned {type(answer).__name__}; text or None is meant")
        return added

    async def _call(self, call: Callable[[], Awaitable[object]], hook: object, report: Callable[[str], None]) -> object:
        # A command keeps its own limit, which the settings set, and tells when it was over it.
        limit_s = math.inf if getattr(hook, "keeps_its_own_time", False) else self.timeout_s
        try:
            with anyio.move_on_after(limit_s) as scope:
                return await call()
        except Exception as error:  # noqa: BLE001 - a hook is foreign code; whatever it raises is reported
            report(f"{_name(hook)} failed: {type(error).__name__}: {error}")
            return None
        if scope.cancelled_caught:
            report(f"{_name(hook)} took longer than {self.timeout_s:g} s and was passed over")
        return None


def _name(hook: object) -> str:
    return f"hook {getattr(hook, '__qualname__', None) or getattr(hook, '__name__', None) or type(hook).__name__}"
