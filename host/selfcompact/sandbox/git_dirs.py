"""The real git directory of a workspace that is a worktree or a submodule: it lies elsewhere, and git needs to read it.

In such a workspace `.git` is a file that names it. Cells can write that file, so what it names is believed only when it
names the workspace back: a worktree's directory in its file `gitdir`, a submodule's in its `core.worktree`. Cells can
write neither, unless they were given that directory.
"""

from __future__ import annotations

import re
from pathlib import Path

from selfcompact.private_files import read_beneath, read_bounded

_BYTES = 64 * 1024
_PARTS = ("HEAD", "objects", "refs")
_WORKTREE = re.compile(r"^\s*worktree\s*=\s*(.+?)\s*$", re.MULTILINE)


def git_directory(workspace: Path) -> Path | None:
    """The directory to mount read-only, at its own place; None when there is none, or it is not this workspace's.

    Never raises. Looks at four small files.
    """
    try:
        named = _named(read_beneath(workspace, Path(".git"), _BYTES).decode())
        if named is None:
            return None
        own = (workspace / named).resolve(strict=True)
        found = _common(own, workspace) if (own / "commondir").is_file() else _submodule(own, workspace)
    except (OSError, UnicodeDecodeError, RuntimeError, ValueError):
        return None
    return found if found is not None and all((found / part).exists() for part in _PARTS) else None


def _named(text: str) -> str | None:
    first, _, path = text.partition(":")
    return path.strip() or None if first == "gitdir" else None


def _common(own: Path, workspace: Path) -> Path | None:
    """The repository of a worktree, whose directory is `worktrees/NAME` in it."""
    back = Path(read_bounded(own / "gitdir", _BYTES).decode().strip())
    common = (own / read_bounded(own / "commondir", _BYTES).decode().strip()).resolve(strict=True)
    names_back = (own / back).resolve() == (workspace / ".git").resolve()
    return common if names_back and own.parent == common / "worktrees" else None


def _submodule(own: Path, workspace: Path) -> Path | None:
    match = _WORKTREE.search(read_bounded(own / "config", _BYTES).decode())
    return own if match is not None and (own / match[1].strip('"')).resolve() == workspace.resolve() else None
