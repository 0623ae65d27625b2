from __future__ import annotations

import base64
import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from selfcompact.compaction.planning.clean import clean_message
from selfcompact.compaction.summary.transcript import TOOL_RESULT_CHARS, transcript
from selfcompact.compaction.summary.windows import windows
from selfcompact.messages import (
    BashExecutionMessage,
    CustomMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    UserMessage,
)
from selfcompact.text.clip import clip, clip_tokens
from selfcompact.text.secrets import Redactor
from tests.compaction.build import answered, called, resulted, said

NOISE = base64.b64encode(random.Random(1).randbytes(3000)).decode()


def test_each_message_is_one_labelled_text() -> None:
    shown = transcript(
        [
            said("do it"),
            said("a note", synthetic=True),
            answered("on it", called("a", "x = 1"), thinking=ThinkingContent(thinking="hm")),
            resulted("a", "done"),
            resulted("b", "ValueError: no", is_error=True),
            BashExecutionMessage(command="ls", output="a.py", timestamp=1),
            CustomMessage(custom_type="n", content="from an extension", timestamp=1),
        ]
    )
    assert shown == (
        "[User]: do it",
        "[Host]: a note",
        "[Think]: hm\n[Assistant]: on it\n[Tool Call]: ipython\ncode: x = 1",
        "[Tool Result]: done",
        "[Tool Result (error)]: ValueError: no",
        "[Shell]: $ ls\na.py",
        "[Note]: from an extension",
    )


def test_thinking_is_left_out_for_targets_that_would_take_it_for_their_own() -> None:
    message = answered("on it", thinking=ThinkingContent(thinking="hm"))
    assert transcript([message], drop_thinking=True) == ("[Assistant]: on it",)


def test_a_long_result_is_cut_and_says_how_much_is_missing() -> None:
    (shown,) = transcript([resulted("a", "begin" + "x" * 10_000 + "the error at the end")])
    assert len(shown) < TOOL_RESULT_CHARS + 100
    assert "8,025 characters left out" in shown
    assert shown.endswith("the error at the end")


def test_useless_results_go_with_their_calls_but_errors_never() -> None:
    call, other = called("a", "noise"), called("b", "broken")
    useless = replace(resulted("a", "nothing new"), details={"useless": True})
    failed = replace(resulted("b", "Error: no", is_error=True), details={"useless": True})
    shown = "\n".join(transcript([answered("look", call, other), useless, failed]))
    assert "noise" not in shown
    assert "nothing new" not in shown
    assert "Error: no" in shown


def test_nothing_base64_reaches_the_summariser() -> None:
    messages: list[Message] = [
        UserMessage(content=(TextContent(text="see"), ImageContent(data=NOISE, mime_type="image/png")), timestamp=1),
        resulted("a", f"<img src='data:image/png;base64,{NOISE}'>"),
        resulted("b", "\n".join(NOISE[i : i + 76] for i in range(0, len(NOISE), 76))),
        answered("", called("c", f"blob = '{NOISE}'")),
    ]
    shown = "\n".join(transcript(messages))
    assert not any(NOISE[i : i + 60] in shown for i in range(0, len(NOISE) - 60, 20))
    assert "[image: image/png, 3,000 bytes]" in shown


def test_secrets_are_taken_out_before_anything_is_cut() -> None:
    """A cut through a secret would leave half of it."""
    message = resulted("a", "x" * 1395 + "TOPSECRET" + "y" * 3000)
    (shown,) = transcript([clean_message(message, Redactor(["TOPSECRET"]))])
    assert "TOPS" not in shown


@given(st.text(), st.integers(10, 200))
def test_a_shortened_text_keeps_both_ends(text: str, limit: int) -> None:
    short = clip(text, limit)
    assert short[:5] == text[:5]
    assert short[-3:] == text[-3:]
    assert len(short) <= max(len(text), limit + 50)


@given(st.lists(st.text(min_size=1, max_size=300), max_size=20), st.integers(30, 200))
def test_windows_keep_the_order_lose_no_item_and_respect_the_limit(items: list[str], limit: int) -> None:
    groups = windows(items, limit, len)
    assert sum(map(len, groups)) == len(items)
    assert all(sum(len(item) + 1 for item in group) <= limit for group in groups)
    flat = [item for group in groups for item in group]
    assert all(ours == clip_tokens(theirs, limit - 1, len) for ours, theirs in zip(flat, items, strict=True))


@given(st.text(max_size=2000), st.integers(0, 300))
def test_a_clamped_text_fits_and_says_how_much_is_missing(text: str, limit: int) -> None:
    clamped = clip_tokens(text, limit, len)
    assert len(clamped) <= limit or len(text) <= limit
    assert clamped in (text, "") or "characters left out" in clamped
