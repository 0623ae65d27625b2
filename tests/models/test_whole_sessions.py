"""The whole loop against a real server, through the vendors' own clients.

Cells in the sandbox, every kind of compaction with summaries that the provider writes, resume, malformed replies,
retries, abort, and keys that stay where they are.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import selfcompact as sc
from selfcompact.errors import AuthenticationFailed
from selfcompact.messages import ToolResultMessage, text_of
from selfcompact.models.protocol import Model
from selfcompact.models.registry import make_model
from selfcompact.session.history import validate_history
from selfcompact.testing import Call, FakeProvider, Fault, Reply, cell_reply, overflow_fault
from selfcompact.testing.replies import Answer

FAMILIES = [
    "openai-chat",
    pytest.param("openai", marks=pytest.mark.slow),
    pytest.param("anthropic", marks=pytest.mark.slow),
]
FILL = "print('\\n'.join(f'line {i}: ' + 'some words of output ' * 4 for i in range(60)))"
CANARY = "sk-canary-0123456789abcdefghij"

SUMMARY = """## Goal
Fill the context and count.

## Constraints & Preferences
(none)

## Progress
### Done
- [x] Lines were printed; this summary was written by the provider.

### In Progress
(none)

### Blocked
(none)

## Key Decisions
(none)

## Next Steps
1. Go on.

## Critical Context
(none)

