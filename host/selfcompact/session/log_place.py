"""Where a session's log may lie: never where cells can write, nor below a folder that they can put aside by its name.

A log in the workspace can be changed by what it records: a forged message would be told to the model as the user's
words. Hiding the file with a mount does not hold, since the folder above it can be renamed. Index, images, torn parts
and variables lie beside the log, so they are safe with it.
"""

from __future__ import annotations

from pathlib import Path

from selfcompact.errors import SessionFileError
from selfcompact.sandbox.policy import SandboxPolicy
from selfcompact.workspace import sessions_folder


def check_log_place(path: Path, workspace: Path, policy: SandboxPolicy) -> None:
    """Refuse a log that cells could write. Links are looked through, and one that lies where cells can write counts.

    Raises:
        SessionFileError: with a path that can be used instead.
    """
    places = [place.resolve() for place in policy.write]
    if policy.workspace == "read-write":
        places.append(workspace.resolve())
    for place in places:
        if _leads_through(path.absolute(), place):
            better = sessions_folder(workspace) / path.name
            if _leads_through(better, place):
                advice = "set XDG_DATA_HOME to a folder outside it, or name a file there"
            else:
                advice = f"use {better} instead; `selfcompact move {path}` brings one there that exists"
            raise SessionFileError(path, f"lies where cells can write ({place}), and they could forge it; {advice}")


def _leads_through(path: Path, place: Path) -> bool:
    """Whether the path, or where it really is, lies in a place: what is a link in there may be another one soon."""
    spelled = path.parent.resolve() / path.name
    return any(place == each or place in each.parents for each in (path, spelled, path.resolve()))
