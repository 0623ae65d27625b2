"""Reading what a run came to."""

from __future__ import annotations

import ast
from typing import Any

import selfcompact as sc
from selfcompact.messages import ToolResultMessage, text_of
from selfcompact.models.scripted import Step

FILL = "print('\\n'.join(f'line {i}: ' + 'some words of output ' * 4 for i in range(60)))"
"""A cell whose output is worth more than the small kept tail."""


def outputs(result: sc.RunResult) -> list[str]:
    """The text of every cell's result, in order."""
    return [text_of(message) for message in result.messages if isinstance(message, ToolResultMessage)]


def last_value(text: str) -> Any:
    """The value of a cell that ended in a literal."""
    return ast.literal_eval(text)


def fill(times: int = 2) -> list[Step]:
    """Cells that make the session long enough to be compacted."""
    return [sc.cell(FILL) for _ in range(times)]


def history_text(session: sc.Session) -> str:
    """Everything the next request would carry, as text."""
    return "\n".join(text_of(message) for message in session.history)


def of_type(events: list[sc.events.Event], name: str) -> list[Any]:
    """The events of one type."""
    return [event for event in events if event.type == name]
