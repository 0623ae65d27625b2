"""The directory an agent works in, and the folder where its sessions are kept."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import platformdirs

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


def sessions_folder(workspace: Path | None = None) -> Path:
    """Where sessions are kept: a folder under the user's data directory, in it one for each workspace."""
    root = Path(platformdirs.user_data_dir("selfcompact")) / "sessions"
    if workspace is None:
        return root
    resolved = workspace.resolve()
    slug = "-".join(part for part in resolved.parts if part != resolved.anchor) or "root"
    return root / slug[-100:]


def new_session_file(workspace: Path) -> Path:
    """The file of a new session of a workspace; names sort by time."""
    return sessions_folder(workspace) / f"{datetime.now(UTC).strftime('%Y-%m-%dT%H-%M-%S-%f')}.jsonl"
