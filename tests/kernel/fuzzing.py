"""Messages that no kernel should send: real ones with one thing changed, and bytes that were never a message."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from collections.abc import Callable
from typing import Any

from host_bridge.host import zmtp

KEY = b"the key of this kernel"
CELL, ASKED = "the-cell", "the-question"

TINY = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

NAME = {"name": "a", "type": "int", "shape": "int 1"}

CORPUS: list[tuple[str, str, Any]] = [
    ("stream", CELL, {"name": "stdout", "text": "words"}),
    ("stream", "another-cell", {"name": "stderr", "text": "late words"}),
    ("execute_result", CELL, {"data": {"text/plain": "42"}, "metadata": {}, "execution_count": 7}),
    ("display_data", CELL, {"data": {"text/plain": "<Figure>", "image/png": TINY}, "metadata": {}, "transient": {}}),
    ("update_display_data", CELL, {"data": {"image/jpeg": TINY}, "transient": {"display_id": "a"}}),
    ("error", CELL, {"ename": "ValueError", "evalue": "x\udfff", "traceback": ["line", "ValueError: x"]}),
    ("clear_output", CELL, {"wait": True}),
    ("status", CELL, {"execution_state": "busy"}),
    ("status", CELL, {"execution_state": "idle"}),
    ("execute_input", CELL, {"code": "1+1", "execution_count": 1}),
    ("comm_open", CELL, {"comm_id": "c", "target_name": "host.request", "data": {"type": "compact.status"}}),
    ("comm_msg", CELL, {"comm_id": "c", "data": {"v": 1, "type": "compact.run", "payload": {"instructions": "keep"}}}),
    ("comm_close", CELL, {"comm_id": "c", "data": {}}),
    ("execute_reply", CELL, {"status": "ok", "execution_count": 3, "user_expressions": {}, "payload": []}),
    (
        "execute_reply",
        ASKED,
        {
            "status": "ok",
            "user_expressions": {
                "names": {
                    "data": {
                        "application/json": {"names": [{"name": "a", "type": "int", "shape": "int 1"}], "omitted": 0}
                    }
                },
                "report": {"data": {"application/json": {"names": ["a"], "skipped": [["b", "why"]], "problem": ""}}},
            },
        },
    ),
    ("shutdown_reply", CELL, {"restart": False}),
    ("iopub_welcome", "", {"subscription": ""}),
    ("kernel_info_reply", ASKED, {"status": "ok", "protocol_version": "5.3"}),
]

ODD: list[Any] = [
    None, True, False, 0, -1, 2**53 + 1, 10**400, 1.5, float("inf"), float("nan"), "", "x" * 5000, "\ud800", "\udfff",
    "\x1b]0;t\x07", "\x9b2J", "a\x00b", "😀" * 500, [], {}, [[]] * 300, {"a": {"b": {}}}, ["x"] * 300, {"": ""},
    {"x" * 3000: 1},
    "SGVsbG8=", TINY[:40], "iVBORw0KGgo=",
]  # fmt: skip


def nested(depth: int, kind: str) -> str:
    """JSON text that is nested so deep."""
    return kind[0] * depth + kind[1] * depth if kind == "[]" else '{"a":' * depth + "1" + "}" * depth


def changed(value: Any, chance: random.Random) -> Any:
    """The value with one thing in it replaced, removed, added or moved."""
    if isinstance(value, dict) and value and chance.random() < 0.7:
        key = chance.choice(list(value))
        rest = {name: item for name, item in value.items() if name != key}
        return rest if chance.random() < 0.15 else {**rest, key: changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.6:
        at = chance.randrange(len(value))
        return [*value[:at], changed(value[at], chance), *value[at + 1 :]]
    return chance.choice(ODD)


def torn(data: bytes, chance: random.Random) -> bytes:
    """The bytes with some of them flipped, cut, doubled, or replaced."""
    torn_data = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(torn_data) + 1)
        match chance.randrange(5):
            case 0:
                torn_data[at : at + 1] = bytes((chance.randrange(256),))
            case 1:
                del torn_data[at : at + chance.randrange(1, 40)]
            case 2:
                torn_data[at:at] = torn_data[at : at + chance.randrange(1, 40)]
            case 3:
                torn_data[at:at] = chance.randbytes(chance.randrange(1, 20))
            case _:
                torn_data[at:at] = nested(chance.choice((5, 900, 1500, 5000)), chance.choice(("[]", "{}"))).encode()
    return bytes(torn_data)


def parts_of(kind: str, parent: str, content: bytes, key: bytes = KEY, header: bytes | None = None) -> list[bytes]:
    """A message signed with a key."""
    header = json.dumps({"msg_id": "m", "msg_type": kind}).encode() if header is None else header
    signed = [header, json.dumps({"msg_id": parent}).encode(), b"{}", content]
    signature = hmac.new(key, b"".join(signed), hashlib.sha256).hexdigest().encode()
    return [b"topic", b"<IDS|MSG>", signature, *signed]


def encoded(value: Any, chance: random.Random) -> bytes:
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    return text.encode("utf-8", "surrogatepass" if chance.random() < 0.5 else "replace")


def one(chance: random.Random) -> bytes:
    """A message, ready to be sent."""
    kind, parent, value = chance.choice(CORPUS)
    content = encoded(value, chance)
    way: list[Callable[[], list[bytes]]] = [
        lambda: parts_of(kind, parent, encoded(changed(value, chance), chance)),
        lambda: parts_of(kind, parent, encoded(changed(changed(value, chance), chance), chance)),
        lambda: parts_of(kind, parent, torn(content, chance)),
        lambda: parts_of(kind, parent, content, header=torn(b'{"msg_id": "m", "msg_type": "stream"}', chance)),
        lambda: parts_of(chance.choice(CORPUS)[0], parent, content),
        lambda: parts_of(kind, parent, content, key=b"another"),
        lambda: [torn(part, chance) for part in parts_of(kind, parent, content)],
        lambda: chance.sample(parts_of(kind, parent, content), chance.randrange(1, 7)),
        lambda: [chance.randbytes(chance.randrange(60)) for _ in range(chance.randrange(1, 90))],
    ]  # fmt: skip
    return zmtp.message(chance.choice(way)())
