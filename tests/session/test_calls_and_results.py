"""What a call must look like to be run, and what a cell's result looks like to the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selfcompact.codec import Json
from selfcompact.kernel import CellResult
from selfcompact.messages import Content, ImageContent, TextContent, ToolCall, now_ms
from selfcompact.models.protocol import RAW_ARGUMENTS
from selfcompact.session.turn import NO_OUTPUT, call_problem, cell_message
from tests.compaction.build import called


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"code": "1"}, None),
        ({"code": "", "timeout_s": 0.5}, None),
        ({"code": "1", "timeout_s": None}, None),
        ({"code": "1", "timeout_s": 3}, None),
        ({RAW_ARGUMENTS: "{broken" + "x" * 300}, "not a JSON object: {broken"),
        ({}, "needs the argument `code`"),
        ({"code": 1}, "needs the argument `code`"),
        ({"code": "1", "zeal": 1, "mood": 1}, "no argument 'mood'"),
        ({"code": "1", "timeout_s": "3"}, "is a number of seconds."),
        ({"code": "1", "timeout_s": True}, "is a number of seconds."),
        ({"code": "1", "timeout_s": 0}, "greater than 0"),
        ({"code": "1", "timeout_s": -1}, "greater than 0"),
        ({"code": "1", "timeout_s": float("nan")}, "greater than 0"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_so_that_the_model_can_mend_it(
    arguments: dict[str, Json], problem: str | None
) -> None:
    found = call_problem(ToolCall(id="a", name="ipython", arguments=arguments))
    assert found is None if problem is None else problem in (found or "")
    assert len(found or "") < 300


PICTURE = ImageContent(data="aGk=", mime_type="image/png")


@pytest.mark.parametrize(
    ("cell", "content"),
    [
        (CellResult("ok", ""), (TextContent(text=NO_OUTPUT),)),
        (CellResult("ok", "\n4\n"), (TextContent(text="4"),)),
        (CellResult("ok", "", images=(PICTURE,)), (PICTURE,)),
        (CellResult("ok", "see", images=(PICTURE, PICTURE)), (TextContent(text="see"), PICTURE, PICTURE)),
        (CellResult("died", "half", note="A new kernel."), (TextContent(text="A new kernel.\nhalf"),)),
        (CellResult("died", "", note="A new kernel."), (TextContent(text=f"A new kernel.\n{NO_OUTPUT}"),)),
    ],
)
def test_the_model_sees_what_a_cell_said_after_what_the_host_says(
    cell: CellResult, content: tuple[Content, ...]
) -> None:
    assert cell_message(called("a"), cell).content == content


def test_the_figures_of_an_execution_are_in_the_details() -> None:
    cell = CellResult("timeout", "x", execution_count=7, duration_s=1.2346, generation=2, omitted_bytes=90)
    message = cell_message(called("a", name="ipython"), cell)
    assert (message.tool_call_id, message.tool_name, message.is_error) == ("a", "ipython", True)
    figures = {"status": "timeout", "executionCount": 7, "durationMs": 1_235, "generation": 2}
    assert message.details == {**figures, "omittedBytes": 90}
    assert cell_message(called("a"), replace(cell, omitted_bytes=0)).details == figures
    assert cell_message(called("a"), replace(cell, status="ok")).is_error is False
    assert abs(message.timestamp - now_ms()) < 60_000
