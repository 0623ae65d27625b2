"""Real clients against a real server: OpenAI's and Anthropic's own, over HTTP on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from selfcompact.errors import (
    AuthenticationFailed,
    ContextOverflow,
    ModelError,
    ModelTimeout,
    PermissionDenied,
    ProviderUnavailable,
    RateLimited,
)
from selfcompact.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    text_of,
    user,
)
from selfcompact.models.protocol import RAW_ARGUMENTS, Completed, Model, ModelRequest, TextDelta, ToolSpec
from selfcompact.models.provider_messages import from_provider, to_provider
from selfcompact.models.providers import ProviderModel
from selfcompact.models.registry import make_model
from selfcompact.session.turn import IPYTHON
from selfcompact.testing import Call, FakeProvider, Fault, Reply, overflow_fault
from tests.requests_sent import complete

FAMILIES = ["openai-chat", "openai", "anthropic"]
TOOLS: tuple[ToolSpec, ...] = (IPYTHON,)
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def model_of(family: str, server: FakeProvider, **options: Any) -> ProviderModel:
    url = server.anthropic_url if family == "anthropic" else server.openai_url
    options.setdefault("context_window", 100_000)
    model = make_model(f"{family}:fake-model", base_url=url, **options)
    assert isinstance(model, ProviderModel)
    return model


def ask(*messages: Message) -> ModelRequest:
    return ModelRequest("Be brief.", messages or (user("hello"),), TOOLS)


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_text_is_streamed_and_usage_reported(family: str) -> None:
    async with FakeProvider([Reply("The answer is forty-two, of course.", usage=(120, 9), cached=50)]) as server:
        model = model_of(family, server)
        pieces: list[str] = []
        message: AssistantMessage | None = None
        async for event in model.stream(ask()):
            if isinstance(event, TextDelta):
                pieces.append(event.text)
            elif isinstance(event, Completed):
                message = event.message
    assert len(pieces) > 1
    assert "".join(pieces) == "The answer is forty-two, of course."
    assert message is not None
    assert text_of(message) == "".join(pieces)
    assert message.usage is not None
    assert (message.usage.prompt, message.usage.output, message.usage.cache_read) == (120, 9, 50)
    assert message.stop_reason == "stop"


async def test_tool_calls_arrive_in_order_with_their_arguments(family: str) -> None:
    calls = (Call("ipython", {"code": "x = 'ä\\n'"}), Call("ipython", {"code": "y", "timeout_s": 3}))
    async with FakeProvider([Reply("I look.", calls=calls)]) as server:
        message = await complete(model_of(family, server), ask())
    assert message.stop_reason == "toolUse"
    assert [dict(call.arguments) for call in message.tool_calls] == [json.loads(c.arguments_text) for c in calls]
    assert len({call.id for call in message.tool_calls}) == 2


async def test_system_prompt_and_tools_are_the_same_bytes_in_every_request(family: str) -> None:
    async with FakeProvider([Reply("one"), Reply("two")]) as server:
        model = model_of(family, server)
        first = await complete(model, ask())
        await complete(model, ask(user("hello"), first, user("more")))
        bodies = [received.body for received in server.requests]
    for key in ("tools", "system", "instructions"):
        assert json.dumps(bodies[0].get(key)) == json.dumps(bodies[1].get(key))
    assert json.dumps(bodies[0]["tools"])


async def test_results_with_images_and_errors_go_back_to_their_calls(family: str) -> None:
    history: list[Message] = [
        UserMessage(
            content=(TextContent(text="what is this?"), ImageContent(data=PNG, mime_type="image/png")), timestamp=1
        ),
        AssistantMessage(
            content=(TextContent(text="I plot."), ToolCall(id="call_1", name="ipython", arguments={"code": "plot()"})),
            stop_reason="toolUse",
            timestamp=2,
        ),
        ToolResultMessage(
            tool_call_id="call_1",
            tool_name="ipython",
            content=(TextContent(text="a figure"), ImageContent(data=PNG, mime_type="image/png")),
            is_error=True,
            timestamp=3,
        ),
    ]
    async with FakeProvider([Reply("I see.")]) as server:
        await complete(model_of(family, server), ask(*history))
        sent = json.dumps(server.requests[0].body)
    assert sent.count(PNG[:60]) == 2
    assert "call_1" in sent
    assert "a figure" in sent


async def test_thinking_with_its_signature_goes_back_as_it_came() -> None:
    async with FakeProvider([Reply("so", thinking="deep thought", signature="SIG=="), Reply("ok")]) as server:
        model = model_of("anthropic", server)
        first = await complete(model, ask())
        again = AssistantMessage.from_json(json.loads(json.dumps(first.to_json())))
        assert again == first
        await complete(model, ask(user("hello"), again, user("go on")))
        sent = server.requests[1].body["messages"][1]["content"]
    thinking = [block for block in first.content if isinstance(block, ThinkingContent)]
    assert [(block.thinking, block.thinking_signature) for block in thinking] == [("deep thought", "SIG==")]
    assert {"type": "thinking", "thinking": "deep thought", "signature": "SIG=="} in sent


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (Fault(401, {"error": {"message": "bad key"}}), AuthenticationFailed, "bad key"),
        (Fault(403, {"error": {"message": "not for you"}}), PermissionDenied, "not for you"),
        (Fault(429, {"error": {"message": "slow down"}}, {"retry-after": "7"}), RateLimited, "slow down"),
        (Fault(500, {"error": {"message": "oops"}}), ProviderUnavailable, "oops"),
        (Fault(503, "upstream is gone"), ProviderUnavailable, "upstream"),
        (Fault(413, {"error": {"message": "request too large"}}), ContextOverflow, "too large"),
        (Fault(400, {"error": {"message": "unknown field"}}), ModelError, "unknown field"),
    ],
)
async def test_errors_keep_their_status_and_the_providers_words(
    family: str, fault: Fault, error: type[ModelError], said: str
) -> None:
    async with FakeProvider([fault] * 10) as server:
        with pytest.raises(error) as caught:
            await complete(model_of(family, server), ask())
    assert type(caught.value) is error
    assert caught.value.status == fault.status
    assert said in caught.value.provider_message
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after_s == 7


async def test_each_family_overflows_in_its_own_words(family: str) -> None:
    async with FakeProvider([overflow_fault("anthropic" if family == "anthropic" else "openai")]) as server:
        with pytest.raises(ContextOverflow) as caught:
            await complete(model_of(family, server), ask())
    assert caught.value.status == 400
    assert "maximum" in caught.value.provider_message


async def test_more_prompt_tokens_than_the_window_has_is_an_overflow(family: str) -> None:
    async with FakeProvider([Reply("cut", usage=(9_000, 5))]) as server:
        with pytest.raises(ContextOverflow, match="9,000"):
            await complete(model_of(family, server, context_window=8_192), ask())


async def test_arguments_that_are_not_json_are_kept_for_an_error_result(family: str) -> None:
    async with FakeProvider([Reply(calls=(Call("ipython", '{"code": "x'),))]) as server:
        message = await complete(model_of(family, server), ask())
    (call,) = message.tool_calls
    assert call.arguments == {RAW_ARGUMENTS: '{"code": "x'}


async def test_a_silent_stream_ends_with_the_idle_limit_and_a_cut_one_with_an_error(family: str) -> None:
    async with FakeProvider([Reply("slow " * 10, delay_s=5), Reply("cut " * 20, cut_after=4)]) as server:
        url = server.anthropic_url if family == "anthropic" else server.openai_url
        made = make_model(f"{family}:fake-model", base_url=url, context_window=1_000)
        assert isinstance(made, ProviderModel)
        made._idle_s = 0.2  # the setting of tests alone
        with pytest.raises(ModelTimeout):
            await complete(made, ask())
        made._idle_s = 10
        with pytest.raises(ModelError):
            await complete(made, ask())


async def test_cancelling_closes_the_connection(family: str) -> None:
    async with FakeProvider([Reply("slow " * 200, delay_s=0.05)]) as server:
        model = model_of(family, server)
        with anyio.move_on_after(5) as scope:
            async for event in model.stream(ask()):
                if isinstance(event, TextDelta):
                    scope.cancel()
        assert scope.cancelled_caught
        with anyio.fail_after(5):
            while not server.disconnects:
                await anyio.sleep(0.01)


async def test_keys_stay_out_of_errors_and_requests_carry_them_only_in_their_header(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET_KEY", "sk-canary-0123456789abcdef")
    async with FakeProvider([Fault(401, {"error": {"message": "bad key"}})]) as server:
        model = model_of(family, server, key_variable="MY_SECRET_KEY")
        with pytest.raises(AuthenticationFailed) as caught:
            await complete(model, ask())
        received = server.requests[0]
    assert "canary" not in str(caught.value)
    assert b"canary" not in received.raw
    assert "canary" in received.headers.get("authorization", "") + received.headers.get("x-api-key", "")


def round_trip(message: AssistantMessage, make: Callable[[AssistantMessage], Any]) -> AssistantMessage:
    return from_provider(make(message), provider="p", model_id="m")


def test_a_message_of_ours_survives_the_way_through_the_library() -> None:
    message = AssistantMessage(
        content=(
            ThinkingContent(
                thinking="hm", thinking_signature="s", extra={"providerFields": {"provider_name": "anthropic"}}
            ),
            TextContent(text="say"),
            ToolCall(id="a", name="ipython", arguments={"code": "1", "n": [1, None]}),
        ),
        provider="p",
        model="m",
        stop_reason="toolUse",
        timestamp=1,
    )
    _, response, _ = to_provider("s", [user("x"), message, user("y")])
    back = round_trip(message, lambda _: response)
    assert back.content == message.content


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("gpt-5", "should be provider:name"),
        ("nobody:model", "model nobody:model: "),
        ("openai:", "should be provider:name"),
    ],
)
def test_an_unknown_model_is_told_in_one_sentence(name: str, problem: str) -> None:
    from selfcompact.errors import UsageError

    with pytest.raises(UsageError, match=problem) as caught:
        make_model(name)
    assert "\n" not in str(caught.value)


def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    from selfcompact.errors import UsageError

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        make_model("openai:gpt-5")
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY"):
        make_model("anthropic:claude-sonnet-4-5")
    with pytest.raises(UsageError, match="NOT_SET"):
        make_model("openai-chat:x", key_variable="NOT_SET", base_url="http://127.0.0.1:1/v1")


def test_a_model_is_a_model() -> None:
    model: Model = make_model("openai-chat:x", base_url="http://127.0.0.1:1/v1", context_window=5)
    assert (model.provider, model.model_id, model.context_window) == ("openai-chat", "x", 5)
