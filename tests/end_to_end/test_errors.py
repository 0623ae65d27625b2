"""Errors of the block in which a session is open."""

from __future__ import annotations

import pytest

import selfcompact as sc
from selfcompact.errors import AuthenticationFailed

from .conftest import OpenSession


async def test_an_error_of_the_block_comes_out_as_itself(opened: OpenSession) -> None:
    """A program writes `except ModelError` round the block; a group round the error would pass it by."""
    cause = KeyError("why")
    with pytest.raises(ValueError, match="mine") as caught:
        async with opened([sc.say("x")]):
            raise ValueError("mine") from cause
    assert caught.value.__cause__ is cause


async def test_a_failed_runs_error_can_be_caught_outside_of_the_block(opened: OpenSession) -> None:
    with pytest.raises(AuthenticationFailed, match="no key"):
        async with opened([sc.fail("no key", status=401)]) as session:
            (await session.prompt("go")).raise_for_status()


async def test_several_errors_stay_a_group(opened: OpenSession) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with opened([sc.say("x")]):
            raise ExceptionGroup("two", [ValueError("one"), ValueError("other")])
    flat = caught.value
    while len(flat.exceptions) == 1 and isinstance(flat.exceptions[0], ExceptionGroup):
        flat = flat.exceptions[0]
    assert [str(error) for error in flat.exceptions] == ["one", "other"]
