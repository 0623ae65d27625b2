from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tessera
from hypothesis import given
from hypothesis import strategies as st

from selfcompact.entries import BranchSummaryEntry, CompactionEntry, CustomMessageEntry, Entry, decode_entry
from selfcompact.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    blocks,
    text_of,
)
from selfcompact.session.history import UNKNOWN_OUTCOME, build_history, repaired, validate_history
from tests.compaction.build import answered, called, logged, resulted, rounds, said, turns


def compaction(first_kept: str, entry_id: str = "c0", summary: str = "what happened") -> CompactionEntry:
    return CompactionEntry(
        id=entry_id, parent_id=None, timestamp="", summary=summary, first_kept_entry_id=first_kept, tokens_before=1
    )


def test_a_history_that_is_in_order_is_sent_as_it_is() -> None:
    messages = turns(3)
    assert all(ours is theirs for ours, theirs in zip(build_history(logged(messages)), messages, strict=True))


def test_after_a_compaction_comes_the_summary_then_the_kept_tail_unchanged_then_what_is_new() -> None:
    """The tail equals the original slice, signed thinking included."""
    signed = ThinkingContent(thinking="hm", thinking_signature="sig")
    old = [*turns(2), said("more"), answered("yes", called("z"), thinking=signed), resulted("z", "ok")]
    new = [answered("done")]
    entries = [*logged(old), compaction("00000008"), *logged(new, start=50)]
    history = build_history(entries)
    assert isinstance(history[0], UserMessage)
    assert history[0].synthetic
    assert "what happened" in text_of(history[0])
    assert list(history[1:]) == [*old[8:], *new]


def test_only_the_newest_compaction_counts() -> None:
    entries = [*logged(turns(3)), compaction("00000002", "c1", "first"), *logged(rounds(2), start=50)]
    entries.append(compaction("00000032", "c2", "second"))
    history = build_history(entries)
    assert "second" in text_of(history[0])
    assert "first" not in "".join(text_of(message) for message in history[1:])


def test_a_call_without_a_result_is_answered_with_an_unknown_outcome() -> None:
    history = build_history(
        logged([said("q"), answered("", called("a"), called("b")), resulted("b", "done"), said("?")])
    )
    assert [text_of(m) for m in history if isinstance(m, ToolResultMessage)] == [UNKNOWN_OUTCOME, "done"]
    assert validate_history(history) == []


def test_a_result_without_a_call_becomes_text_of_the_host() -> None:
    history = build_history(logged([resulted("gone", "42"), said("q")]))
    assert validate_history(history) == []
    assert "42" in text_of(history[0])
    assert isinstance(history[0], UserMessage)
    assert history[0].synthetic


def test_results_move_to_their_call_when_something_came_between() -> None:
    history = build_history(logged([said("q"), answered("", called("a")), said("steer"), resulted("a", "ok")]))
    assert [message.role for message in history] == ["user", "assistant", "toolResult", "user"]


def test_an_id_used_twice_stays_paired_and_becomes_unique() -> None:
    messages: list[Message] = [said("q")]
    for n in range(3):
        messages += [answered("", called("call_0", f"x = {n}")), resulted("call_0", f"out {n}")]
    history = build_history(logged(messages))
    assert validate_history(history) == []
    assert [text_of(m) for m in history if isinstance(m, ToolResultMessage)] == ["out 0", "out 1", "out 2"]


def test_an_aborted_response_loses_all_of_its_thinking_and_keeps_what_it_said() -> None:
    aborted = answered("half", thinking=ThinkingContent(thinking="partial"), stop_reason="aborted")
    history = build_history(logged([said("q"), aborted, said("go on")]))
    assert isinstance(history[1], AssistantMessage)
    assert history[1].content == (TextContent(text="half"),)


def test_an_empty_response_is_left_out() -> None:
    history = build_history(logged([said("q"), answered("", stop_reason="error"), said("again")]))
    assert [message.role for message in history] == ["user", "user"]


def test_a_history_begins_with_a_user_message_and_no_response_follows_another() -> None:
    history = build_history(logged([answered("a"), answered("b")]))
    assert [message.role for message in history] == ["user", "assistant", "user", "assistant"]


def test_shell_runs_custom_messages_and_left_branches_reach_the_model_as_the_hosts_text() -> None:
    shell = BashExecutionMessage(command="ls", output="a.py", timestamp=1)
    hidden = replace(shell, command="secret", exclude_from_context=True)
    entries: list[Entry] = logged([said("q"), shell, hidden])
    entries.append(CustomMessageEntry(id="x", parent_id=None, timestamp="", custom_type="note", content="a note"))
    entries.append(BranchSummaryEntry(id="b", parent_id=None, timestamp="", from_id="z", summary="went nowhere"))
    history = build_history(entries)
    assert validate_history(history) == []
    texts = [text_of(message) for message in history[1:]]
    assert ["ls" in texts[0], "a note" in texts[1], "went nowhere" in texts[2]] == [True, True, True]
    assert not any("secret" in text for text in texts)
    assert all(isinstance(m, UserMessage) and m.synthetic for m in history[1:])


