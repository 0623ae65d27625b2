"""A model of your own: anything that streams an answer to a request. This one counts words and needs no network.

python examples/custom_model.py
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import selfcompact as sc
from selfcompact.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, Usage, text_of
from selfcompact.models.protocol import Completed, ModelRequest, StreamEvent, TextDelta


class WordCounter:
    """Answers every prompt by counting its words in a cell. Summaries are not its strength: it has none."""

    provider, model_id = "example", "word-counter"
    context_window: int | None = 50_000
    max_output_tokens: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """One response: a cell first, and what it printed afterwards."""
        newest = request.messages[-1]
        if isinstance(newest, ToolResultMessage):
            answer = f"It has {text_of(newest).strip()} words."
            yield TextDelta(answer)
            yield Completed(self._message(TextContent(text=answer), stop_reason="stop"))
        else:
            call = ToolCall(id="", name="ipython", arguments={"code": f"print(len({text_of(newest)!r}.split()))"})
            yield Completed(self._message(call, stop_reason="toolUse"))

    def _message(self, block: TextContent | ToolCall, *, stop_reason: str) -> AssistantMessage:
        return AssistantMessage(
            content=(block,),
            provider=self.provider,
            model=self.model_id,
            stop_reason=stop_reason,
            usage=Usage(input=100, output=10),
            timestamp=int(time.time() * 1000),
        )


async def main(workspace: Path) -> None:
    """Ask it once; the offline summariser writes the summaries."""
    async with sc.open_session(
        WordCounter(),
        workspace=workspace,
        session_file=workspace.with_suffix(".jsonl"),
        summariser=sc.OfflineSummariser(),
    ) as session:
        result = await session.prompt("How many words has this sentence?")
        print(result.text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        asyncio.run(main(work))
