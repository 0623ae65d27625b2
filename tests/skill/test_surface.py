"""What the skill shows to a model and to a type checker."""

from __future__ import annotations

import asyncio
import gc
import pydoc
import typing
import warnings

import pytest

import compact
from host_bridge.wire.errors import BridgeUnavailable


def test_the_public_names_are_sorted_and_all_there() -> None:
    assert compact.__all__ == sorted(compact.__all__)
    public = {name for name in vars(compact) if not name.startswith("_")}
    assert public == set(compact.__all__)


def test_help_tells_a_model_how_to_call_it() -> None:
    text = pydoc.plain(pydoc.render_doc(compact))
    assert "await compact.run(" in text
    assert "await compact.status()" in text
    assert "TypeError" in (compact.run.__doc__ or "")


def test_a_status_has_the_four_keys_always_and_more_at_times() -> None:
    required = typing.get_type_hints(compact.Status).keys()
    assert {"tokens", "context_window", "percent", "scheduled", "estimated_tokens"} <= required
    assert compact.Status.__required_keys__ >= {"tokens", "context_window", "percent", "scheduled"}


def test_a_wrong_type_is_an_error_when_it_is_called() -> None:
    with pytest.raises(TypeError, match="not int"):
        compact.run(3)  # type: ignore[arg-type, unused-coroutine]  # that is the point


def test_a_call_that_is_dropped_warns_with_what_to_write() -> None:
    def drop() -> None:
        compact.run()  # type: ignore[unused-coroutine]  # the mistake itself
        gc.collect()

    with pytest.warns(RuntimeWarning, match=r"Write: await compact.run\(\)"):
        drop()


def test_a_closed_or_shown_call_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compact.run().close()
        assert "Write: await compact.run()" in repr(compact.run())
        gc.collect()


async def test_a_call_is_a_coroutine_for_everything_in_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOST_BRIDGE_ENDPOINT", raising=False)
    for use in (
        lambda: asyncio.create_task(compact.run()),
        lambda: asyncio.wait_for(compact.status(), 5),
        lambda: asyncio.gather(compact.status()),
        compact.status,
    ):
        with pytest.raises(BridgeUnavailable):
            await use()
