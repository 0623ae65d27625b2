"""Every error a caller can meet, sorted by the boundary where the failure crossed.

```
SelfcompactError
├── UsageError                  the caller's input is wrong; the command line ends with exit code 2
│   ├── SettingsError           a settings file, variable or option
│   ├── ScriptError             a script for the scripted model
│   ├── WorkspaceError          the workspace is missing or unusable
│   ├── SessionFileError        a session file cannot be read or written
│   └── SandboxUnavailable      the sandbox asked for cannot be had on this machine
├── KernelError
│   ├── KernelStartError        a stage of the start failed or took too long
│   ├── KernelDied              the kernel's process ended by itself
│   └── KernelClosed            you closed it
├── ModelError                  the provider answered with an error, or not at all
│   ├── ContextOverflow         the request is longer than the context window
│   ├── AuthenticationFailed    401: the key is missing or wrong
│   ├── PermissionDenied        403: the key is right but may not do this
│   ├── RateLimited             429: wait and try again
│   ├── ProviderUnavailable     5xx, or no connection
│   ├── ModelTimeout            nothing arrived for too long
│   ├── Refused                 the provider's filter or the model declined
│   ├── ImageRefused            the provider cannot take an image of the request
│   └── ScriptExhausted         a scripted model has no step left
├── CompactionError
│   ├── SummaryRejected         the reply broke the output contract
│   ├── CompactionFailed        something else broke while it was made
│   ├── NotBeneficial           the compaction would not have made the context smaller
│   └── CompactionLimit         too many compactions without a successful response between them
└── SessionError
    ├── SessionBusy             a run is going on; steer it, or wait
    ├── InvalidHistory          a history that providers refuse was about to be sent
    └── SessionClosed           you closed it
```

Errors of the wire between kernel and host are in `host_bridge.wire.errors`, which the kernel side shares.
Callers match on the class and its attributes, never on the text. Each text ends with what to do next.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in the root package

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def described(error: BaseException) -> str:
    """A foreign error in words: its type, and what it says where it says something."""
    said = str(error).strip()
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class SelfcompactError(Exception):
    """The base of every error this package raises on purpose."""


class UsageError(SelfcompactError):
    """The caller's input is wrong. Nothing was changed or written."""


class SettingsError(UsageError):
    """A setting cannot be read or has a value that is not allowed.

    `where` names the source (a file, a variable, an option), `key` the setting, both as the user wrote them.
    """

    def __init__(self, where: str, problem: str, *, key: str | None = None) -> None:
        self.where, self.key, self.problem = where, key, problem
        at = f"{where}: {key}" if key else where
        super().__init__(f"{at}: {problem}")


class ScriptError(UsageError):
    """A script for the scripted model cannot be read or has a step that is not known."""

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"{where}: {problem}")


class WorkspaceError(UsageError):
    """The workspace is missing, is not a directory, or may not be used."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"workspace {path}: {problem}")


class SessionFileError(UsageError):
    """A session file cannot be read or written. `line` counts from 1."""

    def __init__(self, path: Path, problem: str, *, line: int | None = None) -> None:
        self.path, self.line, self.problem = path, line, problem
        at = f"session file {path}, line {line}" if line else f"session file {path}"
        super().__init__(f"{at}: {problem}")


class SandboxUnavailable(UsageError):
    """The sandbox asked for cannot be had here. `reason` says why, `remedy` what to install or switch."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason, self.remedy = reason, remedy
        super().__init__(f"no sandbox: {reason}; {remedy}")


class KernelError(SelfcompactError):
    """Something about the kernel failed."""


class KernelStartError(KernelError):
    """The kernel did not become ready. `stage` says how far it came, `output_tail` what it printed last."""

    def __init__(self, stage: str, problem: str, output_tail: str = "") -> None:
        self.stage, self.problem, self.output_tail = stage, problem, output_tail
        tail = f"; its last output was:\n{output_tail}" if output_tail else ""
        super().__init__(f"the kernel did not start ({stage}): {problem}{tail}")


