"""The offline summariser in the conformance kit: which planted rules, facts and wishes survive five compactions in a
row, within 10, 20 and 30 per cent of the transcript, beside the kit's own reference compactors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compaction_kit.benchmark import budget_benchmark_to_markdown, run_budget_benchmark
from compaction_kit.cli import COMPACTORS
from compaction_kit.compacted import CompactedContext
from compaction_kit.session import Turn

from selfcompact.compaction.offline.writing import offline_summary
from selfcompact.compaction.planning.cut import Cut
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import plan_at
from selfcompact.entries import Entry, message_entry
from selfcompact.messages import AssistantMessage, Message, TextContent, UserMessage
from selfcompact.settings.compaction import CompactionSettings

UNLIMITED = 10**9


class _Characters:
    """Counts characters: the kit's budgets are in them."""

    def text(self, text: str) -> int:
        return len(text)

    def message(self, message: Message) -> int:  # noqa: ARG002 - the protocol's shape
        return 1


class Offline:
    """Our offline summariser as the kit sees a compactor. Each round gets the text of the one before as its summary."""

    name = "selfcompact-offline"

    def compact(self, turns: Sequence[Turn], round_num: int = 1, budget_chars: int | None = None) -> CompactedContext:
        """One compaction that keeps no tail."""
        entries: list[Entry] = []
        previous: str | None = None
        for turn in turns:
            content = (TextContent(text=turn.text),)
            if turn.role == "user":
                entries.append(message_entry(UserMessage(content=content, timestamp=0), None))
            elif turn.role == "assistant":
                entries.append(message_entry(AssistantMessage(content=content, timestamp=0), None))
            elif round_num > 1:
                previous = turn.text
        ledger = Ledger(entries, estimator=_Characters())
        planned = plan_at(ledger, Cut(len(entries)), CompactionSettings(), None)
        planned = replace(planned, previous_summary=previous)
        text = offline_summary(planned, budget_tokens=budget_chars or UNLIMITED)
        return CompactedContext(text=text, compactor_name=self.name, round_num=round_num)


def main() -> None:
    """Print the kit's table."""
    compactors = {Offline.name: Offline, **COMPACTORS}
    print(budget_benchmark_to_markdown(run_budget_benchmark(compactors)))
