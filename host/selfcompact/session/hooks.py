"""Hooks round a compaction: one before, that may stop it or write the summary, and one after, that may add context.

Hooks are async callables in Python and commands in settings (`hook_commands`). A hook that fails or takes too long is
reported, and never a reason to lose a run. Before a compaction it counts as a veto, unless it is said to be passed
over: who may stop compactions must not be got around by being broken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, runtime_checkable

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


OnFailure = Literal["veto", "go-on"]


@runtime_checkable
class OwnTerms(Protocol):
    """A hook that has its own time and its own meaning of a failure, as the commands of the settings do."""

    @property
    def timeout_s(self) -> float:
        """Seconds that it may take. It ends itself when they are over."""

    @property
    def on_failure(self) -> OnFailure:
        """What its failure means."""


@dataclass(frozen=True)
class _Failed:
    """A hook that did not do what a hook does, and how."""

    reason: str


BeforeCompact = Callable[[CompactionPreparation], Awaitable["Veto | SuppliedSummary | None"]]
AfterCompact = Callable[[CompactionResult], Awaitable["str | None"]]


@dataclass(frozen=True)
class Hooks:
    """The hooks of a session, in the order they run. The first veto or supplied summary ends the round."""

    before_compact: Sequence[BeforeCompact] = ()
    after_compact: Sequence[AfterCompact] = ()
    timeout_s: float = HOOK_TIMEOUT_S
    on_failure: OnFailure = "veto"
    """What it means that a hook before a compaction raises, is too slow, or answers nonsense."""

    async def before(
        self, preparation: CompactionPreparation, report: Callable[[str], None]
    ) -> Veto | SuppliedSummary | None:
        """What the hooks decide; None lets the compaction go on. Hooks that failed are reported to `report`."""
        for hook in self.before_compact:
            answer = await self._call(partial(hook, preparation), hook)
            if isinstance(answer, Veto | SuppliedSummary):
                return answer
            if answer is not None and not isinstance(answer, _Failed):
                kind = type(answer).__name__
                answer = _Failed(f"{_name(hook)} returned {kind}; a Veto, a SuppliedSummary or None is meant")
            if answer is not None:
                report(answer.reason)
                if self._meaning(hook) == "veto":
                    return Veto(f"{answer.reason}; a hook that fails is a veto, unless its onFailure is go-on")
        return None

    async def after(self, result: CompactionResult, report: Callable[[str], None]) -> list[str]:
        """What the hooks want the model to know now, in order."""
        added: list[str] = []
        for hook in self.after_compact:
            answer = await self._call(partial(hook, result), hook)
            if isinstance(answer, _Failed):
                report(answer.reason)
            elif isinstance(answer, str) and answer.strip():
                added.append(answer)
            elif answer is not None and not isinstance(answer, str):
                report(f"{_name(hook)} returned {type(answer).__name__}; text or None is meant")
        return added

    def _meaning(self, hook: object) -> OnFailure:
        return hook.on_failure if isinstance(hook, OwnTerms) else self.on_failure

    async def _call(self, call: Callable[[], Awaitable[object]], hook: object) -> object:
        if isinstance(hook, OwnTerms):  # it ends itself, and what it started
            try:
                return await call()
            except Exception as error:  # noqa: BLE001 - as below
                return _Failed(f"{_name(hook)} failed: {error}")
        try:
            with anyio.move_on_after(self.timeout_s) as scope:
                return await call()
        except Exception as error:  # noqa: BLE001 - a hook is foreign code; whatever it raises is reported
            return _Failed(f"{_name(hook)} failed: {type(error).__name__}: {error}")
        assert scope.cancelled_caught
        return _Failed(f"{_name(hook)} took longer than {self.timeout_s:g} s")


def _name(hook: object) -> str:
    return f"hook {getattr(hook, '__qualname__', None) or getattr(hook, '__name__', None) or type(hook).__name__}"
