"""List the names that are alive in the user's namespace, with types and short shapes. Python 3.9, standard library.

Runs as a silent expression of the host. Nothing of the user's objects is called but `len` of the built-in containers
and the `shape` of arrays and frames, so that listing cannot change or hang what it lists.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

from agent_kernel import MAX_NAMES

_MAX_TEXT = 100
_MAX_BITS = 200  # sixty digits; converting more takes time that grows with the square
_SIZED = (dict, list, tuple, set, frozenset, bytes, bytearray)


class Listing:
    """Displays itself as JSON: the living names, newest last, and how many were left out."""

    def __init__(self) -> None:
        self._names = living_names()

    def _repr_mimebundle_(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        newest = self._names[-MAX_NAMES:]
        entries = [{"name": name[:_MAX_TEXT], **describe(value)} for name, value in newest]
        return {
            "application/json": {"names": entries, "omitted": len(self._names) - len(newest)},
            "text/plain": "",
        }


def living_names() -> list[tuple[str, Any]]:
    """The variables that the agent made, oldest first; not what IPython and the host put there."""
    from IPython import get_ipython

    shell = get_ipython()
    hidden = shell.user_ns_hidden
    return [
        (name, value)
        for name, value in list(shell.user_ns.items())
        if not name.startswith("_")
        and not (name in hidden and hidden[name] is value)
        and name not in ("In", "Out", "exit", "quit", "get_ipython", "open")
    ]


def describe(value: object) -> dict[str, str]:
    """The type of a value and a short shape of it. Never raises."""
    kind = type(value)
    try:
        shape = _shape(value, kind)
    except Exception:  # noqa: BLE001 - a user's object may do anything when it is looked at
        shape = ""
    return {"type": f"{kind.__module__}.{kind.__qualname__}"[:_MAX_TEXT], "shape": shape[:_MAX_TEXT]}


def _shape(value: Any, kind: type) -> str:
    name = kind.__name__
    if value is None or kind in (bool, int, float, complex):
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            return f"{name} of {value.bit_length():,} bits"
        return f"{name} {value!r}" if value is not None else "None"
    if kind is str:
        return f"str of {len(value):,} characters"
    if kind in _SIZED:
        return f"{name} of {len(value):,}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, types.FunctionType):
        return f"function{_signature(value)}"
    if isinstance(value, type):
        return f"class {value.__name__}"
    sizes = _array_shape(value, kind)
    return f"{name} {sizes}" if sizes else name


def _array_shape(value: Any, kind: type) -> str:
    if kind.__module__.split(".")[0] not in ("numpy", "pandas", "polars", "torch", "scipy", "jax", "xarray"):
        return ""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not shape:
        return ""
    return "×".join(str(int(size)) for size in shape)


def _signature(function: types.FunctionType) -> str:
    code = function.__code__
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    if code.co_flags & inspect.CO_VARARGS:
        names.append("*args")
    if code.co_flags & inspect.CO_VARKEYWORDS:
        names.append("**kwargs")
    return f"({', '.join(names)})"
