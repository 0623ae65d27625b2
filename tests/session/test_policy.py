"""What a session decides from values: who may compact, when the breaker speaks, which window holds, who summarises."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import selfcompact as sc
from selfcompact.compaction.summary.summarisers import OfflineSummariser, Summariser
from selfcompact.messages import Usage, text_of
from selfcompact.models.protocol import Model
from selfcompact.models.scripted import StepSource
from selfcompact.session.writer import SummaryWriter, default_summariser
from selfcompact.settings.compaction import CompactionSettings
from tests.session.memory_kernel import SUMMARY, memory_session

WINDOW = 6_000
COMPACTION = CompactionSettings(reserve_tokens=1_500, keep_recent_tokens=600, background=False, offline_fallback=False)
FILL = [sc.cell("fill"), sc.cell("fill"), sc.cell("fill")]
OVER = Usage(input=5_000, output=10)
DENIED = sc.PermissionDenied("not yours", status=403)


def with_(**more: Any) -> CompactionSettings:
    return COMPACTION.model_copy(update=more)


def results(result: sc.RunResult) -> list[str]:
    return [text_of(message) for message in result.messages if message.role == "toolResult"]


async def test_the_breaker_speaks_again_when_it_opens_again(tmp_path: Path) -> None:
    full = Usage(input=4_600, output=10)
    failing = [sc.cell("wait 1", usage=full) for _ in range(5)]
    steps: list[StepSource] = [*FILL, *failing, sc.cell("ask", usage=full), *FILL, *failing, sc.say("ok", usage=full)]
    model = sc.ScriptedModel(steps, context_window=WINDOW)
    summaries: list[str | sc.ModelError] = [*[DENIED] * 3, SUMMARY, *[DENIED] * 20]
    async with memory_session(tmp_path / "s.jsonl", model, summaries=iter(summaries), compaction=COMPACTION) as session:
        stream = session.events()
        result = await session.prompt("go")
        kinds = [event.type for event in stream.pending()]
    done = [outcome.status for outcome in result.compactions]
    assert done == ["failed"] * 3 + ["completed"] + ["failed"] * 3
    assert kinds.count("auto_compaction_disarmed") == 2


async def test_the_breaker_speaks_when_it_opens_and_says_until_when(tmp_path: Path) -> None:
    full, grown = (Usage(input=size, output=10) for size in (4_600, 5_800))
    steps: list[StepSource] = [
        *FILL,
        *(sc.cell("wait 1", usage=full) for _ in range(5)),
        sc.cell("wait 1", usage=grown),  # a tenth more: it lets go, is asked for once more, and rests again
        sc.cell("wait 1", usage=grown),
        sc.say("ok", usage=grown),
    ]
    model = sc.ScriptedModel(steps, context_window=WINDOW)
    async with memory_session(
        tmp_path / "s.jsonl", model, summaries=itertools.repeat(DENIED), compaction=COMPACTION
    ) as session:
        stream = session.events()
        result = await session.prompt("go")
        spoken = [event for event in stream.pending() if isinstance(event, sc.events.AutoCompactionDisarmed)]
    assert [(o.reason, o.status) for o in result.compactions] == [("threshold", "failed")] * 4
    first, *_ = spoken
    assert first.cause == "3 automatic compactions in a row failed"
    assert 1.09 * 4_600 < first.until_tokens < 1.12 * 4_700


async def test_at_the_cap_no_summary_is_begun_that_nobody_will_want(tmp_path: Path) -> None:
    asked: list[str] = []

    def summaries() -> Iterator[str | sc.ModelError]:
        while True:
            asked.append("a summary")
            yield SUMMARY

    near = Usage(input=4_400, output=10)
    steps: list[StepSource] = [*FILL, sc.cell("ask"), *FILL, *(sc.cell("wait 20", usage=near) for _ in range(4))]
    model = sc.ScriptedModel([*steps, sc.say("ok", usage=near)], context_window=WINDOW)
    settings = with_(max_compactions=1, background=True)
    async with memory_session(tmp_path / "s.jsonl", model, summaries=summaries(), compaction=settings) as session:
        result = await session.prompt("go")
    assert [outcome.reason for outcome in result.compactions] == ["requested"]
    assert len(asked) == 1


async def test_at_the_cap_a_cell_is_refused_with_the_count_and_below_it_not(tmp_path: Path) -> None:
    steps = [*FILL, sc.cell("ask"), *FILL, sc.cell("ask"), *FILL, sc.cell("ask;status"), sc.say("ok")]
    model = sc.ScriptedModel(steps, context_window=WINDOW)
    async with memory_session(
        tmp_path / "s.jsonl", model, summaries=itertools.repeat(SUMMARY), compaction=with_(max_compactions=2)
    ) as session:
        result = await session.prompt("go")
        status = session.status()
    assert [outcome.status for outcome in result.compactions] == ["completed"] * 2
    answer = results(result)[-1]
    assert '"scheduled": false' in answer
    assert "was compacted 2 times" in answer
    assert (status.would_compact, status.reason is not None and "2 times" in status.reason) == (False, True)


async def test_the_floor_is_asked_before_the_cap_and_after_what_there_is_to_summarise(tmp_path: Path) -> None:
    model = sc.ScriptedModel([*FILL, sc.say("ok")], context_window=WINDOW)
    settings = with_(agent_floor_percent=99.0, max_compactions=1)
    async with memory_session(
        tmp_path / "s.jsonl", model, summaries=itertools.repeat(SUMMARY), compaction=settings
    ) as session:
        assert "too short" in (session.status().reason or "")
        await session.prompt("go")
        assert "below the floor of 99 %" in (session.status().reason or "")
        assert (await session.compact()).status == "completed"
        assert "already compacted" in (session.status().reason or "")


async def test_a_threshold_at_which_nothing_can_be_summarised_does_not_fire(tmp_path: Path) -> None:
    model = sc.ScriptedModel([sc.cell("wait 1", usage=OVER), sc.say("ok", usage=OVER)], context_window=WINDOW)
    async with memory_session(
        tmp_path / "s.jsonl", model, summaries=itertools.repeat(SUMMARY), compaction=COMPACTION
    ) as session:
        stream = session.events()
        result = await session.prompt("go")
        assert "compaction_start" not in [event.type for event in stream.pending()]
    assert (result.status, result.compactions) == ("done", ())


async def test_a_switch_of_the_model_is_told_and_recorded_at_the_next_request_and_its_window_counts_before_it(
    tmp_path: Path,
) -> None:
    large = sc.ScriptedModel([*FILL, sc.say("large")], context_window=200_000)
    small = sc.ScriptedModel([sc.say("small")], context_window=4_000, model_id="small")
    async with memory_session(
        tmp_path / "s.jsonl", large, summaries=itertools.repeat(SUMMARY), compaction=COMPACTION
    ) as session:
        await session.prompt("go")
        session.set_model(small)
        assert (session.model, session.context_window) == (large, 200_000)
        stream = session.events()
        result = await session.prompt("more")
        events = stream.pending()
        assert (session.model, session.context_window) == (small, 4_000)
        assert session.status().threshold_tokens == 2_500
    assert (result.text, [outcome.reason for outcome in result.compactions]) == ("small", ["threshold"])
    kinds = [event.type for event in events]
    assert kinds.index("compaction_end") < kinds.index("model_changed") < kinds.index("turn_start")
    assert [e for e in events if isinstance(e, sc.events.ModelChanged)] == [
        sc.events.ModelChanged(provider="scripted", model_id="small")
    ]
    assert '"modelId":"small"' in (tmp_path / "s.jsonl").read_text()


async def test_a_model_whose_window_the_reserve_does_not_fit_is_told_and_the_settings_stay(tmp_path: Path) -> None:
    tiny = sc.ScriptedModel([sc.say("tiny")], context_window=1_000, model_id="tiny")
    async with memory_session(
        tmp_path / "s.jsonl",
        sc.ScriptedModel([sc.say("one")], context_window=WINDOW),
        summaries=itertools.repeat(SUMMARY),
        compaction=COMPACTION,
    ) as session:
        await session.prompt("go")
        session.set_model(tiny)
        stream = session.events()
        assert (await session.prompt("more")).text == "tiny"
        (warning,) = [event for event in stream.pending() if isinstance(event, sc.events.WarningRaised)]
        assert session.settings.compaction == COMPACTION
    assert "reserveTokens" in warning.message


# Who writes the summaries


class Chooser:
    """The session's side of a writer: what is in force now, and what it was told."""

    def __init__(self, **compaction: Any) -> None:
        self.model: Model = sc.ScriptedModel([], summaries=[], model_id="first")
        self.settings = sc.Settings.model_validate({"compaction": compaction})
        self.told: list[str] = []

    def writer(self, given: Summariser | None = None) -> SummaryWriter:
        return SummaryWriter(given, policy=self, cache_key="key")

    def warn(self, sentence: str) -> None:
        self.told.append(sentence)


