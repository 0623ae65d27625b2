"""Save the living variables to a file and read them back, one by one, inside the kernel.

A snapshot is a zip archive with `manifest.json` and one entry for each variable. Every variable is pickled by itself,
so that one which cannot be is named and skipped, and sizes are watched while they are written. Only a kernel ever
unpickles; the host moves the file and reads the report. Python 3.9; needs dill, and says so when it is missing.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import time
import types
import zipfile
from typing import Any

from agent_kernel.names import living_names

NO_DILL = "dill is not installed in the kernel's interpreter; install it with: python -m pip install dill"

_MAX_REASON = 200
_MAX_LISTED = 500


class _TooLarge(Exception):
    pass


class _Bounded(io.RawIOBase):
    """A file that refuses to grow over a limit, so that a huge variable costs no more than the limit."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self._limit = limit

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if len(self.data) + size > self._limit:
            raise _TooLarge
        self.data += data
        return size


class Report:
    """What was done, displayed as JSON for the host: names that went through, and those that did not, with reasons."""

    def __init__(self, done: list[str], skipped: list[tuple[str, str]], problem: str = "") -> None:
        self._content = {
            "names": done[:_MAX_LISTED],
            "skipped": [[name, reason[:_MAX_REASON]] for name, reason in skipped[:_MAX_LISTED]],
            "problem": problem[:_MAX_REASON],
        }

    def _repr_mimebundle_(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        return {"application/json": self._content, "text/plain": ""}


def save(path: str, variable_bytes: int, total_bytes: int, limit_s: float) -> Report:
    """Write the living variables to `path`, atomically. What cannot be saved, or is too much, is skipped and named."""
    dill = _dill()
    if dill is None:
        return Report([], [], NO_DILL)
    done: list[str] = []
    skipped: list[tuple[str, str]] = []
    modules: dict[str, str] = {}
    left, deadline = total_bytes, time.monotonic() + limit_s
    partial = f"{path}.partial"
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, value in living_names():
            if isinstance(value, types.ModuleType):
                modules[name] = value.__name__
                done.append(name)
                continue
            if time.monotonic() > deadline:
                skipped.append((name, f"the time of {limit_s:g} s was used up"))
                continue
            blob, reason = _pickle(dill, value, min(variable_bytes, left), variable_bytes)
            if blob is None:
                skipped.append((name, reason))
                continue
            left -= len(blob)
            archive.writestr(f"v/{len(done)}/{name}", bytes(blob))
            done.append(name)
        archive.writestr("manifest.json", json.dumps({"modules": modules, "skipped": skipped}))
    os.replace(partial, path)  # noqa: PTH105 - one system call
    return Report(done, skipped)


def load(path: str) -> Report:
    """Put the variables in a snapshot back. What cannot be read is named as lost, what was skipped then as well."""
    from IPython import get_ipython

    dill = _dill()
    if dill is None:
        return Report([], [], NO_DILL)
    namespace = get_ipython().user_ns
    done: list[str] = []
    lost: list[tuple[str, str]] = []
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            for name, module in manifest["modules"].items():
                _take(namespace, name, lambda module=module: importlib.import_module(module), done, lost)
            for entry in archive.namelist():
                if entry.startswith("v/"):
                    name = entry.split("/", 2)[2]
                    _take(namespace, name, lambda entry=entry: dill.loads(archive.read(entry)), done, lost)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        return Report(done, lost, f"the snapshot cannot be read: {error}")
    return Report(done, [*lost, *((str(name), str(reason)) for name, reason in manifest["skipped"])])


def _take(namespace: dict[str, Any], name: str, make: Any, done: list[str], lost: list[tuple[str, str]]) -> None:
    try:
        namespace[name] = make()
        done.append(name)
    except Exception as error:  # noqa: BLE001 - unpickling runs whatever the pickle says
        lost.append((name, f"{type(error).__name__}: {error}"))


def _pickle(dill: Any, value: object, limit: int, variable_bytes: int) -> tuple[bytearray | None, str]:
    buffer = _Bounded(limit)
    try:
        dill.dump(value, buffer, recurse=True)
    except _TooLarge:
        left = "" if limit == variable_bytes else " that are left"
        return None, f"larger than the {limit:,} bytes{left or ' a variable may have'}"
    except Exception as error:  # noqa: BLE001 - an object may raise anything when it is pickled
        return None, f"{type(error).__name__}: {error}"
    return buffer.data, ""


def _dill() -> Any:
    try:
        import dill
    except ImportError:
        return None
    return dill
