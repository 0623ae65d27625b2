"""The sandbox as any Jupyter client gets it: by a kernel spec that names the provisioner."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from .conftest import KERNEL_PYTHON


def manager(workspace: Path, **policy: Any) -> AsyncKernelManager:
    made = AsyncKernelManager(kernel_name="")
    config = {"policy": policy, "workspace": str(workspace)}
    made._kernel_spec = KernelSpec(
        argv=[KERNEL_PYTHON or sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="sandboxed",
        language="python",
        metadata={"kernel_provisioner": {"provisioner_name": "selfcompact", "config": config}},
    )
    return made


def left_behind() -> list[Path]:
    return list(Path(os.environ["XDG_RUNTIME_DIR"]).iterdir())


async def value(client: Any, code: str) -> str:
    shown: list[str] = []

    def hook(message: Any) -> None:
        if message["msg_type"] == "execute_result":
            shown.append(message["content"]["data"]["text/plain"])

    await client.execute_interactive(code, output_hook=hook, timeout=30)
    return shown[0] if shown else ""


@pytest.mark.parametrize("kind", ["bwrap", "none"])
async def test_a_plain_jupyter_client_starts_interrupts_restarts_and_stops_a_sandboxed_kernel(
    workspace: Path, kind: str
) -> None:
    made = manager(workspace, kind=kind)
    await made.start_kernel(cwd=str(workspace))
    client = made.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=30)
        assert await value(client, "__import__('os').getcwd()") == repr(str(workspace))
        assert (await value(client, "len([n for n in __import__('os').listdir('/proc') if n.isdigit()]) < 10")) == str(
            kind == "bwrap"
        )
        assert await made.is_alive()
        await made.interrupt_kernel()
        await made.restart_kernel(now=True)
        await client.wait_for_ready(timeout=30)
        assert await value(client, "'x' in globals()") == "False"
    finally:
        client.stop_channels()
        await made.shutdown_kernel(now=True)
    assert not await made.is_alive()
    assert left_behind() == []