def test_a_given_summariser_stays_whatever_changes() -> None:
    chooser, mine = Chooser(), OfflineSummariser()
    writer = chooser.writer(mine)
    assert writer.current() is mine
    chooser.model = sc.ScriptedModel([], summaries=[])
    assert writer.current() is mine


def test_the_sessions_model_writes_and_another_one_after_a_switch() -> None:
    chooser = Chooser()
    writer = chooser.writer()
    first = writer.current()
    assert (first.name, writer.current() is first) == ("scripted:first", True)
    chooser.model = sc.ScriptedModel([], summaries=[], model_id="second")
    assert writer.current().name == "scripted:second"
    chooser.model = sc.ScriptedModel([], model_id="third")
    assert isinstance(writer.current(), OfflineSummariser)


REMOTE = {"remoteEndpoint": "http://127.0.0.1:9/"}


def test_an_address_and_its_token_are_noticed_when_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t")
    chooser = Chooser()
    writer = chooser.writer()
    seen = [writer.current()]
    for compaction in (
        REMOTE,
        {"remoteEndpoint": "http://127.0.0.1:8/"},
        REMOTE,
        {**REMOTE, "remoteTokenVariable": "TOKEN"},
        {},
    ):
        chooser.settings = sc.Settings.model_validate({"compaction": compaction})
        assert writer.current() is not seen[-1]
        seen.append(writer.current())
        assert writer.current() is seen[-1]
    assert (seen[0].name, seen[-1].name) == ("scripted:first", "scripted:first")
    assert chooser.told == []


