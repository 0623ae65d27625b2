"""A call that has not been sent yet, and that says so when somebody forgets to await it.

`compact.run()` without `await` is the commonest mistake in a cell. A plain coroutine would show itself as
`<coroutine object …>`, or complain much later, when it is collected. This one is a coroutine in every respect, so that
`asyncio.create_task`, `gather` and `wait_for` take it; but it shows what to write, and at the end of a cell the calls
that this cell made and nobody awaited are named on stderr. Python 3.9, standard library; IPython when it is there.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class HostCall(Coroutine[Any, Any, T]):
    """One call to the host. Nothing is sent before it is awaited, and it can be awaited once."""

    def __init__(self, name: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._name, self._ask = name, ask
        self._running: Coroutine[Any, Any, T] | None = None
        self._told = False
        self.__name__ = self.__qualname__ = name  # what asyncio shows for a task
        _unsent.watch(self)

    @property
    def advice(self) -> str:
        """What to write instead."""
        return f"{self._name} was not awaited, so nothing was sent. Write: await {self._name}"

    def needs_telling(self) -> bool:
        """Whether nobody awaited it, or was told to."""
        return self._running is None and not self._told

    def told(self) -> None:
        """The advice was shown, or is not needed."""
        self._told = True

    def __await__(self) -> Generator[Any, None, T]:
        return self._start().__await__()

    def send(self, value: Any) -> Any:
        return (self._running or self._start()).send(value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None) -> Any:
        running = self._running or self._start()
        return running.throw(kind) if value is None and trace is None else running.throw(kind, value, trace)

    def close(self) -> None:
        self._told = True
        if self._running is not None:
            self._running.close()

    def _start(self) -> Coroutine[Any, Any, T]:
        if self._running is not None:
            raise RuntimeError(f"cannot reuse an already awaited {self._name}; call it again")
        self._running = self._ask()
        return self._running

    def __repr__(self) -> str:
        if self._running is not None:
            return f"<{self._name}, sent>"
        self._told = True
        return f"<{self.advice}>"

    def __del__(self) -> None:
        if getattr(self, "_running", self) is None and not self._told:
            warnings.warn(self.advice, RuntimeWarning, stacklevel=2, source=self)


class _Unsent:
    """The calls that were made and not awaited yet, and the end of the cell, at which they are named."""

    def __init__(self) -> None:
        self._calls: weakref.WeakSet[HostCall[Any]] = weakref.WeakSet()
        self._shell: Any = None

    def watch(self, call: HostCall[Any]) -> None:
        self._calls.add(call)
        self._hook()

    def _hook(self) -> None:
        interactive = sys.modules.get("IPython")
        shell = interactive.get_ipython() if interactive is not None else None
        if shell is not None and shell is not self._shell:
            shell.events.register("post_run_cell", self.tell)
            self._shell = shell

    def tell(self, *_result: object) -> None:
        """Name what this cell left behind. A call that was handed to a task is on its way and is not named."""
        calls = [call for call in self._calls if call.needs_telling()]
        self._calls.clear()
        if not calls:
            return
        under_way = _coroutines_of_tasks()
        for call in calls:
            if not any(call is coroutine for coroutine in under_way):
                call.told()
                print(call.advice, file=sys.stderr)  # noqa: T201 - a cell's stderr is what its author reads


def _coroutines_of_tasks() -> list[Awaitable[Any] | None]:
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return []
    return [getattr(task, "get_coro", lambda: None)() for task in tasks]


_unsent = _Unsent()
