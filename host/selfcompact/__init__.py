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

from selfcompact.errors import (
    AuthenticationFailed,
    CompactionError,
    CompactionLimit,
    ContextOverflow,
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
from selfcompact.events import (
    AgentCallableChanged,
    AgentEnd,
    AgentStart,
    AutoCompactionDisarmed,
    CompactionEnd,
    CompactionProgress,
    CompactionResult,
    CompactionScheduled,
    CompactionStart,
    Event,
    KernelRestarted,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelChanged,
    RequestDropped,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
    WarningRaised,
)
from selfcompact.messages import Message
from selfcompact.models.protocol import Model
from selfcompact.models.scripted import ScriptedModel, Step, cell, fail, overflow, say
from selfcompact.session.compactor import CompactionOutcome
from selfcompact.session.hooks import CompactionPreparation, Hooks, SuppliedSummary, Veto
from selfcompact.session.open import open_session
from selfcompact.session.run import RunResult
from selfcompact.session.session import Session
from selfcompact.session.status import ContextStatus
from selfcompact.session.stream import EventStream
from selfcompact.settings.load import load_settings
from selfcompact.settings.schema import Settings

__all__ = [
    "AgentCallableChanged",
    "AgentEnd",
    "AgentStart",
    "AuthenticationFailed",
    "AutoCompactionDisarmed",
    "CompactionEnd",
    "CompactionError",
    "CompactionLimit",
    "CompactionOutcome",
    "CompactionPreparation",
    "CompactionProgress",
    "CompactionResult",
    "CompactionScheduled",
    "CompactionStart",
    "ContextOverflow",
    "ContextStatus",
    "Event",
    "EventStream",
    "Hooks",
    "InvalidHistory",
    "KernelClosed",
    "KernelDied",
    "KernelError",
    "KernelRestarted",
    "KernelStartError",
    "Message",
    "MessageEnd",
    "MessageStart",
    "MessageUpdate",
    "Model",
    "ModelChanged",
    "ModelError",
    "ModelTimeout",
    "NotBeneficial",
    "PermissionDenied",
    "ProviderUnavailable",
    "RateLimited",
    "Refused",
    "RequestDropped",
    "RetryScheduled",
    "RunResult",
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
    "SummaryRejected",
    "SuppliedSummary",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "TurnEnd",
    "TurnStart",
    "UsageError",
    "Veto",
    "WarningRaised",
    "WorkspaceError",
    "cell",
    "fail",
    "load_settings",
    "open_session",
    "overflow",
    "say",
]
