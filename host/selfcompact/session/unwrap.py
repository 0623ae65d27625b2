"""One error comes out as itself.

What is opened for a session lives in task groups, and these wrap whatever leaves their block. A program that writes
`except ModelError` round `async with open_session(…)` must not need to know that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unwrap_group() -> Iterator[None]:
    """Let a group that holds a single error out as that error, with its cause; other groups pass as they are."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, BaseExceptionGroup):
            raise
        raise error from error.__cause__
