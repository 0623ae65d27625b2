"""A session's events on a terminal: cells, outputs, a gauge of the context, compactions."""

from __future__ import annotations

from rich.console import Console, Group
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from selfcompact.events import (
    AgentCallableChanged,
    AgentEnd,
    CompactionEnd,
    CompactionScheduled,
    CompactionStart,
    Event,
    KernelRestarted,
    MessageEnd,
    RequestDropped,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    WarningRaised,
)
from selfcompact.messages import AssistantMessage, ImageContent, Usage, UserMessage, blocks, text_of

CODE_LINES = 14
OUTPUT_LINES = 10
LINE_CHARS = 160
GAUGE_WIDTH = 30
WARM, HOT = 0.6, 0.85
"""Shares of the window at which the gauge turns yellow and red."""


class Screen:
    """Draws events as they come. Owned by one task; `console` decides about colour and width."""

    def __init__(self, console: Console, *, full: bool = False) -> None:
        self.console, self._full = console, full
        self._turn = 0

    def show(self, event: Event) -> None:
        """Draw one event; most have nothing to draw."""
        match event:
            case TurnStart():
                self._turn = event.turn
            case MessageEnd(message=UserMessage() as message) if not message.synthetic:
                self.console.print(Panel(Text(text_of(message)), title="task", title_align="left", border_style="cyan"))
            case MessageEnd(message=AssistantMessage() as message):
                self._response(message)
            case ToolExecutionStart():
                code = shorten_lines(str(event.args.get("code", "")), self._limit(CODE_LINES))
                title = f"turn {self._turn} · cell"
                self.console.print(
                    Panel(
                        Syntax(code, "python", theme="ansi_dark", word_wrap=True, background_color="default"),
                        title=title,
                        title_align="left",
                        border_style="blue",
                    )
                )
            case ToolExecutionEnd():
                self._output(event)
            case TurnEnd():
                line = gauge(event.context_tokens, event.context_window, estimated=event.context_estimated)
                self.console.print(line.append(cached(event.message.usage), style="dim"))
            case CompactionStart():
                self.console.print(Rule(f"compaction ({event.reason})", style="magenta"))
                if event.custom_instructions:
                    self.console.print(Text(f"  asked to: {event.custom_instructions}", style="magenta"))
            case CompactionEnd():
                self._compaction(event)
            case AgentEnd() if event.status != "done":
                self.console.print(
                    Text(f"the run {_ENDED[event.status]}: {event.reason or ''}".rstrip(": "), style="red")
                )
            case KernelRestarted():
                self._note(f"kernel {event.generation} took over: {event.cause}", "yellow")
            case RetryScheduled():
                self._note(f"{event.error_message}; trying again in {event.delay_ms / 1000:.1f} s", "yellow")
            case CompactionScheduled():
                self._note("the agent asked for a compaction; it runs when the turn ends", "magenta")
            case RequestDropped():
                self._note(f"the requested compaction was dropped: {event.cause}", "yellow")
            case AgentCallableChanged():
                self._note(f"the compact skill is now {'on' if event.enabled else 'off'}", "yellow")
            case WarningRaised():
                self._note(f"warning: {event.message}", "yellow")
            case _:
                pass

    def _limit(self, lines: int) -> int:
        return 100_000 if self._full else lines

    def _note(self, text: str, style: str) -> None:
        self.console.print(Text(f"  {text}", style=style))

    def _response(self, message: AssistantMessage) -> None:
        text = text_of(message).strip()
        if not text:
            return
        if message.tool_calls:
            self.console.print(Padding(Text(text), (1, 0, 0, 1)))
        else:
            self.console.print(Panel(Text(text), title="answer", title_align="left", border_style="green"))

    def _output(self, event: ToolExecutionEnd) -> None:
        text = shorten_lines(text_of(event.result), self._limit(OUTPUT_LINES))
        images = sum(isinstance(block, ImageContent) for block in blocks(event.result))
        style = "red" if event.is_error else "default"
        parts = [Text(text, style=style)] if text else []
        if images:
            parts.append(Text(f"[{images} image{'s' if images > 1 else ''}]", style="cyan"))
        took = f"{event.duration_ms / 1000:.1f} s"
        parts.append(Text(f"{event.status} · {took}", style="dim"))
        self.console.print(Padding(Group(*parts), (0, 0, 0, 2)))

    def _compaction(self, event: CompactionEnd) -> None:
        if event.result is None:
            self._note(f"{event.status}: {event.error_message or ''}".rstrip(": "), "yellow")
        else:
            before, after = event.result.tokens_before, event.result.tokens_after
            saved = 100 * (before - after) / before if before else 0
            how = "offline summary" if event.result.offline else "summary"
            line = f"  {before:,} → {after:,} tokens (−{saved:.0f} %) · {how} · {event.duration_ms / 1000:.1f} s"
            self.console.print(Text(line, style="bold magenta"))
        self.console.print(Rule(style="magenta"))


_ENDED = {"failed": "failed", "aborted": "was aborted"}


def gauge(tokens: int, window: int | None, *, estimated: bool = False) -> Text:
    """One line that shows how full the context is; `≈` marks figures the model has not confirmed yet."""
    about = "≈ " if estimated else ""
    if not window:
        return Text(f"  context {about}{tokens:,} tokens", style="dim")
    share = tokens / window
    filled = min(GAUGE_WIDTH, round(share * GAUGE_WIDTH))
    colour = "red" if share >= HOT else "yellow" if share >= WARM else "green"
    return Text.assemble(
        ("  context ", "dim"),
        ("█" * filled, colour),
        ("░" * (GAUGE_WIDTH - filled), "dim"),
        (f" {about}{tokens:,} / {window:,} tokens ({100 * share:.0f} %)", "dim"),
    )


def cached(usage: Usage | None) -> str:
    """What the provider read from its cache, as the end of a line; empty when it read nothing."""
    if usage is None or not usage.cache_read:
        return ""
    return f" · {100 * usage.cache_read / usage.prompt:.0f} % cached"


def shorten_lines(text: str, limit: int) -> str:
    """Head and tail of a text with the number of lines left out, and no line longer than the screen is wide."""
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    if len(lines) > limit:
        tail = max(1, limit // 3)
        head = limit - tail
        lines = [*lines[:head], f"… {len(lines) - limit} more lines …", *lines[-tail:]]
    return "\n".join(line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…" for line in lines)


def kept_line(label: str, value: str) -> str:
    """A line of the closing list, as console markup."""
    return f"  [dim]{escape(label):<16}[/dim] {escape(value)}"
