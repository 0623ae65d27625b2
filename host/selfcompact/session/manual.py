"""A compaction that a program asked for while something else was going on, and the callers that wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from selfcompact.session.compactor import CompactionOutcome


@dataclass(eq=False)
class ManualCompaction:
    """One compaction for all callers that came meanwhile. Owned by the session.

    `scope` is there while a boundary carries it out. `settled` is set when it is over; without an `outcome` then, the
    run ended before its turn came, or its owner went away, and the callers try again themselves.
    """

    instructions: str | None
    scope: anyio.CancelScope | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)
    outcome: CompactionOutcome | None = None
    _waiting: int = 0

    def settle(self, outcome: CompactionOutcome | None) -> None:
        """Wake the callers."""
        self.outcome = outcome
        self.settled.set()

    async def wait(self) -> CompactionOutcome | None:
        """The outcome. Cancelling the last caller that waits leaves a compaction that `is_unwanted`, and stops it where
        it is being carried out."""
        self._waiting += 1
        try:
            await self.settled.wait()
        finally:
            self._waiting -= 1
            if self.is_unwanted and self.scope is not None:
                self.scope.cancel()
        return self.outcome

    @property
    def is_unwanted(self) -> bool:
        """Whether nobody waits for it any more, though it is not over."""
        return not self._waiting and not self.settled.is_set()
