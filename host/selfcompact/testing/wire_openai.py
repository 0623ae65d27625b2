"""A reply as OpenAI's Chat Completions and Responses stream it. The shapes are the public API's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from selfcompact.testing.replies import Reply

CREATED = 1_790_000_000


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def chat_chunks(reply: Reply, number: int, model: str) -> Iterator[bytes]:
    """A reply as Chat Completions chunks."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return sse(_chat(number, model, [choice]))

    yield chunk({"role": "assistant", "content": ""})
    if reply.thinking:
        yield chunk({"reasoning_content": reply.thinking})
    for piece in reply.pieces:
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        call_id = f"call_{number}_{index}" if call.id is None else call.id
        begun = {"index": index, "id": call_id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [begun]})
        text = call.arguments_text
        for start in range(0, len(text), 15):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": text[start : start + 15]}}]})
    finish = reply.finish if reply.finish is not None else ("tool_calls" if reply.calls else "stop")
    if finish:
        yield chunk({}, finish)
    if reply.usage is not None:
        yield sse({**_chat(number, model, []), "usage": chat_usage(reply)})
    yield sse("[DONE]")


def _chat(number: int, model: str, choices: list[Any]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": model,
        "choices": choices,
    }


def chat_usage(reply: Reply) -> dict[str, Any]:
    """Usage as Chat Completions reports it."""
    prompt, output = reply.usage or (0, 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": reply.cached},
    }


def response_events(reply: Reply, number: int, model: str) -> Iterator[bytes]:
    """A reply as Responses events."""
    sequence = 0

    def event(kind: str, **data: Any) -> bytes:
        nonlocal sequence
        sequence += 1
        return sse({"type": kind, "sequence_number": sequence, **data}, kind)

    def response(status: str, output: list[Any]) -> dict[str, Any]:
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": CREATED,
            "model": model,
            "status": status,
            "output": output,
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": _response_usage(reply) if status != "in_progress" else None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        }

    yield event("response.created", response=response("in_progress", []))
    output: list[Any] = []
    if reply.text:
        item_id, place = f"msg_{number}", len(output)
        empty = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        yield event("response.output_item.added", output_index=place, item=empty)
        part = {"type": "output_text", "text": "", "annotations": []}
        where = {"item_id": item_id, "output_index": place, "content_index": 0}
        yield event("response.content_part.added", part=part, **where)
        for piece in reply.pieces:
            yield event("response.output_text.delta", delta=piece, logprobs=[], **where)
        yield event("response.output_text.done", text=reply.text, logprobs=[], **where)
        whole = {**empty, "status": "completed", "content": [{**part, "text": reply.text}]}
        yield event("response.output_item.done", output_index=place, item=whole)
        output.append(whole)
    for index, call in enumerate(reply.calls):
        item_id, place = f"fc_{number}_{index}", len(output)
        call_id = f"call_{number}_{index}" if call.id is None else call.id
        item = {"id": item_id, "type": "function_call", "call_id": call_id, "name": call.name, "arguments": ""}
        yield event("response.output_item.added", output_index=place, item={**item, "status": "in_progress"})
        where = {"item_id": item_id, "output_index": place}
        yield event("response.function_call_arguments.delta", delta=call.arguments_text, **where)
        done = {**item, "arguments": call.arguments_text, "status": "completed"}
        yield event("response.function_call_arguments.done", arguments=call.arguments_text, name=call.name, **where)
        yield event("response.output_item.done", output_index=place, item=done)
        output.append(done)
    if reply.finish == "":
        return  # the stream ends without telling how
    status = "incomplete" if reply.finish == "length" else "completed"
    yield event(f"response.{status}", response=response(status, output))


def _response_usage(reply: Reply) -> dict[str, Any] | None:
    if reply.usage is None:
        return None
    prompt, output = reply.usage
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": reply.cached, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + output,
    }


def compacted_response(reply: Reply, number: int) -> dict[str, Any]:
    """The answer to a request for compaction: an item that only OpenAI can read. The text does not appear in it."""
    return {
        "id": f"resp_{number}",
        "object": "response.compaction",
        "created_at": CREATED,
        "output": [{"id": f"cmp_{number}", "type": "compaction", "encrypted_content": f"gAAAA-{number}"}],
        "usage": _response_usage(reply),
    }
