"""The frames: what is packed comes out again, and nothing else is let through."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_bridge.wire.errors import BadSignature, BridgeUnavailable, FrameError
from host_bridge.wire.protocol import (
    MAX_FRAME_BYTES,
    Address,
    Answer,
    ErrorCode,
    Request,
    pack_answer,
    pack_request,
    sign,
    unpack_answer,
    unpack_request,
)

KEY = b"k" * 32
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)


def signed(body: Any) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return sign(KEY, data) + data


@given(st.text(min_size=1, max_size=40), st.integers(1, 10**6), st.text(min_size=1, max_size=40), OBJECTS)
def test_a_request_comes_out_as_it_went_in(
    request_id: str, generation: int, kind: str, payload: dict[str, Any]
) -> None:
    request = Request(request_id, generation, kind, payload)
    assert unpack_request(KEY, pack_request(KEY, request)) == request


@given(OBJECTS)
def test_an_answer_comes_out_as_it_went_in(result: dict[str, Any]) -> None:
    answer = Answer("i", 1, result)
    assert unpack_answer(KEY, pack_answer(KEY, answer)) == answer
    refusal = Answer("i", 1, {}, ErrorCode.BUSY, "later")
    assert unpack_answer(KEY, pack_answer(KEY, refusal)) == refusal


@given(st.binary(max_size=300))
def test_noise_is_a_bad_signature_and_nothing_else(frame: bytes) -> None:
    for unpack in (unpack_request, unpack_answer):
        with pytest.raises(BadSignature):
            unpack(KEY, frame)


@given(st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_signed_noise_is_a_frame_error_and_nothing_else(data: bytes) -> None:
    for unpack in (unpack_request, unpack_answer):
        with pytest.raises(FrameError):
            unpack(KEY, signed(data))


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "v": st.just(1) | JSON,
            "id": st.text(max_size=70) | JSON,
            "gen": st.integers() | JSON,
            "type": st.text(max_size=10) | JSON,
            "payload": OBJECTS | JSON,
            "status": st.sampled_from(["ok", "error"]) | JSON,
            "result": OBJECTS | JSON,
            "error": OBJECTS | JSON,
        },
    )
)
def test_nearly_right_frames_are_read_or_refused_and_never_crash(body: dict[str, Any]) -> None:
    for unpack in (unpack_request, unpack_answer):
        with contextlib.suppress(FrameError):
            unpack(KEY, signed(body))


def test_a_frame_that_is_cut_anywhere_is_refused() -> None:
    frame = pack_request(KEY, Request("i", 1, "t", {"a": 1}))
    for length in range(len(frame)):
        with pytest.raises(BadSignature):
            unpack_request(KEY, frame[:length])
        with pytest.raises(BadSignature):
            unpack_request(KEY, frame[length + 1 :])


def test_a_frame_of_another_key_is_refused() -> None:
    with pytest.raises(BadSignature):
        unpack_request(b"other", pack_request(KEY, Request("i", 1, "t", {})))


def test_an_unknown_version_is_refused_by_name() -> None:
    body = {"v": 2, "id": "i", "gen": 1, "type": "t", "payload": {}}
    with pytest.raises(FrameError, match="version 2") as caught:
        unpack_request(KEY, signed(body))
    assert (caught.value.code, caught.value.request_id) == (ErrorCode.BAD_VERSION, "i")


@pytest.mark.parametrize("payload", [{"a": object()}, {"a": float("nan")}, {"a": b"bytes"}])
def test_what_is_no_json_is_not_packed(payload: dict[str, Any]) -> None:
    with pytest.raises(FrameError, match="not JSON"):
        pack_request(KEY, Request("i", 1, "t", payload))


def test_what_is_too_long_is_not_packed_and_the_sentence_says_so() -> None:
    with pytest.raises(FrameError, match="send less") as caught:
        pack_request(KEY, Request("i", 1, "t", {"a": "x" * MAX_FRAME_BYTES}))
    assert caught.value.code == ErrorCode.TOO_LARGE


def test_a_deeply_nested_body_is_refused_without_a_crash() -> None:
    with pytest.raises(FrameError):
        unpack_request(KEY, signed(b"[" * 100_000))


def test_an_address_comes_through_the_environment() -> None:
    address = Address("ipc:///x", KEY, 3)
    assert Address.from_environment(address.to_environment()) == address


@pytest.mark.parametrize(
    "change",
    [{"HOST_BRIDGE_ENDPOINT": ""}, {"HOST_BRIDGE_KEY": "zz"}, {"HOST_BRIDGE_KEY": ""}, {"HOST_BRIDGE_GENERATION": "0"}],
)
def test_a_damaged_address_means_that_no_host_is_there(change: dict[str, str]) -> None:
    with pytest.raises(BridgeUnavailable):
        Address.from_environment({**Address("ipc:///x", KEY, 3).to_environment(), **change})
