"""One turn, event by event: what is asked, logged and told, also when it fails or is cancelled halfway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

import selfcompact as sc
from selfcompact.entries import MessageEntry
from selfcompact.errors import InvalidHistory, KernelError, ModelError
from selfcompact.kernel import CellResult
from selfcompact.log import SessionLog
from selfcompact.messages import (
    AssistantMessage,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    now_ms,
    text_of,
    user,
)
from selfcompact.models.protocol import Completed, ModelRequest, StreamEvent, TextDelta, ThinkingDelta
from selfcompact.session.conversation import Conversation
from selfcompact.session.stream import EventHub
from selfcompact.session.turn import ABORTED, IPYTHON, NOT_RUN, TurnRunner
from selfcompact.settings.retry import RetrySettings
from tests.compaction.build import answered, called

Answer = Sequence[StreamEvent | Exception | None]
"""What a stream brings, in order; None is a wait without end."""


@dataclass
class Pieces:
    """A model that streams what it is given, one list for each request."""

    answers: list[Answer]
    provider: str = "pieces"
    model_id: str = "one"
    context_window: int | None = None
    max_output_tokens: int | None = None
    requests: list[ModelRequest] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        for piece in self.answers.pop(0):
            if piece is None:
                await anyio.sleep_forever()
            elif isinstance(piece, Exception):
                raise piece
            else:
                yield piece


@dataclass
class Cells:
    """A kernel whose cells end as they are told; what is asked of it is kept."""

    results: list[CellResult | Exception | None] = field(default_factory=list)
    generation: int = 1
    asked: list[tuple[str, float | None]] = field(default_factory=list)

    async def execute(
        self, code: str, *, timeout_s: float | None = None, on_output: Callable[[str], None] | None = None
    ) -> CellResult:
        self.asked.append((code, timeout_s))
        result = self.results.pop(0) if self.results else CellResult("ok", "")
        if on_output is not None:
            on_output(f"running {code}")
        if result is None:
            await anyio.sleep_forever()
        if isinstance(result, Exception):
            raise result
        assert result is not None
        self.generation = result.generation or self.generation
        return result


@dataclass
class Stage:
    conversation: Conversation
    turns: TurnRunner
    model: Pieces
    cells: Cells
    stream: sc.EventStream

    def told(self) -> list[str]:
        return [event.type for event in self.stream.pending()]

    def logged(self) -> list[Message]:
        return [entry.message for entry in self.conversation.entries if isinstance(entry, MessageEntry)]


@contextmanager
def staged(path: Path, *answers: Answer, cells: Sequence[CellResult | Exception | None] = ()) -> Iterator[Stage]:
    """A turn runner on a log of its own in which a user has said something."""
    hub, model, kernel = EventHub(), Pieces(list(answers)), Cells(list(cells))
    with SessionLog.open(path / "s.jsonl", cwd=path) as log:
        conversation = Conversation(log, overhead_tokens=0)
        conversation.say(user("go"))
        retry = RetrySettings(max_retries=2, first_delay_s=0)
        turns = TurnRunner(conversation, model, kernel, system="Be.", hub=hub, cache_key="key", retry=retry)
        yield Stage(conversation, turns, model, kernel, hub.open())


def of(message: AssistantMessage) -> Answer:
    return [Completed(message)]


async def test_a_request_carries_system_history_tool_and_cache_key(tmp_path: Path) -> None:
    with staged(tmp_path, of(answered("ok"))) as stage:
        history = stage.conversation.history()
        await stage.turns.respond()
    (request,) = stage.model.requests
    assert request == ModelRequest("Be.", history, (IPYTHON,), None, "turn", "key")


async def test_a_response_is_streamed_told_and_logged_as_it_came(tmp_path: Path) -> None:
    message = answered("Hello")
    with staged(tmp_path, [ThinkingDelta("hm"), TextDelta("Hel"), TextDelta("lo"), Completed(message)]) as stage:
        assert await stage.turns.respond() == message
        events = stage.stream.pending()
        assert stage.logged()[1:] == [message]
    start, *updates, end = events
    assert isinstance(start, sc.events.MessageStart)
    assert isinstance(start.message, AssistantMessage)
    empty = (start.message.content, start.message.stop_reason, start.message.error_message)
    assert empty == ((), "stop", None)
    assert (start.message.provider, start.message.model) == ("pieces", "one")
    assert updates == [
        sc.events.MessageUpdate(kind="thinking", delta="hm"),
        sc.events.MessageUpdate(kind="text", delta="Hel"),
        sc.events.MessageUpdate(kind="text", delta="lo"),
    ]
    assert end == sc.events.MessageEnd(message=message)


@pytest.mark.parametrize("how", ["fails", "is aborted"])
async def test_what_had_arrived_of_a_response_that_broke_off_is_logged_and_marked(tmp_path: Path, how: str) -> None:
    pieces: Answer = [ThinkingDelta("h"), ThinkingDelta("m"), TextDelta("Hel"), TextDelta("lo")]
    began = now_ms()
    with staged(tmp_path, [*pieces, ModelError("broke") if how == "fails" else None]) as stage:
        if how == "fails":
            with pytest.raises(ModelError, match="broke"):
                await stage.turns.respond()
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stage.turns.respond)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
        broken = stage.logged()[-1]
        *_, end = stage.stream.pending()
    assert isinstance(broken, AssistantMessage)
    assert broken.content == (ThinkingContent(thinking="hm"), TextContent(text="Hello"))
    assert (broken.provider, broken.model) == ("pieces", "one")
    assert broken.stop_reason == ("error" if how == "fails" else "aborted")
    assert broken.error_message == ("broke" if how == "fails" else "aborted by the operator")
    assert began <= broken.timestamp <= now_ms()
    assert end == sc.events.MessageEnd(message=broken)


async def test_a_response_that_broke_off_before_anything_came_is_logged_empty(tmp_path: Path) -> None:
    with staged(tmp_path, [ModelError("broke")]) as stage:
        with pytest.raises(ModelError):
            await stage.turns.respond()
        broken = stage.logged()[-1]
    assert isinstance(broken, AssistantMessage)
    assert broken.content == ()


async def test_a_stream_that_ends_without_a_response_is_a_failure(tmp_path: Path) -> None:
    with staged(tmp_path, [TextDelta("half")]) as stage:
        with pytest.raises(ModelError, match="ended without a response"):
            await stage.turns.respond()
        assert [text_of(message) for message in stage.logged()] == ["go", "half"]


async def test_a_passing_failure_is_asked_again_with_the_same_request_and_told_each_time(tmp_path: Path) -> None:
    down = [[sc.ProviderUnavailable(f"down {n}", status=503)] for n in (1, 2)]
    with staged(tmp_path, *down, of(answered("up"))) as stage:
        assert text_of(await stage.turns.respond()) == "up"
        retries = [event for event in stage.stream.pending() if isinstance(event, sc.events.RetryScheduled)]
    assert [(event.attempt, event.delay_ms) for event in retries] == [(1, 0), (2, 0)]
    assert ["down 1" in retries[0].error_message, "down 2" in retries[1].error_message] == [True, True]
    first, *again = stage.model.requests
    assert again == [first, first]


async def test_the_time_that_a_server_asks_for_is_waited_before_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[tuple[float, int]] = []

    async def sleep(delay_s: float) -> None:
        waited.append((delay_s, len(stage.model.requests)))

    busy = sc.RateLimited("busy", retry_after_s=7)
    with staged(tmp_path, [busy], of(answered("up"))) as stage:
        monkeypatch.setattr(anyio, "sleep", sleep)
        await stage.turns.respond()
        (retry,) = [event for event in stage.stream.pending() if isinstance(event, sc.events.RetryScheduled)]
    assert (waited, retry.delay_ms) == ([(7, 1)], 7_000)


async def test_a_failure_that_does_not_pass_by_the_third_time_or_at_all_is_raised(tmp_path: Path) -> None:
    down: list[Answer] = [[sc.ProviderUnavailable(f"down {n}", status=503)] for n in (1, 2, 3, 4)]
    with staged(tmp_path, *down) as stage:
        with pytest.raises(ModelError, match="down 3"):
            await stage.turns.respond()
        stage.model.answers[:] = [[sc.PermissionDenied("not yours", status=403)]]
        with pytest.raises(sc.PermissionDenied):
            await stage.turns.respond()
    assert len(stage.model.requests) == 4


async def test_a_history_that_a_provider_would_refuse_is_not_sent(tmp_path: Path) -> None:
    with SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path) as log:
        model = Pieces([of(answered("never"))])
        turns = TurnRunner(
            Conversation(log, overhead_tokens=0),
            model,
            Cells(),
            system="",
            hub=EventHub(),
            cache_key="",
            retry=RetrySettings(),
        )
        with pytest.raises(InvalidHistory, match="no user message"):
            await turns.respond()
    assert model.requests == []


async def test_call_ids_that_were_used_before_are_made_new_and_those_that_were_not_stay(tmp_path: Path) -> None:
    both = [of(answered("", called("a"), called(""), called(other))) for other in ("c", "b")]
    with staged(tmp_path, *both) as stage:
        first = await stage.turns.respond()
        second = await stage.turns.respond()
    with SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path) as log:
        reopened = Conversation(log, overhead_tokens=0)
        assert reopened.claim_call_id("c").startswith("c_")
        assert [reopened.claim_call_id(wanted) for wanted in ("new", "newer")] == ["new", "newer"]
    assert [call.id for call in first.tool_calls] == ["a", "call", "c"]
    again, unnamed, fresh = (call.id for call in second.tool_calls)
    assert again.startswith("a_")
    assert unnamed.startswith("call_")
    assert fresh == "b"
    assert [call.arguments for call in second.tool_calls] == [call.arguments for call in first.tool_calls]


async def test_cells_run_one_after_the_other_with_their_limits_and_everything_is_told(tmp_path: Path) -> None:
    calls = [
        ToolCall(id=call_id, name="ipython", arguments=arguments)
        for call_id, arguments in (("a", {"code": "1", "timeout_s": 5}), ("b", {"code": "2"}))
    ]
    message = answered("", *calls)
    results = [CellResult("ok", "one", duration_s=0.25), CellResult("error", "two", duration_s=1.5)]
    with staged(tmp_path, cells=results) as stage:
        got = await stage.turns.run_calls(message)
        events = stage.stream.pending()
        assert stage.logged()[1:] == list(got)
    assert stage.cells.asked == [("1", 5), ("2", None)]
    assert [(result.tool_call_id, text_of(result), result.is_error) for result in got] == [
        ("a", "one", False),
        ("b", "two", True),
    ]
    for place, (call, result) in enumerate(zip(calls, got, strict=True)):
        assert events[5 * place : 5 * place + 5] == [
            sc.events.ToolExecutionStart(tool_call_id=call.id, tool_name="ipython", args=call.arguments),
            sc.events.ToolExecutionUpdate(tool_call_id=call.id, tool_name="ipython", delta=f"running {place + 1}"),
            sc.events.ToolExecutionEnd(
                tool_call_id=call.id,
                tool_name="ipython",
                result=result,
                is_error=result.is_error,
                status=("ok", "error")[place],
                duration_ms=(250, 1_500)[place],
            ),
            sc.events.MessageStart(message=result),
            sc.events.MessageEnd(message=result),
        ]
    assert len(events) == 10


async def test_a_kernel_that_was_started_anew_under_a_cell_is_told(tmp_path: Path) -> None:
    results = [
        CellResult("died", "", generation=2, note="ran out of memory"),
        CellResult("timeout", "", generation=3),
        CellResult("ok", "", generation=3),
    ]
    with staged(tmp_path, cells=results) as stage:
        await stage.turns.run_calls(answered("", called("a"), called("b"), called("c")))
        restarts = [event for event in stage.stream.pending() if event.type == "kernel_restarted"]
    assert restarts == [
        sc.events.KernelRestarted(generation=2, cause="ran out of memory"),
        sc.events.KernelRestarted(generation=3, cause="timeout"),
    ]


async def test_a_kernel_that_cannot_run_a_cell_answers_it_with_the_reason_and_the_next_one_is_tried(
    tmp_path: Path,
) -> None:
    with staged(tmp_path, cells=[KernelError("no kernel could be started"), CellResult("ok", "fine")]) as stage:
        failed, fine = await stage.turns.run_calls(answered("", called("a"), called("b")))
        ends = [event for event in stage.stream.pending() if isinstance(event, sc.events.ToolExecutionEnd)]
    assert text_of(failed) == "no kernel could be started"
    assert (failed.is_error, failed.details) == (True, {"status": "died"})
    assert text_of(fine) == "fine"
    assert (ends[0].status, ends[0].is_error) == ("died", True)
    assert 0 <= ends[0].duration_ms < 5_000


async def test_a_call_that_cannot_be_run_is_answered_and_not_run(tmp_path: Path) -> None:
    call = called("a", name="shell")
    with staged(tmp_path) as stage:
        (result,) = await stage.turns.run_calls(answered("", call))
        start, end, *_ = stage.stream.pending()
    assert stage.cells.asked == []
    assert (result.is_error, result.details, result.tool_name) == (True, {"status": "refused"}, "shell")
    assert "no tool named 'shell'" in text_of(result)
    assert start == sc.events.ToolExecutionStart(tool_call_id="a", tool_name="shell", args=call.arguments)
    assert isinstance(end, sc.events.ToolExecutionEnd)
    assert (end.status, end.duration_ms, end.result) == ("refused", 0, result)


async def test_after_an_abort_every_call_has_a_result_and_every_start_has_its_end(tmp_path: Path) -> None:
    message = answered("", called("a"), called("b"), called("c"), called("d"))
    with staged(tmp_path, cells=[CellResult("ok", "done"), None]) as stage:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.turns.run_calls, message)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        results = [each for each in stage.logged() if isinstance(each, ToolResultMessage)]
        told = [
            (event.type.rpartition("_")[2], event.tool_call_id, getattr(event, "status", None))
            for event in stage.stream.pending()
            if isinstance(event, sc.events.ToolExecutionStart | sc.events.ToolExecutionEnd)
        ]
    assert [(result.tool_call_id, text_of(result)) for result in results] == [
        ("a", "done"),
        ("b", ABORTED),
        ("c", NOT_RUN),
        ("d", NOT_RUN),
    ]
    assert [result.is_error for result in results] == [False, True, True, True]
    assert [result.details for result in results[1:]] == [{"status": "aborted"}] * 3
    assert told == [
        *(("start", "a", None), ("end", "a", "ok")),
        *(("start", "b", None), ("end", "b", "aborted")),
        *(("start", "c", None), ("end", "c", "aborted")),
        *(("start", "d", None), ("end", "d", "aborted")),
    ]
