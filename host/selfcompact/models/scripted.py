"""A model that plays a script: for demos, tests, and other people's harnesses.

It is a real `Model`: it streams, reports usage, overflows and fails with the errors a provider's adapter raises.
A script is a list of steps; each request for a turn takes the next one. Requests for a summary take the next of
`summaries` instead; without any, the session summarises offline.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from selfcompact.codec import Json
from selfcompact.errors import (
    ContextOverflow,
    ModelError,
    ScriptExhausted,
)
from selfcompact.messages import (
    AssistantMessage,
    Content,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
    now_ms,
)
from selfcompact.models.failures import error_for
from selfcompact.models.protocol import Completed, ModelRequest, StreamEvent, TextDelta, ThinkingDelta
from selfcompact.text.tokens import Estimator, ScriptAwareEstimator

TOOL_NAME = "ipython"
"""The tool that a `cell` step calls; the session's one tool."""

OVERFLOW_MESSAGE = "prompt is too long: {tokens} tokens > {window} maximum"
"""What an `overflow` step says; the wording is one that providers use."""


@dataclass(frozen=True)
class Step:
    """One response of a scripted model; made by `cell`, `say`, `overflow` and `fail`."""

    text: str = ""
    code: str | None = None
    thinking: str = ""
    arguments: Mapping[str, Json] | None = None
    usage: Usage | None = None
    error: ModelError | None = None
    overflows: bool = False
    delay_s: float = 0.0


StepSource = Step | Callable[[Sequence[Message]], "Step | Awaitable[Step]"]
"""A step, or a function (plain or async) that looks at the messages of the request and returns one."""


def cell(
    code: str,
    *,
    say: str = "",
    thinking: str = "",
    timeout_s: float | None = None,
    usage: Usage | None = None,
    delay_s: float = 0.0,
) -> Step:
    """A response that runs `code` in the kernel; `say` is the text beside it, `delay_s` how long it thinks."""
    arguments: dict[str, Json] = {"code": code}
    if timeout_s is not None:
        arguments["timeout_s"] = timeout_s
    return Step(text=say, code=code, thinking=thinking, arguments=arguments, usage=usage, delay_s=delay_s)


def say(text: str, *, thinking: str = "", usage: Usage | None = None, delay_s: float = 0.0) -> Step:
    """A response of text alone; it ends the run."""
    return Step(text=text, thinking=thinking, usage=usage, delay_s=delay_s)


def overflow(message: str | None = None, *, status: int | None = 400) -> Step:
    """The provider's error for a request that is longer than the context window."""
    if message is None:
        return Step(overflows=True)
    return Step(error=ContextOverflow(message, status=status))


def fail(message: str, *, status: int | None = None) -> Step:
    """A provider error; the class follows from the HTTP status, as in a real adapter."""
    return Step(error=error_for(status, message, body=""))


class ScriptedModel:
    """Plays `steps`, one for each request for a turn.

    A step without `usage` reports what the request and the response come to by the estimator, as a provider
    would report its count. The model belongs to one session at a time; `requests` lists everything it was sent.
    """

    provider = "scripted"

    def __init__(
        self,
        steps: Iterable[StepSource],
        *,
        summaries: Iterable[str | ModelError] | None = None,
        context_window: int | None = 200_000,
        max_output_tokens: int | None = None,
        estimator: Estimator | None = None,
        model_id: str = "script",
        chunk_chars: int = 400,
    ) -> None:
        self.model_id = model_id
        self.context_window = context_window
        self.max_output_tokens = max_output_tokens
        self.requests: list[ModelRequest] = []
        self.summarises = summaries is not None
        self._steps = iter(steps)
        self._summaries = iter(summaries if summaries is not None else ())
        self._estimator = estimator or ScriptAwareEstimator()
        self._call_ids = itertools.count(1)
        self._chunk_chars = chunk_chars
        self._last_error: ModelError | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Answer with the next step, or the next summary.

        Raises:
            ScriptExhausted: there is no step (or summary) left.
            ModelError: the step is a failure.
        """
        self.requests.append(request)
        await anyio.lowlevel.checkpoint()  # as any model that is asked over a network
        step = self._next_summary() if request.purpose == "summary" else await self._next_step(request)
        if step.delay_s:
            await anyio.sleep(step.delay_s)
        if step.overflows:
            prompt = self.count(request)
            raise ContextOverflow(OVERFLOW_MESSAGE.format(tokens=prompt, window=self.context_window), status=400)
        self._last_error = step.error if request.purpose == "turn" else self._last_error
        if step.error is not None:
            raise step.error
        for start in range(0, len(step.thinking), self._chunk_chars):
            yield ThinkingDelta(step.thinking[start : start + self._chunk_chars])
        for start in range(0, len(step.text), self._chunk_chars):
            yield TextDelta(step.text[start : start + self._chunk_chars])
        yield Completed(self._message(step, request))

    def count(self, request: ModelRequest) -> int:
        """Tokens of a request by the estimator: system prompt, tools and messages."""
        schemas = "".join(f"{tool.name}{tool.description}{tool.parameters}" for tool in request.tools)
        fixed = self._estimator.text(request.system) + self._estimator.text(schemas)
        return fixed + sum(self._estimator.message(message) for message in request.messages)

    async def _next_step(self, request: ModelRequest) -> Step:
        source = next(self._steps, None)
        if source is None and self._last_error is not None:
            raise self._last_error  # a provider that is down stays down
        if source is None:
            raise ScriptExhausted("the script has no step left; add one, or end it with a `say` step")
        if isinstance(source, Step):
            return source
        step = source(request.messages)
        return step if isinstance(step, Step) else await step

    def _next_summary(self) -> Step:
        summary = next(self._summaries, None)
        if summary is None:
            raise ScriptExhausted("the script has no summary left; add one to its summaries")
        return Step(error=summary) if isinstance(summary, ModelError) else Step(text=summary)

    def _message(self, step: Step, request: ModelRequest) -> AssistantMessage:
        content: list[Content] = []
        if step.thinking:
            content.append(ThinkingContent(thinking=step.thinking))
        if step.text:
            content.append(TextContent(text=step.text))
        if step.code is not None:
            arguments = step.arguments or {"code": step.code}
            content.append(ToolCall(id=f"call_{next(self._call_ids)}", name=TOOL_NAME, arguments=arguments))
        message = AssistantMessage(
            content=tuple(content),
            api="scripted",
            provider=self.provider,
            model=self.model_id,
            stop_reason="stop" if step.code is None else "toolUse",
            timestamp=now_ms(),
        )
        usage = step.usage or Usage(input=self.count(request), output=self._estimator.message(message))
        return dataclasses.replace(message, usage=usage)
