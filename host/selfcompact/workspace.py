"""The workspace: the directory the agent works in."""

from __future__ import annotations

from pathlib import Path

from selfcompact.errors import WorkspaceError


def checked_workspace(workspace: Path) -> Path:
    """The workspace as an absolute path without links.

    Raises:
        WorkspaceError: it does not exist or is not a directory.
    """
    if not workspace.exists():
        raise WorkspaceError(workspace, "does not exist; make it, or name another one")
    if not workspace.is_dir():
        raise WorkspaceError(workspace, "is not a directory; name one")
    return workspace.resolve()
