from __future__ import annotations

import pytest

from selfcompact.compaction.planning.plan import Skip
from selfcompact.compaction.style.loading import BUILT_IN
from selfcompact.compaction.summary.summarisers import OfflineSummariser
from selfcompact.session.history import build_history, validate_history
from selfcompact.settings.compaction import CompactionSettings
from tests.compaction.build import SESSION, Compacted, compact_log, entries_of_file, logged, rounds, turns


@pytest.mark.parametrize("style", BUILT_IN)
async def test_a_real_session_of_another_program_is_compacted_in_every_style(style: str) -> None:
    entries = entries_of_file(SESSION)
    settings = CompactionSettings(style=style)
    done = await compact_log(entries, settings, OfflineSummariser(), window=200_000)
    assert isinstance(done, Compacted)
    history = build_history([*entries, done.entry])
    assert validate_history(history) == []
    assert done.entry.details is not None
    ours = done.entry.details["selfcompact"]
    assert ours["tokensAfter"] < done.entry.tokens_before / 3
    again = await compact_log([*entries, done.entry], settings, OfflineSummariser(), window=200_000)
    assert isinstance(again, Skip)
    more = [*entries, done.entry, *logged([*turns(150), *rounds(100, start=500)], start=5_000)]
    second = await compact_log(more, settings, OfflineSummariser(), window=200_000)
    assert isinstance(second, Compacted)
    assert second.plan.number == 2
    assert validate_history(build_history([*more, second.entry])) == []
