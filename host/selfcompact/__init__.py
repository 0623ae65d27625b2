"""selfcompact: an agent host in which the agent can have its own context compacted.

A session ties a model to a persistent, sandboxed IPython kernel. From any cell the agent may `await compact.status()`
and `await compact.run("keep …")`; the host compacts at the turn boundary and the agent goes on, with every kernel
variable still alive. A whole program, with a scripted model in the place of a real one:

```python
import asyncio
import selfcompact as sc

async def main():
    model = sc.ScriptedModel([
        sc.cell("squares = [n * n for n in range(10)]\\nsum(squares)"),
        sc.cell("await compact.status()"),
        sc.say("The sum of the squares is 285."),
    ])
    async with sc.open_session(model, workspace=".") as session:
        result = await session.prompt("Add up the squares of 0 to 9.")
        print(result.status, result.text)
        print(session.status().estimated_tokens, "tokens in context")

asyncio.run(main())
```
"""

TYPE_CHECKING = False
# Type checkers take it for true by its name; the one of `typing` takes longer to import than a bare interpreter may.

if TYPE_CHECKING:
    from selfcompact import errors, events
    from selfcompact.compaction.summary.request import SummaryRequest
    from selfcompact.compaction.summary.summarisers import (
        ModelSummariser,
        OfflineSummariser,
        Summariser,
        SummaryReply,
        TextSummariser,
    )
    from selfcompact.errors import (
        AuthenticationFailed,
        CompactionError,
        CompactionFailed,
        CompactionLimit,
        ContextOverflow,
        ImageRefused,
        InvalidHistory,
        KernelClosed,
        KernelDied,
        KernelError,
        KernelStartError,
        ModelError,
        ModelTimeout,
        NotBeneficial,
        PermissionDenied,
        ProviderUnavailable,
        RateLimited,
        Refused,
        SandboxUnavailable,
        ScriptError,
        ScriptExhausted,
        SelfcompactError,
        SessionBusy,
        SessionClosed,
        SessionError,
        SessionFileError,
        SettingsError,
        SummaryRejected,
        UsageError,
        WorkspaceError,
    )
    from selfcompact.messages import Message
    from selfcompact.models.protocol import Model
    from selfcompact.models.registry import make_model
    from selfcompact.models.scripted import ScriptedModel, Step, cell, fail, overflow, say
    from selfcompact.sandbox.policy import SandboxPolicy
    from selfcompact.session.compactor import CompactionOutcome
    from selfcompact.session.hooks import CompactionPreparation, Hooks, SuppliedSummary, Veto
    from selfcompact.session.open import open_session
    from selfcompact.session.run import RunResult
    from selfcompact.session.session import Session
    from selfcompact.session.status import ContextStatus
    from selfcompact.session.stream import EventStream
    from selfcompact.settings.kernel import KernelSettings
    from selfcompact.settings.load import load_settings
    from selfcompact.settings.schema import Settings

__all__ = [
    "AuthenticationFailed",
    "CompactionError",
    "CompactionFailed",
    "CompactionLimit",
    "CompactionOutcome",
    "CompactionPreparation",
    "ContextOverflow",
    "ContextStatus",
    "EventStream",
    "Hooks",
    "ImageRefused",
    "InvalidHistory",
    "KernelClosed",
    "KernelDied",
    "KernelError",
    "KernelSettings",
    "KernelStartError",
    "Message",
    "Model",
    "ModelError",
    "ModelSummariser",
    "ModelTimeout",
    "NotBeneficial",
    "OfflineSummariser",
    "PermissionDenied",
    "ProviderUnavailable",
    "RateLimited",
    "Refused",
    "RunResult",
    "SandboxPolicy",
    "SandboxUnavailable",
    "ScriptError",
    "ScriptExhausted",
    "ScriptedModel",
    "SelfcompactError",
    "Session",
    "SessionBusy",
    "SessionClosed",
    "SessionError",
    "SessionFileError",
    "Settings",
    "SettingsError",
    "Step",
    "Summariser",
    "SummaryRejected",
    "SummaryReply",
    "SummaryRequest",
    "SuppliedSummary",
    "TextSummariser",
    "UsageError",
    "Veto",
    "WorkspaceError",
    "cell",
    "errors",
    "events",
    "fail",
    "load_settings",
    "make_model",
    "open_session",
    "overflow",
    "say",
]

__version__ = "0.1.0"

_PLACES = {
    "": ("errors", "events"),
    "compaction.summary.request": ("SummaryRequest",),
    "compaction.summary.summarisers": (
        "ModelSummariser",
        "OfflineSummariser",
        "Summariser",
        "SummaryReply",
        "TextSummariser",
    ),
    "errors": (
        "AuthenticationFailed",
        "CompactionError",
        "CompactionFailed",
        "CompactionLimit",
        "ContextOverflow",
        "ImageRefused",
        "InvalidHistory",
        "KernelClosed",
        "KernelDied",
        "KernelError",
        "KernelStartError",
        "ModelError",
        "ModelTimeout",
        "NotBeneficial",
        "PermissionDenied",
        "ProviderUnavailable",
        "RateLimited",
        "Refused",
        "SandboxUnavailable",
        "ScriptError",
        "ScriptExhausted",
        "SelfcompactError",
        "SessionBusy",
        "SessionClosed",
        "SessionError",
        "SessionFileError",
        "SettingsError",
        "SummaryRejected",
        "UsageError",
        "WorkspaceError",
    ),
    "messages": ("Message",),
    "models.protocol": ("Model",),
    "models.registry": ("make_model",),
    "models.scripted": (
        "ScriptedModel",
        "Step",
        "cell",
        "fail",
        "overflow",
        "say",
    ),
    "sandbox.policy": ("SandboxPolicy",),
    "session.compactor": ("CompactionOutcome",),
    "session.hooks": (
        "CompactionPreparation",
        "Hooks",
        "SuppliedSummary",
        "Veto",
    ),
    "session.open": ("open_session",),
    "session.run": ("RunResult",),
    "session.session": ("Session",),
    "session.status": ("ContextStatus",),
    "session.stream": ("EventStream",),
    "settings.kernel": ("KernelSettings",),
    "settings.load": ("load_settings",),
    "settings.schema": ("Settings",),
}
"""Where each name is; a module is imported when one of its names is first used. `""`: a module of this package."""

if not TYPE_CHECKING:  # a checker that saw `__getattr__` would take every misspelt name for Any

    def __getattr__(name: str) -> object:
        """Import a public name at its first use (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        place = next(place for place, names in _PLACES.items() if name in names)
        found = getattr(import_module(f"{__name__}.{place}"), name) if place else import_module(f"{__name__}.{name}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """The public names."""
        return list(__all__)
