"""The memory transport keeps the promises of the real one."""

from __future__ import annotations

import anyio
import pytest

from host_bridge.host.memory import memory_bridge
from host_bridge.host.server import Dispatcher
from host_bridge.wire.errors import BridgeTimeout, BridgeUnavailable, HostRequestError

from .conftest import Anything


async def test_a_request_goes_through_frames_and_dispatcher(dispatcher: Dispatcher) -> None:
    async with memory_bridge(dispatcher) as bridge:
        assert await bridge.host_request("echo", {"a": 1}) == {"a": 1}
        with pytest.raises(HostRequestError) as caught:
            await bridge.host_request("nothing", {})
        assert caught.value.code == "unknown_type"
        assert (bridge.stats.received, bridge.stats.errors) == (2, 1)


async def test_a_hanging_handler_is_a_time_out_and_leaving_ends_it(dispatcher: Dispatcher) -> None:
    async def hang(_payload: Anything) -> dict[str, object]:
        await anyio.sleep_forever()
        raise AssertionError

    dispatcher.register("hang", Anything, hang)
    async with memory_bridge(dispatcher) as bridge:
        with pytest.raises(BridgeTimeout):
            await bridge.host_request("hang", {}, timeout_s=0.05)
    with pytest.raises(BridgeUnavailable):
        await bridge.host_request("echo", {})
