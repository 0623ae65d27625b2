from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from selfcompact.compaction.commit import compaction_entry
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, plan
from selfcompact.compaction.style.forms import FORMS, read_any
from selfcompact.compaction.style.loading import BUILT_IN, load_style, style_of
from selfcompact.compaction.style.tags import TaggedSummary, render
from selfcompact.compaction.summary.request import CARRY_OVER, SummaryRequest, is_compaction_request, summary_request
from selfcompact.compaction.summary.summarise import summarise
from selfcompact.compaction.summary.summarisers import ModelSummariser, OfflineSummariser
from selfcompact.compaction.summary.transcript import transcript
from selfcompact.errors import SettingsError
from selfcompact.messages import AssistantMessage, Message, UserMessage, text_of
from selfcompact.models.protocol import ModelRequest, ToolSpec
from selfcompact.session.history import build_history, validate_history
from selfcompact.settings.compaction import CompactionSettings
from tests.compaction.build import (
    PREFIX,
    PlayedSummariser,
    answered,
    called,
    logged,
    resulted,
    rounds,
    said,
    sections,
    turns,
)
from tests.requests_sent import parts_of

GOLDEN = Path(__file__).parent.parent / "data" / "golden"

KIMI = render(
    TaggedSummary(
        current_focus="Port the second half of the parser, in the way that was agreed on with the user before.",
        completed_tasks="- First half: done and tested.",
        important_context="- Never touch legacy/.",
    )
)
HANDOFF = (
    "## Progress & Decisions\n- The first half is done, and its tests pass.\n\n"
    "## Context & Constraints\n- Never touch legacy/.\n\n"
    "## Remaining Work\n1. Port the second half in the way that was agreed on.\n\n## Data & References\n- src/parser.py"
)
ANSWERS = {"sections": sections(), "kimi": KIMI, "handoff": HANDOFF}


def answer(request: SummaryRequest) -> str:
    """The form that the request asks for."""
    if "beginning of a turn" in request.prompt:
        return PREFIX
    task = request.prompt.rsplit(" nonce=", 1)[1]
    return KIMI if "<current_focus>" in task else HANDOFF if "## Remaining Work" in task else sections()


def chosen(style: str, **more: object) -> CompactionSettings:
    return CompactionSettings.model_validate(
        {"style": style, "keep_recent_tokens": 200, "offline_fallback": False, **more}
    )


def planned(ledger: Ledger, settings: CompactionSettings, instructions: str | None = None) -> Plan:
    found = plan(ledger, settings, 200_000, instructions=instructions)
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize("style", BUILT_IN)
@pytest.mark.parametrize("kind", ["first", "update"])
def test_the_request_of_a_small_conversation_is_exactly_this(style: str, kind: str) -> None:
    messages: list[Message] = [said("Port it."), answered("On it.", called("a", "x = 1")), resulted("a", "ok")]
    request = summary_request(
        load_style(style),
        "update" if kind == "update" else "first",
        conversation="\n\n".join(transcript(messages)),
        previous=ANSWERS[style] if kind == "update" else None,
        context="Modified files: a.py",
        instructions="keep `x`",
        max_output_tokens=100,
        nonce="0123456789ab",
    )
    golden = GOLDEN / f"{style}-{kind}.txt"
    assert f"{request.system}\n=====\n{request.prompt}\n" == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("style", BUILT_IN)
async def test_each_style_compacts_and_the_history_goes_on_valid(style: str) -> None:
    settings, ledger = chosen(style), Ledger(logged([*turns(20), said("Next, please. " * 100)]))
    found = planned(ledger, settings)
    summary = await summarise(found, PlayedSummariser([answer]), settings)
    assert summary.text == ANSWERS[style]
    ledger.append(compaction_entry(found, summary, parent_id=None, manifest_text="names: alive"))
    history = build_history(ledger.entries)
    assert validate_history(history) == []
    assert any("names: alive" in text_of(message) for message in history)
    assert any(text_of(message).startswith("Next, please.") for message in history)


async def test_handoff_rebuilds_from_the_users_words_with_the_summary_last() -> None:
    settings, ledger = (
        chosen("handoff"),
        Ledger(
            logged([said("First."), *rounds(20), said("note", synthetic=True), said("Second."), *rounds(20, start=50)])
        ),
    )
    for number in range(2):
        found = planned(ledger, settings)
        summary = await summarise(found, PlayedSummariser([HANDOFF]), settings)
        ledger.append(compaction_entry(found, summary, parent_id=None, manifest_text=f"names: n{number}"))
        history = build_history(ledger.entries)
        assert [bool(isinstance(m, UserMessage) and m.synthetic) for m in history[:4]] == [False, True, False, True]
        assert text_of(history[0]) == "First."
        assert f"names: n{number}" in text_of(history[1])
        assert text_of(history[2]) == "Second."
        assert "Another model worked on this task before" in text_of(history[3])
        assert "## Remaining Work" in text_of(history[3])
        assert len(history) == 4
        assert (found.warning is not None, found.number) == (number > 0, number + 1)
        for entry in logged(rounds(40, start=1000 * (number + 1)), start=1000 * (number + 1)):
            ledger.append(entry)


