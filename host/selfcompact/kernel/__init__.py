"""The kernel: started in a sandbox, asked one cell at a time, and never hanging."""

from selfcompact.kernel.kernel import Kernel, SandboxInfo, open_kernel
from selfcompact.kernel.result import CellResult
from selfcompact.kernel.snapshot import Skipped, SnapshotReport
from selfcompact.kernel.state import LivingName, StateManifest
from selfcompact.sandbox.policy import SandboxPolicy
from selfcompact.settings.kernel import KernelSettings

__all__ = [
    "CellResult",
    "Kernel",
    "KernelSettings",
    "LivingName",
    "SandboxInfo",
    "SandboxPolicy",
    "Skipped",
    "SnapshotReport",
    "StateManifest",
    "open_kernel",
]
