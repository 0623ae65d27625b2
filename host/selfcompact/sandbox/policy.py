"""What code in a cell may reach: one frozen value that settings, code and the command line share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

ProfileName = Literal["offline", "online", "read-only"]

ENV_ALLOWED = ("LANG", "LC_ALL", "LC_CTYPE", "PATH", "TZ")
"""What every program wants and no secret is kept in. Everything else of the host's environment stays outside."""

_GIB = 1024**3

PROFILES: Mapping[ProfileName, Mapping[str, Any]] = {
    "offline": {},
    "online": {"network": True},
    "read-only": {"workspace": "read-only"},
}


class SandboxPolicy(BaseModel):
    """What code in a cell may reach. `profile` names a starting point; what is set beside it wins."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    profile: ProfileName = "offline"
    """`offline`: no network, workspace writable. `online`: with network. `read-only`: neither network nor writing."""

    kind: Literal["bwrap", "none"] = "bwrap"
    """`bwrap`: a bubblewrap sandbox. `none`: no sandbox at all, a choice that is never made for you."""

    network: bool = False
    """Whether the kernel shares the host's network, the services on its loopback included."""

    workspace: Literal["read-write", "read-only"] = "read-write"
    read: tuple[Path, ...] = ()
    """Further paths that can be read, at the same place as outside."""
    write: tuple[Path, ...] = ()
    """Further paths that can be written."""

    env: tuple[str, ...] = ENV_ALLOWED
    """Names of variables that are passed on, where the host has them and neither name nor value looks like a key.
    PATH is not the host's: it leads to the interpreter and to the system's programs."""

    memory: ByteSize | None = Field(default=ByteSize(8 * _GIB))
    """Address space of one process. None: unlimited."""
    processes: int | None = Field(default=512, ge=1)
    """Processes and threads in the sandbox."""
    file_size: ByteSize | None = Field(default=ByteSize(4 * _GIB))
    """The largest file that can be written."""
    open_files: int | None = Field(default=4096, ge=64)
    """Descriptors of one process."""
    tmp_size: ByteSize | None = Field(default=ByteSize(_GIB))
    """What fits into the private /tmp, /home and /dev/shm, each; it is kept in memory."""
    tmp_files: int | None = Field(default=200_000, ge=100)
    """How many files and directories each of these may hold; an empty one takes a kilobyte of memory."""
    cpu_seconds: int | None = Field(default=None, ge=1)
    """CPU time of one process, over its whole life. Off by default: cells have their own limit in seconds."""

    @model_validator(mode="before")
    @classmethod
    def _start_from_profile(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        profile = values.get("profile", "offline")
        return {**PROFILES.get(profile, {}), **values}

    @field_validator("read", "write")
    @classmethod
    def _absolute(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(Path(path).expanduser().absolute() for path in paths)