class KernelDied(KernelError):
    """The kernel's process ended by itself. Its names are gone; the next cell gets a fresh kernel.

    `exit_code` and `signal` are as the operating system reports them, None where it does not apply;
    `generation` is the number of the kernel that died, counted from 1.
    """

    def __init__(
        self, reason: str, *, exit_code: int | None = None, signal: int | None = None, generation: int = 0
    ) -> None:
        self.reason, self.exit_code, self.signal, self.generation = reason, exit_code, signal, generation
        super().__init__(f"the kernel died: {reason}; its variables are gone, the next cell gets a new kernel")


class KernelClosed(KernelError):
    """The kernel was closed by its owner and cannot run anything any more."""

    def __init__(self) -> None:
        super().__init__("this kernel is closed; open another one")


class ModelError(SelfcompactError):
    """The provider answered with an error. `status` is the HTTP status where there was one; `provider_message`
    is the provider's own text, unchanged."""

    transient = False
    """Whether the same request may succeed when it is sent again."""

    def __init__(self, provider_message: str, *, status: int | None = None) -> None:
        self.provider_message, self.status = provider_message, status
        super().__init__(f"{provider_message} (status {status})" if status else provider_message)


class ContextOverflow(ModelError):
    """The request is longer than the model's context window."""


class AuthenticationFailed(ModelError):
    """401: the key is missing or wrong."""


class PermissionDenied(ModelError):
    """403: the key is right but may not do this."""


class RateLimited(ModelError):
    """429. `retry_after_s` is what the provider asked for, in seconds, or None."""

    transient = True

    def __init__(self, provider_message: str, *, status: int | None = 429, retry_after_s: float | None = None) -> None:
        super().__init__(provider_message, status=status)
        self.retry_after_s = retry_after_s


class ProviderUnavailable(ModelError):
    """5xx, or no connection."""

    transient = True


class ModelTimeout(ModelError):
    """Nothing arrived from the provider for `idle_s` seconds."""

    transient = True

    def __init__(self, idle_s: float) -> None:
        super().__init__(f"nothing arrived from the model for {idle_s:g} s")
        self.idle_s = idle_s


class Refused(ModelError):
    """The provider's filter or the model itself declined to answer."""


class ImageRefused(ModelError):
    """The provider cannot take an image of the request; without it, or with another one, it would answer."""


class ScriptExhausted(ModelError):
    """A scripted model was asked for a response after its last step."""


class CompactionError(SelfcompactError):
    """A compaction failed; the history is unchanged."""

    code = "failed"


class SummaryRejected(CompactionError):
    """The summariser's reply broke the output contract; `violations` name how, in sentences."""

    code = "summary_rejected"

    def __init__(self, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("the summary was rejected: " + "; ".join(self.violations))


class CompactionFailed(CompactionError):
    """Something broke that is none of our errors: a custom summariser, say. `__cause__` is what it raised."""

    def __init__(self, cause: Exception) -> None:
        self.__cause__ = cause
        super().__init__(f"the compaction failed: {described(cause)}; the history is as it was")


class NotBeneficial(CompactionError):
    """The new context would not be smaller than the old one; both figures are tokens."""

    code = "not_beneficial"

    def __init__(self, tokens_before: int, tokens_after: int, largest: str = "") -> None:
        self.tokens_before, self.tokens_after, self.largest = tokens_before, tokens_after, largest
        hint = f"; the largest thing that would be kept is {largest}" if largest else ""
        super().__init__(f"compaction would not help ({tokens_before:,} tokens before, {tokens_after:,} after){hint}")


class CompactionLimit(CompactionError):
    """`limit` compactions ran in a row without one successful response of the model between them."""

    code = "limit"

    def __init__(self, limit: int, provider_message: str = "") -> None:
        self.limit, self.provider_message = limit, provider_message
        said = f"; the provider said: {provider_message}" if provider_message else ""
        super().__init__(f"{limit} compactions in a row did not make the context fit{said}")


class SessionError(SelfcompactError):
    """The session cannot do this now."""


class SessionBusy(SessionError):
    """A run is going on."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        super().__init__(f"the session is busy ({doing}); wait for it, or abort() it first")


class InvalidHistory(SessionError):
    """A history that providers refuse was about to be sent; nothing was. This is a fault of selfcompact."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("the history is not valid: " + "; ".join(self.problems) + "; please report this")


class SessionClosed(SessionError):
    """The session was closed by its owner."""

    def __init__(self) -> None:
        super().__init__("this session is closed; open it again with open_session(session_file=…)")
