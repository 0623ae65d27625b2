"""A shell whose values, displays and tracebacks fit into a message. Python 3.9+; ipykernel 6.29 and newer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell

from agent_kernel.clip import clip, clip_data
from agent_kernel.streams import CappedStream

_TRACEBACK_LINES = 60


class AgentDisplayPublisher(ZMQDisplayPublisher):
    """Bounds what is displayed without a formatter, such as data that a library has made itself."""

    def publish(self, data: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Publish it, cut where it is too long."""
        super().publish(clip_data(data), *args, **kwargs)


class AgentShell(ZMQInteractiveShell):
    """A shell for a reader that sees text and a few images, and that pays for every character."""

    display_pub_class = AgentDisplayPublisher

    def init_environment(self) -> None:
        """Undo what a notebook's kernel tells programs: nobody here wants colours or pages."""
        before = dict(os.environ)
        super().init_environment()
        for name in ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "GIT_PAGER", "PAGER", "TERM"):
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)

    def init_display_formatter(self) -> None:
        """Bound every value that is displayed, wherever it comes from."""
        super().init_display_formatter()
        formatter: Any = self.display_formatter
        unbounded = formatter.format

        def bounded(*args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            data, metadata = unbounded(*args, **kwargs)
            _release_streams()
            return clip_data(data), metadata

        formatter.format = bounded

    def _showtraceback(self, etype: type, evalue: object, stb: Sequence[str]) -> None:
        _release_streams()
        super()._showtraceback(etype, clip(_text(evalue)), clip_traceback(stb))


def clip_traceback(lines: Sequence[str]) -> list[str]:
    """The first and the last frames of a traceback, each of them bounded."""
    clipped = [clip(str(line)) for line in lines]
    if len(clipped) <= _TRACEBACK_LINES:
        return clipped
    half = _TRACEBACK_LINES // 2
    return [*clipped[:half], f"[… {len(clipped) - 2 * half} frames left out …]", *clipped[-half:]]


def capped_streams() -> list[CappedStream]:
    """The standard streams, as far as the cell has not replaced them."""
    return [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, CappedStream)]


def _release_streams() -> None:
    for stream in capped_streams():
        stream.release()


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - an exception's own __str__ may do anything
        return f"<no text: {type(error).__name__}>"
