"""Forty secrets in prompts, cells, outputs, errors, instructions and file names: nothing that is written of them later
has one, whoever writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import selfcompact as sc
from selfcompact.convert import FORMS, export_session
from selfcompact.reports.chart import page
from selfcompact.reports.statistics import session_figures
from selfcompact.text.secrets import Redactor, secret_values
from tests.requests_sent import prompt_text
from tests.secrets_of_40_kinds import ENVIRONMENT, found_in, texts

from .conftest import OpenSession
from .helpers import fill

ALL = "\n".join(texts())
SHOW = f"all = {ALL!r}\nprint(all)"
FAIL = f"raise ValueError({ALL!r})"
ASK = "await compact.run('Keep ' + ' '.join(f'\"{line}\"' for line in all.split(chr(10))) + ' and `' + all + '`')"
FILE = "open('DB_PASSWORD=Tr0ub4dor&3xyz.txt', 'w').write('x')"
STEPS = [sc.cell(SHOW), sc.cell(FAIL), sc.cell(FILE), *fill(), sc.cell(ASK), sc.say("ok")]


async def supply(_: sc.CompactionPreparation) -> sc.SuppliedSummary:
    return sc.SuppliedSummary(f"## Goal\nWritten by a hook.\n{ALL}")


SUMMARY = f"""## Goal
Use them.

## Constraints & Preferences
{ALL}

## Progress
### Done
- [x] Showed them.
### In Progress
(none)
### Blocked
(none)

## Key Decisions
(none)

## Next Steps
1. Use them.

## Critical Context
(none)
"""

WRITERS: dict[str, dict[str, Any]] = {
    "a model": {"summaries": [SUMMARY] * 8, "offline_fallback": False},
    "offline": {},
    "a hook": {"hooks": sc.Hooks(before_compact=[supply])},
    "a model that fails": {"summaries": [sc.ModelError(f"refused: {ALL}")] * 8, "offline_fallback": True},
    "nobody": {"summaries": [sc.ModelError(f"refused: {ALL}")] * 8, "offline_fallback": False},
}


@pytest.mark.parametrize("writer", WRITERS)
async def test_nothing_that_is_written_of_a_session_has_a_secret(
    opened: OpenSession, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    async with opened(STEPS, **WRITERS[writer]) as session:
        events = session.events()
        result = await session.prompt(f"Use these:\n{ALL}")
        (outcome,) = result.compactions
        manual = await session.compact(f"keep `{ALL}`") if writer == "nobody" else None
        model = session.model
        assert isinstance(model, sc.ScriptedModel)
        asked = [prompt_text(request) for request in model.requests if not request.tools]
        path = session.session_file
    kinds = ("compaction", "warning", "request")
    told = [json.dumps(e.to_json(), ensure_ascii=False) async for e in events if e.type.startswith(kinds)]
    records = [json.loads(line) for line in path.read_text().splitlines()]
    ours = [record for record in records if record["type"] in ("compaction", "custom")]
    assert outcome.status == ("failed" if writer == "nobody" else "completed"), outcome.message
    assert any("compaction" in text for text in told)
    for text in (*asked, *told, *(json.dumps(record, ensure_ascii=False) for record in ours), str(outcome.message)):
        assert found_in(text) == [], text
    if outcome.result is not None:
        assert "[redacted]" in outcome.result.summary
        assert found_in(outcome.result.summary) == []
    if manual is not None:
        assert found_in(str(manual.message)) == []
    assert found_in(page(session_figures(path))) == []
    redact = Redactor(secret_values(ENVIRONMENT))
    for form in FORMS:
        for whole in (False, True):
            exported = export_session(path, form, whole=whole, redact=redact).content.decode()
            assert found_in(exported) == [], exported
            assert "[redacted]" in exported