def test_the_validator_names_what_is_wrong() -> None:
    problems = validate_history([answered("", called("a")), resulted("b", "x"), answered("", called("a"))])
    text = "\n".join(problems)
    for part in ("no user message", "'b', which is not open", "'a' of message 0 has no result", "again"):
        assert part in text


_CALL_IDS = st.sampled_from(["a", "b", "c"])
_ANY = st.one_of(
    st.builds(said, st.sampled_from(["", "hi", " ", "more"]), synthetic=st.booleans()),
    st.builds(
        lambda text, ids, reason: answered(text, *(called(i) for i in ids), stop_reason=reason),
        st.sampled_from(["", "text"]),
        st.lists(_CALL_IDS, max_size=3),
        st.sampled_from(["stop", "toolUse", "error", "aborted", "length"]),
    ),
    st.builds(resulted, _CALL_IDS, st.sampled_from(["", "out"]), is_error=st.booleans()),
)


def as_anthropic(history: Sequence[Message]) -> list[dict[str, Any]]:
    """The history in another program's form, written here without our own code for providers."""
    wire: list[dict[str, Any]] = []
    for message in history:
        content: list[dict[str, Any]] = []
        for block in blocks(message):
            if isinstance(block, TextContent) and isinstance(message, ToolResultMessage):
                content.append({"type": "tool_result", "tool_use_id": message.tool_call_id, "content": block.text})
            elif isinstance(block, TextContent):
                content.append({"type": "text", "text": block.text})
            elif isinstance(block, ToolCall):
                content.append({"type": "tool_use", "id": block.id, "name": block.name, "input": {}})
        wire.append({"role": "assistant" if isinstance(message, AssistantMessage) else "user", "content": content})
    return wire


_SIGNED = st.builds(
    lambda text, sign, ids, reason: answered(
        text,
        *(called(i) for i in ids),
        stop_reason=reason,
        thinking=ThinkingContent(thinking="hm", thinking_signature=sign),
    ),
    st.sampled_from(["", "text"]),
    st.sampled_from(["s1", None]),
    st.lists(_CALL_IDS, max_size=2),
    st.sampled_from(["stop", "toolUse", "aborted"]),
)


@given(st.lists(st.one_of(_ANY, _SIGNED), max_size=20))
def test_thinking_stays_as_it_was_or_goes_whole(messages: list[Message]) -> None:
    """Never a block with a signature and changed text."""
    known = {id(block) for message in messages for block in blocks(message) if isinstance(block, ThinkingContent)}
    for message in repaired(messages):
        thinking = [block for block in blocks(message) if isinstance(block, ThinkingContent)]
        assert all(id(block) in known for block in thinking)
        assert not (thinking and isinstance(message, AssistantMessage) and message.stop_reason == "aborted")


@given(st.lists(_ANY, max_size=25))
def test_an_independent_validator_finds_nothing_in_any_history(messages: list[Message]) -> None:
    assert bool(tessera.inspect(as_anthropic(repaired(messages)), adapter="anthropic"))


@given(st.lists(_ANY, max_size=25))
def test_every_history_comes_out_valid_and_repairing_it_again_changes_nothing(messages: list[Message]) -> None:
    """Pairs complete, ids unique, roles in order, whatever went in."""
    history = repaired(messages)
    assert validate_history(history) == [] or history == ()
    assert repaired(history) == history


@given(st.lists(_ANY, max_size=20), st.lists(st.tuples(st.integers(0, 60), st.lists(_ANY, max_size=8)), max_size=4))
def test_chained_compactions_at_any_cut_and_a_reload_keep_the_history_valid(
    first: list[Message], later: list[tuple[int, list[Message]]]
) -> None:
    """Compact, work, compact, reload."""
    entries: list[Entry] = logged(first)
    for number, (cut, messages) in enumerate(later):
        kept = entries[cut % len(entries)].id if entries else "none"
        entries.append(compaction(kept, f"c{number}"))
        entries += logged(messages, start=100 * (number + 1))
    reloaded = [decode_entry(entry.to_json()) for entry in entries]
    assert build_history(reloaded) == build_history(entries)
    if entries and (later or validate_history(build_history(entries))):
        assert validate_history(build_history(entries)) in ([], ["there is no user message"])
    if later:
        assert validate_history(build_history(entries)) == []