## Additional Notes
(none)
"""


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def model_of(family: str, server: FakeProvider, **options: Any) -> Model:
    url = server.anthropic_url if family == "anthropic" else server.openai_url
    return make_model(f"{family}:fake-model", base_url=url, **{"context_window": 32_000, **options})


@asynccontextmanager
async def opened(
    tmp_path: Path, family: str, answers: Iterable[Answer], *, retry: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[sc.Session, FakeProvider]]:
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    settings = sc.Settings.model_validate(
        {
            "compaction": {"keepRecentTokens": 300, "reserveTokens": 4000, "offlineFallback": False},
            "retry": {"firstDelayS": 0.01, **(retry or {})},
        }
    )
    async with FakeProvider(answers, summaries=itertools.repeat(Reply(SUMMARY, usage=(900, 200)))) as server:
        model = model_of(family, server, **options)
        async with sc.open_session(
            model, workspace=workspace, session_file=tmp_path / "session.jsonl", settings=settings
        ) as session:
            yield session, server


def results(result: sc.RunResult) -> list[str]:
    return [text_of(message) for message in result.messages if isinstance(message, ToolResultMessage)]


async def test_a_session_compacts_on_request_at_the_threshold_and_on_overflow_and_is_resumed(
    tmp_path: Path, family: str
) -> None:
    """One compaction of each kind, each summary by the provider, each request accepted."""
    overflow = overflow_fault("anthropic" if family == "anthropic" else "openai")
    answers: list[Answer] = [
        cell_reply("treasure = [3, 1, 4]\nid(treasure)", usage=(1_000, 50)),
        cell_reply(FILL, usage=(1_200, 50)),
        cell_reply(FILL, usage=(2_600, 50)),
        cell_reply("await compact.run('keep `treasure` in mind')", usage=(4_000, 50)),
        cell_reply(FILL, usage=(2_000, 50)),
        cell_reply(FILL, usage=(28_500, 100)),
        cell_reply(FILL, usage=(2_000, 50)),
        cell_reply(FILL, usage=(3_500, 50)),
        overflow,
        cell_reply("id(treasure)", usage=(2_000, 50)),
        Reply("All done.", usage=(2_100, 20), cached=1_700),
    ]
    async with opened(tmp_path, family, answers) as (session, server):
        result = await session.prompt("Fill the context.")
        assert result.error is None
        assert [(each.reason, each.status) for each in result.compactions] == [
            ("requested", "completed"),
            ("threshold", "completed"),
            ("overflow", "completed"),
        ]
        for outcome in result.compactions:
            assert outcome.result is not None
            assert not outcome.result.offline
            assert "written by the provider" in outcome.result.summary
        assert "treasure" in session.history[0].to_json()["content"][0]["text"]
        assert results(result)[0] == results(result)[-1]  # the same object in the same kernel
        status = session.status()
        assert (status.tokens, status.cached_tokens) == (2_120, 1_700)
        told = [received for received in server.requests if received.is_summary]
        assert all("<conversation" in json.dumps(received.body) for received in told)
        kept = [text_of(message) for message in session.history]
    async with opened(tmp_path, family, [Reply("Still here.")]) as (session, server):
        assert [text_of(message) for message in session.history] == kept
        again = await session.prompt("Are you there?")
        assert (again.status, again.text) == ("done", "Still here.")
        (request,) = server.requests
        sent = json.dumps(request.body)
    assert "written by the provider" in sent
    assert "All done." in sent
    assert "Are you there?" in sent


async def test_malformed_replies_go_back_to_the_model_or_are_asked_for_again(tmp_path: Path, family: str) -> None:
    """Never a crash, never an invalid history; the model reads what was wrong."""
    broken: list[Answer] = [Reply(calls=(Call("ipython", '{"code": "x'),))]
    answers: list[Answer] = [
        *broken,
        Reply(calls=(Call("ipython", "[1, 2]"),)),
        Reply(calls=(Call("bash", {"command": "ls"}),)),
        Reply(calls=(Call("ipython", {"cmd": "ls"}),)),
        Reply(calls=(Call("ipython", {"code": "1 + 1"}, id=""),)),
        Reply(calls=(Call("ipython", {"code": "2 + 2"}, id="same"), Call("ipython", {"code": "3 + 3"}, id="same"))),
        Reply(calls=(Call("ipython", {"code": "4 + 4"}, id="same"),)),
        Reply(""),
        Reply("", thinking="only a thought"),
        Reply("cut off here", finish="", usage=None),
        Reply("Finished.", usage=(500, 5)),
    ]
    async with opened(tmp_path, family, answers, retry={"maxRetries": 9}) as (session, server):
        stream = session.events()
        result = await session.prompt("go")
        assert result.error is None
        assert (result.status, result.text) == ("done", "Finished.")
        assert validate_history(session.history) == []
        retries = [event for event in stream.pending() if event.type == "retry_scheduled"]
        assert len(server.requests) == len(answers)
    said = results(result)
    assert said[-4:] == ["2", "4", "6", "8"]
    assert any("not a JSON object" in text for text in said)
    assert any("no tool named 'bash'" in text for text in said)
    assert any("needs the argument `code`" in text for text in said)
    assert len(retries) >= 3


async def test_passing_failures_are_sent_again_with_an_event_each_and_retry_after_is_obeyed(
    tmp_path: Path, family: str
) -> None:
    answers: list[Answer] = [
        Fault(429, {"error": {"message": "slow down"}}, {"retry-after": "0"}),
        Fault(529 if family == "anthropic" else 503, {"error": {"message": "overloaded"}}),
        Reply("abc " * 30, cut_after=4),
        Reply("There.", usage=(500, 5)),
        Reply("Fine.", usage=(600, 5)),
    ]
    async with opened(tmp_path, family, answers) as (session, server):
        stream = session.events()
        result = await session.prompt("go")
        retries: list[Any] = [event for event in stream.pending() if event.type == "retry_scheduled"]
        assert (result.status, result.text) == ("done", "There.")
        assert len(server.requests) == 4
        await session.prompt("and?")
        assert "abc abc" not in json.dumps(server.requests[-1].body)
    assert [retry.attempt for retry in retries] == [1, 2, 3]
    assert retries[0].delay_ms == 0
    assert "slow down" in retries[0].error_message


async def test_an_abort_closes_the_connection_and_the_session_goes_on(tmp_path: Path, family: str) -> None:
    answers = [Reply("slow " * 400, delay_s=0.05), Reply("Here again.", usage=(500, 5))]
    async with opened(tmp_path, family, answers) as (session, server):
        stream = session.events()

        async def abort_when_it_speaks() -> None:
            async for event in stream:
                if event.type == "message_update":
                    await session.abort()
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort_when_it_speaks)
            result = await session.prompt("go")
        assert result.status == "aborted"
        with anyio.fail_after(5):
            while not server.disconnects:
                await anyio.sleep(0.01)
        again = await session.prompt("and now?")
        assert (again.status, again.text) == ("done", "Here again.")
        assert validate_history(session.history) == []


async def test_a_key_is_nowhere_but_in_its_header(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in the kernel, events, log, summaries or errors, though the server itself quotes it."""
    monkeypatch.setenv("MY_PROXY_KEY", CANARY)
    look = "import os\nprint(dict(os.environ))\nprint(open('/proc/self/environ').read())"
    answers: list[Answer] = [
        cell_reply(FILL),
        cell_reply(FILL),
        cell_reply(look),
        cell_reply("await compact.run('keep it')"),
        Fault(401, {"error": {"message": f"the key {CANARY} was refused", "type": "invalid_request_error"}}),
    ]
    with caplog.at_level("DEBUG", logger="selfcompact"):
        async with opened(tmp_path, family, answers, key_variable="MY_PROXY_KEY") as (session, server):
            stream = session.events()
            result = await session.prompt("go")
            told = json.dumps([event.to_json() for event in stream.pending()])
            bodies = b"".join(received.raw for received in server.requests)
            headers = [received.headers for received in server.requests]
    assert isinstance(result.error, AuthenticationFailed)
    assert "was refused" in str(result.error)
    assert result.error.__cause__ is None
    assert len(result.compactions) == 1
    logged = b"".join(path.read_bytes() for path in _files(tmp_path))
    for place in (told, str(result.error), repr(result.error), logged.decode("utf-8", "replace"), bodies.decode()):
        assert CANARY not in place
    assert all(CANARY in found.get("authorization", "") + found.get("x-api-key", "") for found in headers)
    assert not any(CANARY in record.getMessage() for record in caplog.records if record.name.startswith("selfcompact"))


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
