"""The frames that a cell and its host exchange, version 1.

A message is one part: the HMAC-SHA256 of the body under the kernel's own key, 32 bytes, and the body, a JSON object.

    request  {"v": 1, "id": "…", "gen": 3, "type": "compact.run", "payload": {…}}
    answer   {"v": 1, "id": "…", "gen": 3, "status": "ok", "result": {…}}
             {"v": 1, "id": "…", "gen": 3, "status": "error", "error": {"code": "busy", "message": "…"}}

The type stands outside the payload, so that no key of a payload can reroute a request. `gen` is the kernel's
generation, counted by the host from 1: a request of an older kernel is refused, a late answer reaches nobody.
Nothing here does I/O. Runs inside the kernel: Python 3.9, standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from host_bridge.wire.errors import BadSignature, BridgeUnavailable, FrameError

VERSION = 1

MAX_FRAME_BYTES = 256 * 1024
"""A frame holds instructions or a status, not data: 256 KiB is ten times the longest sensible text."""

SIGNATURE_BYTES = 32
"""Of HMAC-SHA256."""

MAX_IN_FLIGHT = 64
"""Requests of one kernel that may be unanswered at the same time; fifty under one gather is a case that must work."""

DEFAULT_TIMEOUT_S = 15.0
"""How long a cell waits for an answer. Longer than any handler's own limit, so that the host's reason arrives first."""

CANCEL = "bridge.cancel"
"""The one type the bridge itself answers to: payload `{"id": …}` ends that request's handler. It has no answer."""

ENV_ENDPOINT = "HOST_BRIDGE_ENDPOINT"
ENV_KEY = "HOST_BRIDGE_KEY"
ENV_GENERATION = "HOST_BRIDGE_GENERATION"

_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))

_MAX_ID_CHARS = 64
_MAX_TYPE_CHARS = 128


class ErrorCode:
    """What the host answers when it does not carry a request out."""

    BAD_FRAME = "bad_frame"
    BAD_PAYLOAD = "bad_payload"
    BAD_RESULT = "bad_result"
    BAD_VERSION = "bad_version"
    BUSY = "busy"
    CANCELLED = "cancelled"
    HANDLER_FAILED = "handler_failed"
    STALE_GENERATION = "stale_generation"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    UNKNOWN_TYPE = "unknown_type"


COMM_TARGET = "host.request"
"""The target under which requests travel by comm, where there is no bridge socket."""


class CompactType:
    """The requests of the compact skill, by the type they travel under."""

    STATUS = "compact.status"
    RUN = "compact.run"
    RECALL = "compact.recall"
    ENTRY = "compact.entry"


