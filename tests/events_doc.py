"""docs/events.md, made from the event types themselves: `python -m tests.events_doc` writes it, a test compares."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import get_args

from selfcompact import events
from selfcompact.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, Usage, UserMessage

PATH = Path(__file__).parents[1] / "docs/events.md"
AT = 1_790_000_000_000

USER = UserMessage(content=(TextContent(text="Count the rows."),), timestamp=AT)
ASKS = AssistantMessage(
    content=(ToolCall(id="call_1", name="ipython", arguments={"code": "len(rows)"}),),
    provider="scripted",
    model="script",
    usage=Usage(input=812, output=24),
    stop_reason="toolUse",
    timestamp=AT + 900,
)
ANSWERS = ToolResultMessage(
    tool_call_id="call_1",
    tool_name="ipython",
    content=(TextContent(text="5000"),),
    details={"status": "ok", "executionCount": 3, "durationMs": 8, "generation": 1},
    timestamp=AT + 950,
)
RESULT = events.CompactionResult(
    summary="## Goal\nCount the rows. …",
    first_kept_entry_id="3f2a9c01",
    tokens_before=23_518,
    tokens_after=5_602,
    offline=True,
)

EXAMPLES: list[events.Event] = [
    events.AgentStart(),
    events.TurnStart(turn=1),
    events.MessageStart(message=USER),
    events.MessageUpdate(kind="text", delta="I count "),
    events.MessageEnd(message=ASKS),
    events.RetryScheduled(attempt=1, delay_ms=1_000, error_message="overloaded (status 529)"),
    events.ToolExecutionStart(tool_call_id="call_1", tool_name="ipython", args={"code": "len(rows)"}),
    events.ToolExecutionUpdate(tool_call_id="call_1", tool_name="ipython", delta="5000\n"),
    events.ToolExecutionEnd(tool_call_id="call_1", tool_name="ipython", result=ANSWERS, duration_ms=8),
    events.TurnEnd(turn=1, message=ASKS, tool_results=(ANSWERS,), context_tokens=845, context_window=32_000),
    events.CompactionScheduled(custom_instructions="keep `rows`"),
    events.CompactionStart(reason="requested", custom_instructions="keep `rows`"),
    events.CompactionProgress(part="history", window=1, windows=2, characters=1_204),
    events.CompactionEnd(
        reason="requested", status="completed", result=RESULT, custom_instructions="keep `rows`", duration_ms=41
    ),
    events.RequestDropped(cause="the run was aborted", custom_instructions="keep `rows`"),
    events.KernelRestarted(generation=2, cause="the kernel was killed (signal 9)"),
    events.AgentCallableChanged(enabled=False),
    events.AutoCompactionDisarmed(cause="3 automatic compactions in a row failed", until_tokens=30_250),
    events.ModelChanged(provider="anthropic", model_id="claude-sonnet-4-5"),
    events.WarningRaised(message="session file work.jsonl, line 7: not JSON; passed over"),
    events.AgentEnd(status="done", messages=(USER, ASKS, ANSWERS)),
]


def render() -> str:
    """The whole page."""
    assert events.__doc__ is not None
    parts = [
        "# Events",
        "",
        "`session.events()` yields them, `selfcompact run --json` writes one a line (after the session header).",
        "In Python they are the classes of `selfcompact.events`.",
        "This page is made from the types (`python -m tests.events_doc`); a test keeps it true.",
        "",
        events.__doc__.strip(),
        "",
    ]
    for example in EXAMPLES:
        kind = type(example)
        parts += [f"## `{example.type}` ({kind.__name__})", "", re.sub(r"\s+", " ", inspect.getdoc(kind) or ""), ""]
        parts += ["```json", json.dumps(example.to_json(), ensure_ascii=False, indent=1), "```", ""]
    return "\n".join(parts)


def missing() -> set[type]:
    """Event types without an example."""
    return set(get_args(events.Event)) - {type(example) for example in EXAMPLES}


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
    print(f"wrote {PATH.name}: {len(EXAMPLES)} events")  # noqa: T201 - a program's one line
