"""The plan of a context as it stands: asked for often, made once for each state of the context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, Skip, plan
from selfcompact.settings.compaction import CompactionSettings


class Planner:
    """Remembers the newest plan. A cell's question, the threshold, a draft and the compaction itself ask for the same.

    Owned by one session. Instructions change nothing but themselves, so they make no other plan. `redact` takes secrets
    out of them, and out of the user's words before those are cut.
    """

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._made: Plan | Skip | None = None
        self._made_for: tuple[object, ...] = ()

    def plan(
        self, ledger: Ledger, settings: CompactionSettings, window: int | None, *, instructions: str | None = None
    ) -> Plan | Skip:
        """What `planning.plan.plan` says, for as long as nothing was appended and no setting changed."""
        wanted = (ledger, ledger.version, settings, window)
        if self._made is None or self._made_for != wanted:
            self._made, self._made_for = plan(ledger, settings, window, redact=self._redact), wanted
        if isinstance(self._made, Skip):
            return self._made
        return replace(self._made, instructions=self._redact((instructions or "").strip()) or None)
