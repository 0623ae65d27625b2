"""Messages both ways through each vendor's own client, over a real connection: nothing is lost or reordered."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcompact.messages import (
    AssistantMessage,
    Content,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    blocks,
    text_of,
    user,
)
from selfcompact.models.protocol import Model, ModelRequest
from selfcompact.models.registry import make_model
from selfcompact.session.turn import IPYTHON
from selfcompact.testing import Call, FakeProvider, Reply
from selfcompact.text.surrogates import encodable
from tests.requests_sent import complete

EXAMPLES = 15
"""Each is one or two requests over loopback."""

Said = tuple[str, str]
"""Something in a request: what it is, and its text."""


@dataclass
class Wire:
    """A server that answers with `reply`, and a client for it; both live in a thread of their own."""

    family: str
    portal: BlockingPortal
    server: FakeProvider
    model: Model
    reply: list[Reply] = field(default_factory=lambda: [Reply("ok")])

    def ask(self, *messages: Message) -> AssistantMessage:
        return self.portal.call(complete, self.model, ModelRequest("Be brief.", messages, (IPYTHON,)))

    @property
    def sent(self) -> list[Said]:
        """What the newest request said, in order."""
        return READERS[self.family](self.server.requests[-1].body)


@pytest.fixture(
    scope="module",
    params=["openai-chat", *(pytest.param(name, marks=pytest.mark.slow) for name in ("openai", "anthropic"))],
)
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    family = str(request.param)
    reply = [Reply("ok")]

    def answers() -> Iterator[Reply]:
        while True:
            yield reply[-1]

    with start_blocking_portal() as portal:
        server = FakeProvider(answers())
        with portal.wrap_async_context_manager(server):
            url = server.anthropic_url if family == "anthropic" else server.openai_url
            model = make_model(f"{family}:fake-model", base_url=url, context_window=10_000_000)
            yield Wire(family, portal, server, model, reply)


def chat_said(body: dict[str, Any]) -> list[Said]:
    found: list[Said] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            found.append((f"result {message['tool_call_id']}", _text(message["content"])))
            continue
        found.extend((f"{message['role']}", text) for text in _pieces(message.get("content")))
        calls = message.get("tool_calls") or ()
        found.extend((f"call {c['id']} {c['function']['name']}", c["function"]["arguments"]) for c in calls)
    return found


def responses_said(body: dict[str, Any]) -> list[Said]:
    found: list[Said] = [("system", body["instructions"])] if body.get("instructions") else []
    for item in body["input"]:
        match item.get("type", "message"):
            case "function_call":
                found.append((f"call {item['call_id']} {item['name']}", item["arguments"]))
            case "function_call_output":
                output = item["output"]
                pieces = _pieces(output)
                found.append((f"result {item['call_id']}", next(iter(pieces), "")))
                found.extend(("user", piece) for piece in pieces[1:])
            case "message":
                found.extend((item["role"], text) for text in _pieces(item["content"]))
            case _:
                pass
    return found


def anthropic_said(body: dict[str, Any]) -> list[Said]:
    found: list[Said] = [("system", text) for text in _pieces(body.get("system"))]
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else [message["content"]]:
            match block if isinstance(block, dict) else {"type": "text", "text": block}:
                case {"type": "tool_use", "id": call_id, "name": name, "input": arguments}:
                    found.append((f"call {call_id} {name}", json.dumps(arguments)))
                case {"type": "tool_result", "tool_use_id": call_id} as result:
                    pieces = _pieces(result.get("content"))
                    found.append((f"result {call_id}", next(iter(pieces), "")))
                    found.extend(("user", piece) for piece in pieces[1:])
                case {"type": "thinking", "thinking": thinking, "signature": signature}:
                    found.append((f"thinking {signature}", thinking))
                case other:
                    found.extend((message["role"], text) for text in _pieces([other]))
    return found


def _pieces(content: Any) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    found: list[str] = []
    for part in content:
        match part:
            case {"type": "image_url", "image_url": {"url": url}} | {"type": "input_image", "image_url": url}:
                found.append(str(url).rpartition(",")[2])
            case {"type": "image", "source": {"data": data}}:
                found.append(data)
            case {"text": text}:
                found.append(text)
            case _:
                pass
    return found


def _text(content: Any) -> str:
    return "".join(_pieces(content))


READERS = {"openai-chat": chat_said, "openai": responses_said, "anthropic": anthropic_said}

texts = st.text(st.characters(exclude_categories=()), min_size=1, max_size=40).filter(lambda text: text.strip())
images = st.binary(min_size=1, max_size=20).map(
    lambda data: ImageContent(data=base64.b64encode(data).decode(), mime_type="image/png")
)
arguments = st.fixed_dictionaries({"code": texts}, optional={"timeout_s": st.integers(1, 99)})


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """User, then responses with calls that are all answered, then a user again."""
    messages: list[Message] = []
    for turn in range(draw(st.integers(1, 3))):
        content: list[Content] = [TextContent(text=draw(texts))]
        content += draw(st.lists(images, max_size=1))
        messages.append(UserMessage(content=tuple(content), timestamp=1))
        count = draw(st.integers(0, 2))
        calls = [ToolCall(id=f"call_{turn}_{n}", name="ipython", arguments=draw(arguments)) for n in range(count)]
        said: list[Content] = [TextContent(text=draw(texts))] if not calls or draw(st.booleans()) else []
        messages.append(AssistantMessage(content=(*said, *calls), stop_reason="toolUse", timestamp=1))
        for call in calls:
            result = [TextContent(text=draw(texts))]
            messages.append(
                ToolResultMessage(
                    tool_call_id=call.id,
                    tool_name=call.name,
                    content=tuple(result),
                    is_error=draw(st.booleans()),
                    timestamp=1,
                )
            )
    return [*messages, user(draw(texts))]


def expected(messages: list[Message]) -> list[Said]:
    found: list[Said] = [("system", "Be brief.")]
    for message in messages:
        for block in blocks(message):
            match block:
                case TextContent(text=text) if isinstance(message, ToolResultMessage):
                    found.append((f"result {message.tool_call_id}", encodable(text)))
                case TextContent(text=text):
                    found.append((str(message.to_json()["role"]), encodable(text)))
                case ImageContent(data=data):
                    found.append(("user", data))
                case ToolCall():
                    sent = json.loads(encodable(json.dumps(dict(block.arguments), ensure_ascii=False)))
                    found.append((f"call {block.id} {block.name}", json.dumps(sent)))
                case _:
                    pass
    return found


def plain(said: list[Said]) -> list[Said]:
    """Arguments as one spelling of JSON."""
    return [(what, json.dumps(json.loads(text)) if what.startswith("call ") else text) for what, text in said]


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_a_history_arrives_at_the_server_whole_and_in_order(wire: Wire, data: st.DataObject) -> None:
    wire.reply.append(Reply("ok"))
    history = data.draw(histories())
    wire.ask(*history)
    assert plain(wire.sent) == plain(expected(history))


# What can be part of a server's answer: JSON over the wire has no lone surrogates.
spoken = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(lambda text: text.strip())


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_a_response_arrives_whole_survives_the_log_and_goes_back_as_it_came(wire: Wire, data: st.DataObject) -> None:
    calls = data.draw(st.lists(st.fixed_dictionaries({"code": spoken}), max_size=2))
    text = data.draw(spoken) if not calls else data.draw(st.one_of(st.just(""), spoken))
    thinking = data.draw(st.one_of(st.just(""), spoken)) if wire.family == "anthropic" else ""
    usage = (data.draw(st.integers(100, 9_999)), data.draw(st.integers(1, 999)))
    cached = data.draw(st.integers(0, usage[0]))
    wire.reply.append(
        Reply(
            text,
            thinking=thinking,
            signature="c2lnbmVk" if thinking else "",
            calls=[Call("ipython", call) for call in calls],
            usage=usage,
            cached=cached,
            chunk_chars=data.draw(st.integers(1, 9)),
        )
    )
    message = wire.ask(user("hello"))
    assert text_of(message) == text
    assert [dict(call.arguments) for call in message.tool_calls] == calls
    assert [block.thinking for block in message.content if isinstance(block, ThinkingContent)] == [thinking] * bool(
        thinking
    )
    assert message.stop_reason == ("toolUse" if calls else "stop")
    assert message.usage is not None
    assert (message.usage.prompt, message.usage.output, message.usage.cache_read) == (*usage, cached)

    logged = AssistantMessage.from_json(json.loads(json.dumps(message.to_json())))
    assert logged == message
    results = [
        ToolResultMessage(tool_call_id=call.id, tool_name=call.name, content="fine", timestamp=1)
        for call in logged.tool_calls
    ]
    wire.reply.append(Reply("ok"))
    wire.ask(user("hello"), logged, *results, user("go on"))
    sent = wire.sent
    said = [text for what, text in sent if what == "assistant"]
    assert "".join(said) == text
    assert [json.loads(spelled) for what, spelled in sent if what.startswith("call ")] == calls
    assert [what for what, _ in sent if what.startswith("result ")] == [f"result {c.id}" for c in logged.tool_calls]
    if thinking:
        assert ("thinking c2lnbmVk", thinking) in sent
