"""The kernel: started in a sandbox, asked one cell at a time, and never hanging.

The names are imported when they are first used: what a kernel's result or state looks like costs no Jupyter client.
"""

TYPE_CHECKING = False  # as in the root package

if TYPE_CHECKING:
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

_PLACES = {
    "kernel.kernel": ("Kernel", "SandboxInfo", "open_kernel"),
    "kernel.result": ("CellResult",),
    "kernel.snapshot": ("Skipped", "SnapshotReport"),
    "kernel.state": ("LivingName", "StateManifest"),
    "sandbox.policy": ("SandboxPolicy",),
    "settings.kernel": ("KernelSettings",),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name at its first use (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        place = next(place for place, names in _PLACES.items() if name in names)
        found = globals()[name] = getattr(import_module(f"selfcompact.{place}"), name)
        return found

    def __dir__() -> list[str]:
        """The public names."""
        return list(__all__)