@pytest.mark.parametrize("changed", [{"channel": "native"}, {"model": "nobody:nothing"}])
def test_a_summariser_that_cannot_be_used_is_told_once_and_the_one_before_goes_on(changed: dict[str, str]) -> None:
    chooser = Chooser()
    writer = chooser.writer()
    first = writer.current()
    chooser.settings = sc.Settings.model_validate({"compaction": changed})
    assert writer.current() is writer.current() is first
    (told,) = chooser.told
    assert "summaries are written by scripted:first as before" in told


def test_a_choice_that_cannot_be_used_at_first_is_an_error() -> None:
    chooser = Chooser(model="nobody:nothing")
    with pytest.raises(sc.UsageError, match="nobody"):
        chooser.writer().current()
    assert chooser.told == []


def test_a_script_without_summaries_is_summarised_offline_unless_another_is_named() -> None:
    silent, speaking = sc.ScriptedModel([]), sc.ScriptedModel([], summaries=[])
    assert isinstance(default_summariser(silent, sc.Settings()), OfflineSummariser)
    assert default_summariser(speaking, sc.Settings()).name == "scripted:script"
    remote = sc.Settings.model_validate({"compaction": REMOTE})
    assert not isinstance(default_summariser(silent, remote), OfflineSummariser)
    for named in ({"model": "nobody:nothing"}, {"channel": "native"}):
        with pytest.raises(sc.UsageError):
            default_summariser(silent, sc.Settings.model_validate({"compaction": named}))