@dataclass(frozen=True)
class Request:
    """What a cell asks for. `id` pairs it with its answer and is never used twice."""

    id: str
    generation: int
    type: str
    payload: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the host did: `result`, or an error code with a sentence."""

    id: str
    generation: int
    result: Mapping[str, Any]
    code: str = ""
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return not self.code


@dataclass(frozen=True)
class Address:
    """Where a kernel's host listens, and what its frames are signed with."""

    endpoint: str
    key: bytes
    generation: int

    def to_environment(self) -> dict[str, str]:
        """The variables by which a kernel learns this address."""
        return {
            ENV_ENDPOINT: self.endpoint,
            ENV_KEY: self.key.hex(),
            ENV_GENERATION: str(self.generation),
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Address:
        """Read the address that the host put into the environment.

        Raises:
            BridgeUnavailable: a variable is missing or no host could have written it.
        """
        values = os.environ if environment is None else environment
        endpoint = values.get(ENV_ENDPOINT, "")
        if not endpoint:
            raise BridgeUnavailable(f"{ENV_ENDPOINT} is not set, so this kernel was not started by such a host")
        try:
            key, generation = bytes.fromhex(values.get(ENV_KEY, "")), int(values.get(ENV_GENERATION, ""))
        except ValueError:
            key, generation = b"", 0
        if not key or generation < 1:
            raise BridgeUnavailable(f"{ENV_KEY} or {ENV_GENERATION} is missing or damaged")
        return cls(endpoint, key, generation)


@lru_cache(maxsize=64)
def _mac(key: bytes) -> hmac.HMAC:
    """Preparing a key takes longer than signing a short body."""
    return hmac.new(key, digestmod=hashlib.sha256)


def sign(key: bytes, body: bytes) -> bytes:
    """The signature of a body."""
    mac = _mac(key).copy()
    mac.update(body)
    return mac.digest()


def pack_request(key: bytes, request: Request) -> bytes:
    """The frame of a request, ready to send.

    Raises:
        FrameError: the payload is not JSON, or the frame would be longer than `MAX_FRAME_BYTES`.
    """
    return _pack(
        key,
        request.id,
        {
            "v": VERSION,
            "id": request.id,
            "gen": request.generation,
            "type": request.type,
            "payload": request.payload,
        },
    )


def pack_answer(key: bytes, answer: Answer) -> bytes:
    """The frame of an answer, ready to send.

    Raises:
        FrameError: the result is not JSON, or the frame would be longer than `MAX_FRAME_BYTES`.
    """
    body: dict[str, Any] = {"v": VERSION, "id": answer.id, "gen": answer.generation}
    if answer.ok:
        body.update(status="ok", result=answer.result)
    else:
        body.update(status="error", error={"code": answer.code, "message": answer.message})
    return _pack(key, answer.id, body)


def unpack_request(key: bytes, frame: bytes) -> Request:
    """Check and read a request. Never raises anything but what is listed, whatever the bytes are.

    Raises:
        BadSignature: it was not signed with `key`.
        FrameError: it was, and still is not a request; `code` and `request_id` say what to answer.
    """
    body = _unpack(key, frame)
    request_id, generation = _head(body)
    request_type, payload = body.get("type"), body.get("payload")
    if not isinstance(request_type, str) or not 0 < len(request_type) <= _MAX_TYPE_CHARS:
        raise FrameError(ErrorCode.BAD_FRAME, "a request needs a type", request_id=request_id)
    if not isinstance(payload, dict):
        raise FrameError(ErrorCode.BAD_FRAME, "a request's payload is an object", request_id=request_id)
    return Request(request_id, generation, request_type, payload)


def unpack_answer(key: bytes, frame: bytes) -> Answer:
    """Check and read an answer. Never raises anything but what is listed, whatever the bytes are.

    Raises:
        BadSignature: it was not signed with `key`.
        FrameError: it was, and still is not an answer.
    """
    body = _unpack(key, frame)
    request_id, generation = _head(body)
    status, result, error = body.get("status"), body.get("result"), body.get("error")
    if status == "ok" and isinstance(result, dict):
        return Answer(request_id, generation, result)
    if status == "error" and isinstance(error, dict) and error.get("code"):
        return Answer(request_id, generation, {}, str(error["code"]), str(error.get("message", "")))
    raise FrameError(ErrorCode.BAD_FRAME, "an answer is ok with a result or an error", request_id=request_id)


def _pack(key: bytes, request_id: str, body: Mapping[str, Any]) -> bytes:
    try:
        data = _ENCODER.encode(body).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(ErrorCode.BAD_FRAME, f"not JSON: {error}", request_id=request_id) from None
    if len(data) + SIGNATURE_BYTES > MAX_FRAME_BYTES:
        raise FrameError(
            ErrorCode.TOO_LARGE,
            f"{len(data):,} bytes are more than the {MAX_FRAME_BYTES:,} that a frame may have; send less",
            request_id=request_id,
        )
    return sign(key, data) + data


def _unpack(key: bytes, frame: bytes) -> dict[str, Any]:
    signature, data = frame[:SIGNATURE_BYTES], frame[SIGNATURE_BYTES:]
    if len(frame) > MAX_FRAME_BYTES or not hmac.compare_digest(signature, sign(key, data)):
        raise BadSignature("the signature does not match")
    try:
        body: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise FrameError(ErrorCode.BAD_FRAME, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise FrameError(ErrorCode.BAD_FRAME, "the body is not an object")
    return body


def _head(body: Mapping[str, Any]) -> tuple[str, int]:
    request_id, generation = body.get("id"), body.get("gen")
    if not isinstance(request_id, str) or not 0 < len(request_id) <= _MAX_ID_CHARS:
        raise FrameError(ErrorCode.BAD_FRAME, "a frame needs an id")
    if body.get("v") != VERSION:
        raise FrameError(
            ErrorCode.BAD_VERSION,
            f"version {body.get('v')!r:.20} is not spoken here, version {VERSION} is",
            request_id=request_id,
        )
    if not isinstance(generation, int) or isinstance(generation, bool) or generation < 1:
        raise FrameError(ErrorCode.BAD_FRAME, "a frame needs a generation", request_id=request_id)
    return request_id, generation
