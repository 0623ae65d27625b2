"""The signals that end a program politely, SIGTERM, and SIGHUP when its terminal goes, are treated as Ctrl-C is.

By default they end Python at once: a cell's children, the sandbox and the private directory would be left to others.
"""

from __future__ import annotations

import signal
from types import FrameType

_ended_by: list[int] = []


def treat_as_interrupts() -> None:
    """From now on, have both signals interrupt as Ctrl-C does. One that is ignored, as under nohup, stays so."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def ended_by() -> int | None:
    """The signal that asked for an end; None when none did."""
    return _ended_by[0] if _ended_by else None


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _ended_by.append(number)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what it puts into the background like that
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)