def test_user_messages_are_carried_newest_first_up_to_the_budget_with_the_last_one_cut() -> None:
    long = [said(f"{n} begins. " + "word " * 8_000 + f"{n} ends.") for n in range(6)]
    messages: list[Message] = []
    for n, message in enumerate(long):
        messages += [message, *rounds(5, start=10 * n)]
    found = planned(Ledger(logged(messages)), chosen("handoff"))
    assert [text.split()[0] for text in found.user_messages] == ["3", "4", "5"]
    assert "characters left out" in found.user_messages[0]
    assert found.user_messages[0].endswith("3 ends.")
    assert found.user_messages[-1] == text_of(long[-1])


async def test_a_session_switches_style_half_way_and_compacts_five_times() -> None:
    ledger = Ledger(logged([said("Port it. Never touch legacy/."), *rounds(60)]))
    for number, style in enumerate(["sections", "kimi", "handoff", "kimi", "sections"]):
        settings = chosen(style)
        found = planned(ledger, settings)
        summariser = PlayedSummariser([answer])
        summary = await summarise(found, summariser, settings)
        assert summary.text == ANSWERS[style]
        if number:
            assert "previous-summary" in parts_of(summariser.requests[0].prompt)
        ledger.append(compaction_entry(found, summary, parent_id=None, manifest_text="names: a", entry_id=f"c{number}"))
        history = build_history(ledger.entries)
        assert validate_history(history) == []
        assert any("Port it. Never touch legacy/." in text_of(message) for message in history)
        for entry in logged(rounds(60, start=1000 * (number + 1)), start=1000 * (number + 1)):
            ledger.append(entry)


@pytest.mark.parametrize("style", BUILT_IN)
async def test_the_offline_summariser_writes_every_form_and_reads_its_own(style: str) -> None:
    settings = chosen(style)
    ledger = Ledger(logged([said("Port it. Never touch legacy/."), *rounds(60)]))
    for number in range(3):
        found = planned(ledger, settings)
        summary = await summarise(found, OfflineSummariser(), settings)
        checked = FORMS[style].check(summary.text, message_count=120)
        assert (checked.violations, checked.repairs) == ((), ())
        assert summary.text.count("Never touch legacy/.") <= 4
        assert "Never touch legacy/." in summary.text
        ledger.append(compaction_entry(found, summary, parent_id=None, entry_id=f"c{number}"))
        for entry in logged(rounds(60, start=1000 * (number + 1)), start=1000 * (number + 1)):
            ledger.append(entry)


@pytest.mark.parametrize("style", BUILT_IN)
def test_lines_of_one_form_are_read_whatever_form_they_stand_in(style: str) -> None:
    lines = {"Goal": ["Port it."], "Done": ["The lexer."], "Critical Context": ["a.py\nsecond line"]}
    found = read_any(FORMS[style].render(lines))
    assert {text for _, text in found} >= {"Port it.", "The lexer.", "a.py\nsecond line"}


def test_custom_instructions_go_above_the_priorities_of_the_kimi_style_and_below_those_of_others() -> None:
    def places(style: str) -> bool:
        request = summary_request(
            load_style(style), "first", conversation="c", instructions="keep it", max_output_tokens=1, nonce="ab12"
        )
        return request.prompt.index("keep it") < request.prompt.index(load_style(style).first)

    assert [places(style) for style in BUILT_IN] == [False, True, False]


def test_a_request_for_a_summary_is_known_by_its_system_prompt_and_its_lack_of_tools() -> None:
    for style in BUILT_IN:
        request = ModelRequest(system=load_style(style).system, messages=())
        assert is_compaction_request(request)
        assert not is_compaction_request(
            ModelRequest(system=request.system, messages=(), tools=(ToolSpec("t", "", {}),))
        )
    assert not is_compaction_request(ModelRequest(system="You are an agent.", messages=()))


async def test_the_kimi_style_has_an_output_limit_of_its_own() -> None:
    settings = chosen("kimi", reserve_tokens=100_000)
    summariser = PlayedSummariser([KIMI], context_window=1_000_000)
    await summarise(planned(Ledger(logged([*turns(20), said("n " * 300)])), settings), summariser, settings)
    assert summariser.requests[0].max_output_tokens == 16_384
    assert load_style("kimi").output_tokens == 32_000
    assert ModelSummariser.__dataclass_fields__["cache_key"].default is None


