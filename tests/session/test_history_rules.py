"""Each rule of a history by itself: what the validator names, and what the repair makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selfcompact.entries import BranchSummaryEntry, CompactionEntry, CustomMessageEntry
from selfcompact.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from selfcompact.session.history import (
    BEGINS,
    GOES_ON,
    UNKNOWN_OUTCOME,
    build_history,
    repaired,
    summary_message,
    validate_history,
)
from tests.compaction.build import answered, called, logged, resulted, said

PICTURE = ImageContent(data="aGk=", mime_type="image/png")
CALLS = answered("", called("a"), called("b"))


def host(text: str, timestamp: int) -> UserMessage:
    return UserMessage(content=(TextContent(text=text),), timestamp=timestamp, synthetic=True)


@pytest.mark.parametrize(
    ("messages", "problems"),
    [
        ([said("q"), CALLS, resulted("b", "2"), resulted("a", "1"), answered("ok"), said("q"), answered("ok")], []),
        ([], ["there is no user message"]),
        ([answered("a")], ["there is no user message"]),
        ([answered("a"), said("q")], ["the first message is not a user message"]),
        ([said("q"), answered("a"), answered("b")], ["message 2 is a response that follows a response"]),
        ([said("q"), said("")], ["message 1 is empty"]),
        ([said("q"), answered(" \n")], ["message 1 is empty"]),
        ([said("q"), resulted("a", "")], ["message 1 is a result for 'a', which is not open"]),
        (
            [said("q"), CALLS, resulted("a", "1"), said("r")],
            ["the call 'b' of message 1 has no result"],
        ),
        ([said("q"), CALLS, resulted("a", "1")], ["the call 'b' of message 1 has no result"]),
        (
            [said("q"), answered("", called("a")), resulted("a", "1"), resulted("a", "2")],
            ["message 3 is a result for 'a', which is not open"],
        ),
        (
            [said("q"), answered("", called("a")), resulted("a", "1"), answered("", called("a")), resulted("a", "2")],
            ["message 3 uses the call id 'a' again"],
        ),
        (
            [said("q"), BashExecutionMessage(command="ls", output="", timestamp=1)],
            ["message 1 has the role bashExecution, which no provider knows"],
        ),
    ],
)
def test_the_validator_names_each_problem_and_nothing_else(messages: list[Message], problems: list[str]) -> None:
    assert validate_history(messages) == problems


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([answered("a")], [host(BEGINS, 2), answered("a")]),
        (
            [said("q"), answered("a"), answered("b")],
            [said("q"), answered("a"), host(GOES_ON, 2), answered("b")],
        ),
        (
            [said("q"), resulted("gone", "42", name="shell")],
            [said("q"), host("A result of an earlier call of shell:\n42", 3)],
        ),
        ([said("q"), resulted("gone", " \n")], [said("q")]),
        ([said("q"), said(" ")], [said("q")]),
        (
            [said("q"), answered("", called("a", name="shell"))],
            [
                said("q"),
                answered("", called("a", name="shell")),
                ToolResultMessage(
                    tool_call_id="a",
                    tool_name="shell",
                    content=(TextContent(text=UNKNOWN_OUTCOME),),
                    is_error=True,
                    timestamp=2,
                ),
            ],
        ),
        (
            [said("q"), BashExecutionMessage(command="ls", output="a.py", timestamp=7)],
            [said("q"), host("The user ran a command:\n$ ls\na.py", 7)],
        ),
        ([said("q"), BashExecutionMessage(command="", output="", exclude_from_context=True, timestamp=7)], [said("q")]),
        (
            [said("q"), CustomMessage(custom_type="x", content="a note", timestamp=7)],
            [said("q"), host("a note", 7)],
        ),
        ([said("q"), CustomMessage(custom_type="x", content=" ", timestamp=7)], [said("q")]),
        (
            [said("q"), CustomMessage(custom_type="x", content=(TextContent(text=" "), PICTURE), timestamp=7)],
            [said("q"), UserMessage(content=(PICTURE,), timestamp=7, synthetic=True)],
        ),
    ],
)  # fmt: skip
def test_what_the_repair_makes_of_it(messages: list[Message], expected: list[Message]) -> None:
    assert list(repaired(messages)) == expected


def test_what_is_in_order_comes_out_as_the_same_objects() -> None:
    messages: list[Message] = [said("q"), CALLS, resulted("b", "2"), resulted("a", "1"), answered("ok")]
    history = repaired(messages)
    # Only the order of the results may change: it becomes that of the calls.
    assert [id(message) for message in history] == [id(messages[n]) for n in (0, 1, 3, 2, 4)]
    picture = replace(said(""), content=(PICTURE,))
    assert repaired([picture]) == (picture,)
    empty = resulted("a", "")
    kept = repaired([said("q"), answered("", called("a")), empty])
    assert kept[-1] is empty


@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_a_response_that_broke_off_loses_its_thinking_and_its_blank_text_and_keeps_its_calls(reason: str) -> None:
    thinking = ThinkingContent(thinking="hm", thinking_signature="s")
    broken = answered("half", called("a"), thinking=thinking, stop_reason=reason)
    _, response, result = repaired([said("q"), broken])
    assert isinstance(response, AssistantMessage)
    assert response == replace(broken, content=broken.content[1:])
    assert text_of(result) == UNKNOWN_OUTCOME
    blank = answered(" ", called("a"), stop_reason=reason)
    assert [len(m.content) for m in repaired([said("q"), blank]) if isinstance(m, AssistantMessage)] == [1]
    assert repaired([said("q"), answered("", thinking=thinking, stop_reason=reason)]) == (said("q"),)
    whole = answered("whole", thinking=thinking)
    assert repaired([said("q"), whole])[1] is whole


@pytest.mark.parametrize(
    ("messages", "left"),
    [
        ([said("q"), answered("ha", stop_reason="error"), answered("half")], ["q", "half"]),
        (
            [said("q"), *(answered(text, stop_reason="error") for text in ("h", "ha")), answered("half")],
            ["q", "half"],
        ),
        (
            [said("q"), answered("ha", stop_reason="aborted"), answered("half")],
            ["q", "ha", GOES_ON, "half"],
        ),
        ([said("q"), answered("ha", stop_reason="error"), said("r"), answered("half")], ["q", "ha", "r", "half"]),
        ([said("q"), answered("ha", stop_reason="error")], ["q", "ha"]),
    ],
    ids=["asked again", "asked again twice", "aborted", "something was said between", "the last one"],
)
def test_what_had_arrived_of_a_response_goes_when_the_one_that_was_asked_for_again_follows_it(
    messages: list[Message], left: list[str]
) -> None:
    assert [text_of(message) for message in build_history(logged(messages))] == left


def test_ids_that_repeat_get_numbers_that_are_free_and_their_results_follow_them() -> None:
    history = repaired(
        [
            said("q"),
            answered("", called("a", "1"), called("a", "2"), called("a_2", "3")),
            *(resulted(call_id, text) for call_id, text in (("a", "one"), ("a", "two"), ("a_2", "three"))),
            answered("", called("a", "4")),
            resulted("a", "four"),
        ]
    )
    responses = [message for message in history if isinstance(message, AssistantMessage)]
    results = [message for message in history if isinstance(message, ToolResultMessage)]
    ids = [call.id for response in responses for call in response.tool_calls]
    assert ids == ["a", "a_2", "a_2_2", "a_3"]
    assert [(result.tool_call_id, text_of(result)) for result in results] == list(
        zip(ids, ["one", "two", "three", "four"], strict=True)
    )


def test_a_result_answers_the_newest_open_call_of_its_id() -> None:
    history = repaired(
        [said("q"), answered("old", called("a")), said("r"), answered("new", called("a")), resulted("a", "42")]
    )
    assert [text_of(m) for m in history if isinstance(m, ToolResultMessage)] == [UNKNOWN_OUTCOME, "42"]


AT = "2026-01-02T03:04:05.678Z"
AT_MS = 1_767_323_045_678


def test_what_the_host_says_of_entries_carries_their_times() -> None:
    compaction = CompactionEntry(
        id="c", timestamp=AT, summary="so far", first_kept_entry_id="00000001", tokens_before=9
    )
    branch = BranchSummaryEntry(id="b", timestamp=AT, from_id="e", summary="went nowhere")
    note = CustomMessageEntry(id="n", timestamp=AT, custom_type="x", content="a note")
    summary, kept, left, noted = build_history([*logged([said("gone"), said("kept")]), compaction, branch, note])
    assert summary == summary_message(compaction)
    assert (text_of(kept), text_of(noted)) == ("kept", "a note")
    for message, text in ((summary, "so far"), (left, "went nowhere"), (noted, "a note")):
        assert isinstance(message, UserMessage)
        assert (message.timestamp, message.synthetic) == (AT_MS, True)
        assert text in text_of(message)


@pytest.mark.parametrize(("kept", "texts"), [("00000000", ["a", "b"]), ("00000001", ["b"]), ("nowhere", [])])
def test_a_compaction_keeps_from_its_first_kept_entry_and_nothing_when_that_is_not_there(
    kept: str, texts: list[str]
) -> None:
    compaction = CompactionEntry(id="c", timestamp=AT, summary="so far", first_kept_entry_id=kept, tokens_before=9)
    history = build_history([*logged([said("a"), said("b")]), compaction, *logged([said("new")], start=5)])
    assert [text_of(message) for message in history[1:]] == [*texts, "new"]
