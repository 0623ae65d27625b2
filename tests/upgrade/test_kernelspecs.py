"""Kernel specs of every release start a kernel in the sandbox, through nothing but Jupyter's own client."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from tests.upgrade.conftest import DATA

SPECS = sorted(str(path.parent.relative_to(DATA)) for path in DATA.glob("*/kernels/*/kernel.json"))

LOOK = """
import json, os, resource
def writes():
    try:
        open('made', 'w').close()
    except OSError:
        return False
    return True
json.dumps({
    'processes': len([name for name in os.listdir('/proc') if name.isdigit()]),
    'writes': writes(), 'said_by': os.environ.get('SAID_BY'), 'canary': os.environ.get('UPGRADE_CANARY'),
    'cwd': os.getcwd(), 'home': os.path.expanduser('~'), 'interfaces': os.listdir('/sys/class/net') if
    os.path.isdir('/sys/class/net') else [], 'tmp': os.statvfs('/tmp').f_blocks * os.statvfs('/tmp').f_frsize,
})
"""


@asynccontextmanager
async def started(spec: str, workspace: Path, folder: Path) -> AsyncIterator[Any]:
    """A client of the kernel that an installed spec describes."""
    name = Path(spec).name
    shutil.copytree(DATA / spec, folder / name)
    specs = KernelSpecManager(kernel_dirs=[str(folder)])
    manager = AsyncKernelManager(kernel_name=name, kernel_spec_manager=specs)
    await manager.start_kernel(cwd=str(workspace))
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=30)
        yield client
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)
        assert not await manager.is_alive()


@pytest.mark.parametrize("spec", SPECS)
async def test_a_kernel_starts_in_the_sandbox_that_the_spec_describes(
    spec: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPGRADE_CANARY", "passed on")
    config = json.loads((DATA / spec / "kernel.json").read_text())["metadata"]["kernel_provisioner"].get("config", {})
    shown: list[str] = []

    def hook(message: Any) -> None:
        if message["msg_type"] == "execute_result":
            shown.append(message["content"]["data"]["text/plain"])

    async with started(spec, workspace, tmp_path / "kernels") as client:
        await client.execute_interactive(LOOK, output_hook=hook, timeout=30)
    found = json.loads(shown[0].strip("'"))
    assert found["processes"] < 10
    assert found["cwd"] == str(workspace)
    assert found["home"] == "/home/agent"
    policy = config.get("policy", {})
    assert found["writes"] == (policy.get("workspace") != "read-only")
    assert found["said_by"] == config.get("extra_environment", {}).get("SAID_BY")
    assert found["canary"] == ("passed on" if "UPGRADE_CANARY" in policy.get("env", ()) else None)
    assert found["tmp"] == (64 * 2**20 if policy else 2**30)
