"""The settings of the host that lie where cells may write: shown to them, and kept from them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import platformdirs

from selfcompact.errors import WorkspaceError
from selfcompact.sandbox.mounts import SETTINGS
from selfcompact.sandbox.policy import SandboxPolicy


class ProtectedDirs:
    """Finds the directories, and makes an empty one where there is none, as nothing else keeps a place free.

    Sandboxes that share one hold a lock on it: removing a directory takes away what others have mounted there. `close`
    removes those that are empty and nobody else's. It may be called twice and never raises.
    """

    shown: Mapping[Path, Path]
    """For each directory what a cell sees in its place."""

    def __init__(self, workspace: Path, policy: SandboxPolicy) -> None:
        self._held: dict[Path, int] = {}
        for place in _places(workspace, policy):
            self._held[place] = _hold(place)
        self.shown = {place: place for place in self._held}

    def close(self) -> None:
        """Remove the directories that are empty and held by nobody else, and let go of the others."""
        while self._held:
            place, descriptor = self._held.popitem()
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                place.rmdir()
            os.close(descriptor)


def _hold(place: Path) -> int:
    """A descriptor of the directory, made when it is not there, with a shared lock on it."""
    while True:
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o755)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = f"is not a directory of its own ({error.strerror}), so cells could change settings; move it"
            raise WorkspaceError(place, problem) from error
        with contextlib.suppress(BlockingIOError):  # held alone by somebody who may not remove it
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):
            if os.path.samestat(place.lstat(), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)  # it was removed while we took it


def _places(workspace: Path, policy: SandboxPolicy) -> Iterator[Path]:
    """Where settings are read from, and cells could write."""
    writable = [path.resolve() for path in policy.write]
    if policy.workspace == "read-write":
        writable.append(workspace)
    candidates = [workspace / SETTINGS, *(path / SETTINGS for path in writable)]
    candidates.append(Path(platformdirs.user_config_dir("selfcompact")).absolute())
    for place in dict.fromkeys(candidates):
        parent = place.parent
        if parent.is_dir() and any(path == parent or path in parent.parents for path in writable):
            yield place
