"""What `selfcompact settings` calls live is live in an open session, and what it calls `at open` is not."""

from __future__ import annotations

import json
from pathlib import Path

import selfcompact as sc
from selfcompact.settings.keys import split_key
from selfcompact.settings.timing import applies
from tests.end_to_end.helpers import fill

ASK = "print((await compact.run())['scheduled'])"


def test_only_compaction_is_live_and_of_it_all_but_the_hooks() -> None:
    live = [
        key
        for key in ("compaction.style", "compaction.model", "compaction.hooks.beforeCompact")
        if applies(split_key(key)) == "live"
    ]
    assert live == ["compaction.style", "compaction.model"]
    assert {applies(split_key(key)) for key in ("kernel.python", "retry.maxRetries", "model", "contextWindow")} == {
        "at open"
    }


async def test_a_changed_limit_holds_at_the_next_boundary_and_a_changed_hook_does_not(tmp_path: Path) -> None:
    file = tmp_path / ".selfcompact/settings.json"
    file.parent.mkdir()
    compaction = {"keepRecentTokens": 50_000}
    file.write_text(json.dumps({"compaction": compaction}))
    marker = tmp_path / "the-hook-ran"
    hook = {"argv": ["/bin/sh", "-c", f"touch {marker}"]}

    def change(_messages: object) -> sc.Step:
        file.write_text(json.dumps({"compaction": {"keepRecentTokens": 300, "hooks": {"beforeCompact": [hook]}}}))
        return sc.cell(ASK)

    model = sc.ScriptedModel([*fill(), change, sc.cell(ASK), sc.say("ok")])
    async with sc.open_session(model, workspace=tmp_path, session_file=f"{tmp_path}.jsonl") as session:
        result = await session.prompt("go")
        assert session.settings.compaction.keep_recent_tokens == 300
    assert [outcome.status for outcome in result.compactions] == ["completed"]
    assert not marker.exists()