async def test_an_override_replaces_the_instruction_text_and_keeps_form_and_safety(tmp_path: Path) -> None:
    file = tmp_path / "mine.md"
    file.write_text("Only the colours matter.", encoding="utf-8")
    for more in ({"prompt": "Only the colours matter."}, {"prompt": "not this", "promptFile": str(file)}):
        settings = chosen("sections", **more)
        summariser = PlayedSummariser([sections()])
        await summarise(planned(Ledger(logged([*turns(20), said("n " * 300)])), settings), summariser, settings)
        (request,) = summariser.requests
        assert "Only the colours matter." in request.prompt
        assert "## Constraints & Preferences" in request.prompt
        assert "Report what happened" not in request.prompt
        assert request.system == load_style("sections").system


async def test_a_folder_adds_a_style(tmp_path: Path) -> None:
    folder = tmp_path / "colours"
    folder.mkdir()
    (folder / "style.toml").write_text('headings = ["Colours", "Shapes"]\nrequired = ["Colours"]\n', encoding="utf-8")
    (folder / "first.md").write_text("Name the colours.", encoding="utf-8")
    (folder / "format.md").write_text("## Colours\n- one\n\n## Shapes\n- one", encoding="utf-8")
    settings = chosen("colours", styleFolders=[str(tmp_path)])
    reply = "## Colours\n- Red, and also a blue that nobody had asked for.\n- In the end a green that everybody wanted."
    reply += "\n- A grey that was there from the beginning on."
    found = planned(Ledger(logged([*turns(20), said("n " * 300)])), settings)
    summary = await summarise(found, PlayedSummariser(["## Shapes\n- round", reply]), settings)
    assert summary.text == f"{reply}\n\n## Shapes\n(none)"
    offline = await summarise(found, OfflineSummariser(), settings)
    assert offline.text.startswith("## Colours\n")
    assert "Question 0?" in offline.text


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"style": "nowhere"}, ["nowhere", "compaction.style"]),
        ({"style": "sections", "promptFile": "/no/such/prompt.md"}, ["/no/such/prompt.md", "compaction.promptFile"]),
    ],
)
def test_a_style_that_cannot_be_had_is_said_with_its_place(settings: dict[str, str], names: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        style_of(CompactionSettings.model_validate(settings))
    assert all(name in str(refused.value) for name in names)


@pytest.mark.parametrize("described", ["form = 'poem'", "not toml", "surprise = 1"])
def test_a_wrong_style_file_is_said_with_its_path(described: str, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "style.toml").write_text(described, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"style\.toml"):
        style_of(chosen("odd", styleFolders=[str(tmp_path)]))


@pytest.mark.parametrize("style", ["sections", "kimi"])
async def test_a_split_turn_and_an_open_question_find_their_place_in_every_form(style: str) -> None:
    settings = chosen(style)
    silent = [replace(m, content=m.tool_calls) if isinstance(m, AssistantMessage) else m for m in rounds(60, start=50)]
    found = planned(Ledger(logged([*turns(10), said("Which file shall it be?"), *silent])), settings)
    assert found.is_split_turn
    summary = await summarise(found, PlayedSummariser([answer]), settings)
    assert "Context for Suffix" in summary.text
    assert "Open question: Which file shall it be?" in summary.text
    checked = FORMS[style].check(summary.text)
    assert checked.violations == ()
    assert {"Path a.py."} <= {text for _, text in read_any(summary.text)}


async def test_an_override_is_told_about_the_previous_summary() -> None:
    settings, ledger = chosen("sections", prompt="Only the colours matter."), Ledger(logged([said("go"), *rounds(60)]))
    for number in range(2):
        summariser = PlayedSummariser([sections()])
        found = planned(ledger, settings)
        summary = await summarise(found, summariser, settings)
        assert (CARRY_OVER in summariser.requests[0].prompt) == (number > 0)
        ledger.append(compaction_entry(found, summary, parent_id=None))
        for entry in logged(rounds(60, start=500), start=500):
            ledger.append(entry)


async def test_user_messages_of_earlier_compactions_are_left_out_when_newer_ones_fill_the_budget() -> None:
    settings = chosen("handoff")
    ledger = Ledger(logged([said("old " * 9_000), *rounds(30)]))
    found = planned(ledger, settings)
    summary = await summarise(found, PlayedSummariser([HANDOFF]), settings)
    ledger.append(compaction_entry(found, summary, parent_id=None))
    for entry in logged([said("new " * 18_000), *rounds(30, start=500)], start=500):
        ledger.append(entry)
    carried = planned(ledger, settings).user_messages
    assert carried[-1].startswith("new new")
    assert carried[0].startswith("old")
    assert "characters left out" in carried[0]
