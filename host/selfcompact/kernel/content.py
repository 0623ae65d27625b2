"""What a kernel says, as small values whose fields were checked. Pure; nothing in here raises, whatever the bytes are.

A kernel belongs to the cells that run in it, so its messages are a stranger's. Only the fields that are used are
decoded: the decoder walks past the rest without making anything of it, so a message of a million empty lists costs the
time of reading it and no memory. What does not have the shape that the protocol gives it counts as not said.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, TypeVar

import msgspec

from agent_kernel import OMITTED_KEY
from selfcompact.text.surrogates import encodable

T = TypeVar("T")

MAX_HEADER_BYTES = 64 * 1024
"""Of a header, and of the header of the request that a message answers. Real ones have 250."""

MAX_CONTENT_BYTES = 1024 * 1024
"""Of everything but displays, whose images may be larger. The kernel's streams send pieces of at most a cell's budget,
its errors are cut, its listings are short."""

MAX_COMM_BYTES = 320 * 1024
"""A request by comm holds at most one frame of the bridge."""

_REPAIRED_BYTES = 256 * 1024
"""Up to here, text that is not UTF-8 is repaired instead of dropped. It takes a decoder that makes an object of all."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Header(msgspec.Struct, frozen=True):
    """Which message this is."""

    msg_type: str
    msg_id: str = ""


class Parent(msgspec.Struct, frozen=True):
    """Which request it belongs to."""

    msg_id: str = ""


class Stream(msgspec.Struct, frozen=True):
    """A piece of printed text."""

    text: str


class Bundle(msgspec.Struct, frozen=True):
    """The forms in which something is displayed, not decoded yet."""

    plain: msgspec.Raw = msgspec.field(name="text/plain", default_factory=msgspec.Raw)
    png: msgspec.Raw = msgspec.field(name="image/png", default_factory=msgspec.Raw)
    jpeg: msgspec.Raw = msgspec.field(name="image/jpeg", default_factory=msgspec.Raw)


class Display(msgspec.Struct, frozen=True):
    """Something that is displayed."""

    data: Bundle


class ClearOutput(msgspec.Struct, frozen=True):
    """What was shown goes; with `wait`, when something new comes."""

    wait: bool = False


class Status(msgspec.Struct, frozen=True):
    """Whether the kernel is busy with a request."""

    execution_state: str


class Failure(msgspec.Struct, frozen=True):
    """An exception that a cell ended with."""

    ename: str = ""
    evalue: str = ""
    traceback: tuple[str, ...] = ()


class ExecuteReply(msgspec.Struct, frozen=True):
    """How a cell ended."""

    status: str = ""
    execution_count: Count | None = None
    ename: str = ""
    evalue: str = ""
    traceback: tuple[str, ...] = ()
    omitted: Count = msgspec.field(name=OMITTED_KEY, default=0)


class CommContent(msgspec.Struct, frozen=True):
    """A message on a comm. `data` is whatever its sender says."""

    comm_id: str
    target_name: str = ""
    data: Any = None


Content = Stream | Display | ClearOutput | Status | Failure | CommContent

_NO_TEXT = re.compile("[\udc80-\udcff]")
"""Bytes that are no UTF-8, as Python's strings carry them."""

_header = msgspec.json.Decoder(Header)
_parent = msgspec.json.Decoder(Parent)
_text = msgspec.json.Decoder(str)
_reply = msgspec.json.Decoder(ExecuteReply)
_display = msgspec.json.Decoder(Display)
_comm = msgspec.json.Decoder(CommContent)
_decoders: dict[str, tuple[msgspec.json.Decoder[Any], int]] = {
    "stream": (msgspec.json.Decoder(Stream), MAX_CONTENT_BYTES),
    "execute_result": (_display, 2**62),
    "display_data": (_display, 2**62),
    "update_display_data": (_display, 2**62),
    "clear_output": (msgspec.json.Decoder(ClearOutput), MAX_CONTENT_BYTES),
    "status": (msgspec.json.Decoder(Status), MAX_CONTENT_BYTES),
    "error": (msgspec.json.Decoder(Failure), MAX_CONTENT_BYTES),
    "comm_open": (_comm, MAX_COMM_BYTES),
    "comm_msg": (_comm, MAX_COMM_BYTES),
    "comm_close": (_comm, MAX_COMM_BYTES),
}
"""A display is as long as a message may be: its images are what messages are long for."""


def header_of(raw: bytes) -> Header | None:
    """A message's header; None when it has none that can be read."""
    return decoded(_header, raw, MAX_HEADER_BYTES)


def parent_of(raw: bytes) -> str:
    """The id of the request that a message belongs to; empty when it belongs to none."""
    parent = decoded(_parent, raw, MAX_HEADER_BYTES)
    return parent.msg_id if parent is not None else ""


def content_of(message_type: str, raw: bytes) -> Content | None:
    """What a message on IOPub says; None when that is nothing we know, or not what such a message says."""
    if message_type not in _decoders:
        return None
    decoder, limit = _decoders[message_type]
    content: Content | None = decoded(decoder, raw, limit)
    return content


def reply_of(raw: bytes) -> ExecuteReply:
    """How a cell ended; a reply that cannot be read says nothing but that it came."""
    return decoded(_reply, raw, MAX_CONTENT_BYTES) or ExecuteReply()


def text_of(raw: msgspec.Raw) -> str | None:
    """The text in one form of a display; None when there is none."""
    data = bytes(raw)
    return decoded(_text, data, len(data)) if data else None


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes, limit: int) -> T | None:
    """A value of the decoder's type, every text of it encodable; None when these bytes are none, or too many."""
    if len(raw) > limit:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.ValidationError, RecursionError):
        return None
    except msgspec.DecodeError:
        return _repaired(decoder, raw) if len(raw) <= _REPAIRED_BYTES else None


def _repaired(decoder: msgspec.json.Decoder[T], raw: bytes) -> T | None:
    """The same of bytes that are not UTF-8 or name half a surrogate pair, as file names and `print` can make them."""
    try:
        value = json.loads(raw.decode("utf-8", "surrogateescape"))
        return decoder.decode(msgspec.json.encode(_shown(value)))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(_NO_TEXT.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", value))
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {_shown(key): _shown(item) for key, item in value.items()}
    return value
