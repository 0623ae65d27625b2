"""Who on the host reaches into places that cells can write: an audit hook over every file operation of the process.

`watched` lists, while it is active, each operation on a path in the places given that did not go through the modules
made for such places. The innermost frame that is ours decides: a test that plants something is no fault.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import selfcompact

_PRODUCT = f"{Path(selfcompact.__file__).parent}/"
_TESTS = f"{Path(__file__).parents[1]}/"

_CHANGES = ("mkdir", "rmdir", "remove", "rename", "link", "symlink", "truncate", "chmod")
EVENTS = frozenset(["open", "os.listdir", "os.scandir", *(f"os.{name}" for name in _CHANGES)])

CAREFUL = {
    "private_files.py": "the module for such places",
    "sandbox/protected_dirs.py": "makes .selfcompact and opens it by descriptor, before any cell of this session ran",
    "kernel/provisioner.py": "writes connection files, before the kernel is started",
}
"""Files of the product that may reach there, and why."""

_places: list[str] = []
_found: list[str] = []


def _innermost(frame: FrameType | None) -> str:
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PRODUCT):
            return name.removeprefix(_PRODUCT)
        if name.startswith(_TESTS) and name != __file__:
            return ""
        frame = frame.f_back
    return ""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _places or event not in EVENTS:
        return
    for value in arguments[:2]:
        if isinstance(value, (str, bytes)):
            path = os.path.normpath(os.fsdecode(value))  # relative ones are a descriptor's
            if any(path == place or path.startswith(f"{place}/") for place in tuple(_places)):
                who = _innermost(sys._getframe())
                if who and who not in CAREFUL:
                    _found.append(f"{who}: {event} {path}")


sys.addaudithook(_hook)  # cannot be taken away again; without places it does nothing


@contextlib.contextmanager
def watched(places: Sequence[Path]) -> Iterator[list[str]]:
    """What reached into these places otherwise, growing while the block runs; more places may be given by `watch`."""
    _found.clear()
    _places[:] = [str(place) for place in places]
    try:
        yield _found
    finally:
        _places.clear()


def watch(place: Path) -> None:
    """Watch one more place for the rest of the block."""
    _places.append(str(place))
