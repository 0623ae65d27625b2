"""Settings of a session that is open: the project's file may change under it, and the next boundary notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from selfcompact.errors import SettingsError
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.settings.load import LoadedSettings


class SettingsWatch:
    """Looks at the project's settings file when asked; one `stat` when nothing changed. The run owns it."""

    def __init__(self, loaded: LoadedSettings | None) -> None:
        self._file = loaded.project_file if loaded is not None else None
        self._reload = loaded.reload if loaded is not None else None
        self._seen = _stamp(self._file)

    def changed(self, report: Callable[[str], None]) -> CompactionSettings | None:
        """The compaction settings now in force when the file changed since the last look; None when it did not.

        A file that cannot be used is reported once and changes nothing.
        """
        if self._reload is None:
            return None
        stamp = _stamp(self._file)
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            return self._reload().settings.compaction
        except SettingsError as error:
            report(f"{error}; the settings of before stay in force")
            return None


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None
