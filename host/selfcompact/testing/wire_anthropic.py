"""A reply as Anthropic's Messages API streams it. The shapes are the public API's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from selfcompact.testing.replies import Reply
from selfcompact.testing.wire_openai import sse

STOPS = {"length": "max_tokens", "stop": "end_turn", "tool_calls": "tool_use", "content_filter": "refusal"}


def message_events(reply: Reply, number: int, model: str) -> Iterator[bytes]:
    """A reply as Messages events."""

    def event(kind: str, **data: Any) -> bytes:
        return sse({"type": kind, **data}, kind)

    prompt, output = reply.usage or (0, 0)
    usage = {"input_tokens": prompt - reply.cached, "cache_read_input_tokens": reply.cached, "output_tokens": 1}
    yield event(
        "message_start",
        message={
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, "cache_creation_input_tokens": 0},
        },
    )
    index = 0

    def block(start: dict[str, Any], deltas: list[dict[str, Any]]) -> Iterator[bytes]:
        nonlocal index
        yield event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
        index += 1

    if reply.thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": reply.thinking},
            {"type": "signature_delta", "signature": reply.signature},
        ]
        yield from block({"type": "thinking", "thinking": "", "signature": ""}, deltas)
    if reply.text:
        yield from block({"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in reply.pieces])
    for number_of_call, call in enumerate(reply.calls):
        call_id = f"toolu_{number}_{number_of_call}" if call.id is None else call.id
        text = call.arguments_text
        pieces = [text[start : start + 15] for start in range(0, len(text), 15)]
        yield from block(
            {"type": "tool_use", "id": call_id, "name": call.name, "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in pieces],
        )
    if reply.finish == "":
        return  # the stream ends without telling how
    finish = reply.finish if reply.finish is not None else ("tool_calls" if reply.calls else "stop")
    stop = STOPS.get(finish, finish)
    yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": output})
    yield event("message_stop")


def compaction_message(reply: Reply, number: int, model: str) -> dict[str, Any]:
    """A reply's text as the answer to a request for compaction; empty text is a compaction that failed."""
    prompt, output = reply.usage or (0, 0)
    block = {"type": "compaction", "content": reply.text or None, "signature": f"signed-{number}"}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "compaction",
        "stop_sequence": None,
        "usage": {
            "input_tokens": prompt - reply.cached,
            "cache_read_input_tokens": reply.cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": output,
        },
    }
