"""What a session hands to its parts arrives there: sizes, images, secrets, the summariser's model, fitted limits.

Each of these parts has tests of its own; here it is seen from outside that the session really uses them. The known
mutants (`tests/mutants.toml`) cut these wires one by one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

import selfcompact as sc
from selfcompact.compaction.planning.budget import MAX_MEDIA_BYTES
from selfcompact.messages import ImageContent, blocks
from selfcompact.testing import FakeProvider, Reply

from .conftest import OpenSession
from .helpers import FILL, fill, history_text
from .test_brakes import SUMMARY

IMAGE = """
import os, struct, zlib
from IPython.display import Image, display

def noise(width, height):
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    rows = b''.join(b'\\0' + os.urandom(3 * width) for _ in range(height))
    head = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    body = chunk(b'IHDR', head) + chunk(b'IDAT', zlib.compress(rows, 0)) + chunk(b'IEND', b'')
    return b'\\x89PNG\\r\\n\\x1a\\n' + body

display(Image(data=noise(1000, 1300), format='png'))
"""
"""A picture of 3.9 MB, which are 5.2 MB of base64."""


def scripted(session: sc.Session) -> sc.ScriptedModel:
    assert isinstance(session.model, sc.ScriptedModel)
    return session.model


def media_bytes(messages: Sequence[sc.Message]) -> int:
    return sum(len(b.data) for message in messages for b in blocks(message) if isinstance(b, ImageContent))


async def test_system_prompt_and_tool_count_before_anything_was_answered_and_after_a_compaction(
    opened: OpenSession,
) -> None:
    async with opened([*fill(3), sc.say("one"), sc.say("two")]) as session:
        at_first = session.status().estimated_tokens
        await session.prompt("go")
        outcome = await session.compact()
        compacted = session.status().estimated_tokens
        empty = dataclasses.replace(scripted(session).requests[0], messages=())
        whole = dataclasses.replace(empty, messages=session.history)
        model = scripted(session)
    assert outcome.status == "completed"
    assert at_first == model.count(empty) > 500
    assert compacted == pytest.approx(model.count(whole), rel=0.02)


@pytest.mark.slow
async def test_images_that_are_too_many_for_one_request_are_compacted_however_few_tokens_they_are(
    opened: OpenSession,
) -> None:
    pictures = MAX_MEDIA_BYTES // 5_200_000 + 1
    steps = [*fill(), *(sc.cell(IMAGE) for _ in range(pictures)), sc.say("seen")]
    async with opened(steps, window=200_000) as session:
        result = await session.prompt("go")
        model = scripted(session)
    assert result.status == "done"
    assert [(o.reason, o.status) for o in result.compactions] == [("threshold", "completed")]
    sent = [media_bytes(request.messages) for request in model.requests]
    assert 0.75 * MAX_MEDIA_BYTES < max(sent) <= MAX_MEDIA_BYTES


async def test_values_of_the_hosts_key_variables_are_in_no_summary_and_no_summary_request(
    opened: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "mauve otter lane, 4711"  # nothing but its variable's name tells that this is a secret
    monkeypatch.setenv("DEPLOY_PASSWORD", value)
    leaky = SUMMARY.replace("as asked for", f"with {value}, as asked for")
    steps = [sc.cell(f"print({value!r})"), *fill(3), sc.say("ok")]
    async with opened(steps, summaries=[leaky]) as session:
        await session.prompt(f"Go in by {value}.")
        outcome = await session.compact()
        asked = [request for request in scripted(session).requests if request.purpose == "summary"]
    assert outcome.result is not None
    assert asked
    for text in (str(asked), outcome.result.summary, str(outcome.result.details)):
        assert value not in text
    assert "with [redacted], as asked for" in outcome.result.summary


async def test_the_model_named_for_summaries_writes_them_and_the_sessions_model_none(
    workspace: Path, tmp_path: Path
) -> None:
    async with FakeProvider(summaries=itertools.repeat(Reply(SUMMARY))) as server:
        name = "openai-chat:for-summaries"
        settings = sc.Settings.model_validate(
            {
                "compaction": {"model": name, "keepRecentTokens": 300, "reserveTokens": 4000},
                "models": {name: {"baseUrl": server.openai_url, "contextWindow": 32_000}},
            }
        )
        model = sc.ScriptedModel([*fill(3), sc.say("ok")], summaries=[], context_window=32_000)
        async with sc.open_session(
            model, workspace=workspace, session_file=tmp_path / "s.jsonl", settings=settings
        ) as session:
            await session.prompt("go")
            outcome = await session.compact()
        bodies = [request.body for request in server.requests]
    assert outcome.result is not None
    assert not outcome.result.offline
    assert "Printed lines of words" in outcome.result.summary
    assert {body["model"] for body in bodies} == {"for-summaries"}
    assert {request.purpose for request in model.requests} == {"turn"}


async def test_after_a_switch_of_the_model_the_limits_are_those_of_a_session_opened_with_it(
    workspace: Path, tmp_path: Path
) -> None:
    def small(*steps: sc.Step) -> sc.ScriptedModel:
        return sc.ScriptedModel(steps, context_window=14_000, model_id="small")

    settings = sc.Settings()
    large = sc.ScriptedModel([sc.say("large")], context_window=200_000)
    async with sc.open_session(
        large, workspace=workspace, session_file=tmp_path / "switched.jsonl", settings=settings
    ) as session:
        await session.prompt("go")
        session.set_model(small(sc.say("small"), sc.cell(FILL), sc.say("done")))
        assert (await session.prompt("and you?")).text == "small"
        switched = (session.settings.compaction, session.status().threshold_tokens)
        again = await session.prompt("print something")
        assert "line 59" in history_text(session)
    async with sc.open_session(
        small(), workspace=workspace, session_file=tmp_path / "fresh.jsonl", settings=settings
    ) as session:
        fresh = (session.settings.compaction, session.status().threshold_tokens)
    assert switched == fresh
    assert again.compactions == ()
