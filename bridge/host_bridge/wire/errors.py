"""What can go wrong between a cell and its host.

```
BridgeError                a RuntimeError
├── BridgeUnavailable      no host answers: none was named, none listens, or it went away
│   └── BridgeTimeout      a host may be there, but its answer did not come in time
├── HostRequestError       the host answered with an error; `code` says which
├── FrameError             bytes that are not a valid frame, or a value that does not fit into one
└── BadSignature           a frame that was not signed with this kernel's key
```

All are RuntimeErrors: that is what a call of a skill raises in other hosts, and what code written for those catches.
Callers match on the class and on `code`, never on the text. Runs inside the kernel: standard library only.
"""

from __future__ import annotations


class BridgeError(RuntimeError):
    """The base of every error of the bridge."""


class BridgeUnavailable(BridgeError):
    """No host answers. Nothing is known to have happened; carry on without it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"no host answers this kernel: {reason}; carry on without it")


class BridgeTimeout(BridgeUnavailable):
    """The host's answer did not come within `timeout_s` seconds. The request may or may not have been carried out."""

    def __init__(self, request_type: str, timeout_s: float) -> None:
        self.request_type, self.timeout_s = request_type, timeout_s
        super().__init__(f"{request_type} had no answer within {timeout_s:g} s")


class HostRequestError(BridgeError):
    """The host answered with an error. `code` is one of `host_bridge.wire.protocol.ErrorCode`."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(f"{message} ({code})")


class FrameError(BridgeError):
    """Bytes that are not a valid frame, or a value that does not fit into one.

    `code` is the error code that a host answers with; `request_id` names the request when that much could be read.
    """

    def __init__(self, code: str, message: str, *, request_id: str = "") -> None:
        self.code, self.message, self.request_id = code, message, request_id
        super().__init__(message)


class BadSignature(BridgeError):
    """A frame that was not signed with this kernel's key. It is dropped and counted, and never answered."""
