"""Keep a kernel's variables when a session is closed, and bring them back when it is opened again.

The kernel writes and reads the snapshot inside its sandbox. The host only moves bytes: it never looks into the file,
which was made by code it does not trust.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from selfcompact.kernel.content import MAX_CONTENT_BYTES, decoded
from selfcompact.kernel.output import plain
from selfcompact.private_files import NotRegular, open_new, open_regular

SNAPSHOT_TIMEOUT_S = 60.0
"""How long saving or restoring may take."""

VARIABLE_BYTES = 64 * 1024 * 1024
"""The largest variable that is saved; larger ones belong into files of the workspace."""

TOTAL_BYTES = 256 * 1024 * 1024
"""The largest snapshot, before compression."""

_MAX_FIELD = 200
_MAX_NAMES = 10_000


@dataclass(frozen=True)
class Skipped:
    """A variable that did not go through, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class SnapshotReport:
    """What a snapshot holds, or what a restore brought back.

    `names` went through, `skipped` did not. `problem` says why nothing was done at all; it is empty otherwise.
    """

    names: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    problem: str = ""

    def to_text(self) -> str:
        """One paragraph for the model after a restore: which names are there again, and which are lost."""
        if self.problem:
            return f"No variables were restored: {self.problem}."
        lost = "; ".join(f"{entry.name} ({entry.reason})" for entry in self.skipped)
        parts = [f"Restored variables: {', '.join(self.names) or 'none'}."]
        return " ".join([*parts, *([f"Lost variables: {lost}."] if lost else [])])


def save_expression(path: str) -> str:
    """What the kernel evaluates to save its variables to `path`, as it sees that path."""
    limits = f"{VARIABLE_BYTES}, {TOTAL_BYTES}, {SNAPSHOT_TIMEOUT_S / 2}"
    return f"__import__('agent_kernel.snapshot', fromlist=['save']).save({path!r}, {limits})"


def load_expression(path: str) -> str:
    """What the kernel evaluates to restore its variables from `path`, as it sees that path."""
    return f"__import__('agent_kernel.snapshot', fromlist=['load']).load({path!r})"


class _Report(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    problem: str


class _Bundle(msgspec.Struct, frozen=True):
    report: _Report = msgspec.field(name="application/json")


class _Evaluated(msgspec.Struct, frozen=True):
    data: _Bundle | None = None
    ename: str = ""
    evalue: str = ""


class _Expressions(msgspec.Struct, frozen=True):
    report: _Evaluated = _Evaluated()


class _Reply(msgspec.Struct, frozen=True):
    user_expressions: _Expressions = _Expressions()


_reply = msgspec.json.Decoder(_Reply)


def report_from(reply: bytes | None) -> SnapshotReport:
    """Read the kernel's report. Whatever it is, the result is bounded: the kernel is not trusted."""
    if reply is None:
        return SnapshotReport(problem=f"the kernel did not answer within {SNAPSHOT_TIMEOUT_S:g} s")
    answer = (decoded(_reply, reply, MAX_CONTENT_BYTES) or _Reply()).user_expressions.report
    if answer.data is None:
        why = f"{answer.ename}: {answer.evalue}" if answer.ename else "no report"
        return SnapshotReport(problem=_short(f"the kernel's report cannot be read ({why})"))
    report = answer.data.report
    return SnapshotReport(
        tuple(_short(name) for name in report.names[:_MAX_NAMES]),
        tuple(Skipped(_short(name), _short(reason)) for name, reason in report.skipped[:_MAX_NAMES]),
        _short(report.problem),
    )


def copy_out(source: Path, target: Path) -> str:
    """Move the bytes that the kernel wrote to `target`, atomically; return why not, or nothing.

    `source` lies in a directory that the kernel can write: it may be a link, a pipe, or far too large.
    """
    try:
        descriptor = open_regular(source, os.O_RDONLY | os.O_NOFOLLOW)
    except NotRegular:
        return "what the kernel wrote is not a snapshot"
    except OSError as error:
        return f"the kernel wrote no snapshot ({error.strerror})"
    with os.fdopen(descriptor, "rb") as reader:
        status = os.fstat(descriptor)
        if status.st_size > 2 * TOTAL_BYTES:
            return "what the kernel wrote is not a snapshot"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}-", delete=False) as writer:
                try:
                    _copy(reader.fileno(), writer.fileno(), status.st_size)
                    os.fsync(writer.fileno())
                    Path(writer.name).replace(target)
                except BaseException:
                    Path(writer.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            return f"the snapshot cannot be written to {target} ({error.strerror})"
    return ""


def copy_in(source: Path, target: Path) -> str:
    """Put a snapshot where the kernel can read it; return why not, or nothing."""
    try:
        with os.fdopen(open_regular(source, os.O_RDONLY), "rb") as reader, os.fdopen(open_new(target), "wb") as writer:
            _copy(reader.fileno(), writer.fileno(), os.fstat(reader.fileno()).st_size)
    except OSError as error:
        return f"{source} cannot be read ({error.strerror})"
    return ""


def _copy(source: int, target: int, size: int) -> None:
    """Copy at most `size` bytes: the kernel may still be writing."""
    while size > 0:
        chunk = os.read(source, min(size, 1 << 20))
        if not chunk:
            return
        view = memoryview(chunk)
        while view:
            view = view[os.write(target, view) :]
        size -= len(chunk)


def _short(value: str) -> str:
    return " ".join(plain(value).split())[:_MAX_FIELD]
