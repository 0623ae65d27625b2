"""The wire protocol, read under bounds: against bytes of every kind, and against the library that everybody uses."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_bridge.host import zmtp
from host_bridge.host.zmtp import Bounds, Command, Malformed, PassedOver, Reader

BOUNDS = Bounds(message_bytes=400, frames=3)

frames = st.lists(st.binary(max_size=300), min_size=1, max_size=5)


def within(parts: list[bytes]) -> bool:
    return len(parts) <= BOUNDS.frames and sum(map(len, parts)) <= BOUNDS.message_bytes


def read(data: bytes, cuts: list[int]) -> tuple[list[list[bytes] | Command | PassedOver], Reader]:
    """What a reader makes of bytes that come in pieces."""
    reader = Reader(BOUNDS)
    found: list[list[bytes] | Command | PassedOver] = []
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for begin, end in itertools.pairwise(places):
        reader.feed(data[begin:end])
        while (item := reader.take()) is not None:
            found.append(item)
    return found, reader


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 2000), max_size=8))
def test_messages_come_out_as_they_went_in_and_too_long_ones_are_passed_over(
    messages: list[list[bytes]], cuts: list[int]
) -> None:
    data = zmtp.GREETING + zmtp.ready(b"DEALER") + b"".join(map(zmtp.message, messages))
    (ready, *found), _ = read(data, cuts)
    assert isinstance(ready, Command)
    assert ready.name == b"READY"
    assert found == [parts if within(parts) else PassedOver(len(parts), sum(map(len, parts))) for parts in messages]


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=4))
def test_bytes_that_are_no_zmtp_are_refused_or_wait_for_more_and_nothing_else(noise: bytes, cuts: list[int]) -> None:
    for data in (noise, zmtp.GREETING + noise, zmtp.GREETING + zmtp.ready(b"PUB") + noise):
        try:
            found, reader = read(data, cuts)
        except Malformed:
            continue
        assert all(isinstance(item, Command | PassedOver | list) for item in found)
        held = sum(map(len, reader._parts)) + len(reader._body or b"")
        assert held <= BOUNDS.message_bytes


def test_a_frame_that_claims_to_be_endless_is_never_kept() -> None:
    reader = Reader(BOUNDS)
    reader.feed(zmtp.GREETING + b"\x02" + (2**62).to_bytes(8, "big"))
    for _ in range(1000):
        reader.feed(b"x" * 65536)
        assert reader.take() is None
        assert len(reader._body or b"") == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 64,
        b"GET / HTTP/1.1\r\n",
        zmtp.GREETING[:10] + b"\x02" + zmtp.GREETING[11:],
        zmtp.GREETING.replace(b"NULL", b"CURV"),
        zmtp.GREETING + b"\x08\x01x",
        zmtp.GREETING + b"\x05\x01x",
        zmtp.GREETING + b"\x04\x00",
        zmtp.GREETING + b"\x04\x03\x09ab",
        zmtp.GREETING + zmtp.frame(b"\x01x" * 4000, command=True),
        zmtp.GREETING + b"\x01\x01x" + zmtp.ready(b"PUB"),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data, [])
