"""The skill the agent is told about, and the system prompt that tells it.

`SKILL.md` is written for a model that reads it once. In the wheel it lies in this package; in a checkout it is the
file at the top level.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from pathlib import Path

from selfcompact.errors import UsageError

SKILL_NAME = "compact"

_PACKAGED = Path(__file__).parent / "skill" / "SKILL.md"
_CHECKOUT = Path(__file__).parents[2] / "SKILL.md"


@dataclass(frozen=True)
class SkillMetadata:
    """What a model is told of a skill before it reads it."""

    name: str
    description: str


def skill_text() -> str:
    """The whole of SKILL.md."""
    path = _PACKAGED if _PACKAGED.exists() else _CHECKOUT
    return path.read_text(encoding="utf-8")


@cache
def skill_metadata() -> SkillMetadata:
    """Name and description from the front matter of SKILL.md."""
    match = re.match(r"---\n(?P<front>.*?)\n---\n", skill_text(), re.DOTALL)
    fields = dict(re.findall(r"^(\w+): *(.+)$", match["front"], re.MULTILINE)) if match else {}
    return SkillMetadata(fields["name"].strip("\"'"), fields["description"].strip("\"'"))


@cache
def system_prompt(*, agent_callable: bool) -> str:
    """The system prompt of a session; the same bytes for the same answer to `agent_callable`."""
    prompt = resources.files("selfcompact").joinpath("prompts/system.md").read_text(encoding="utf-8").strip()
    if not agent_callable:
        return prompt + "\n"
    skill = skill_metadata()
    addition = resources.files("selfcompact").joinpath("prompts/skill.md").read_text(encoding="utf-8").strip()
    return f"{prompt}\n\n{addition.replace('{name}', skill.name).replace('{description}', skill.description)}\n"


PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"
description = "{description}"
requires-python = ">=3.9"
license = "MIT"
dependencies = ["pyzmq>=24"]

[tool.hatch.build.targets.wheel]
packages = ["src/compact", "src/host_bridge"]
"""


EXPORTED = ("*.py", "py.typed", "wire/*.py", "kernel/*.py")
"""What of the two packages a kernel uses. The host's end of the wire needs what no kernel has."""


def export_skill(target: Path) -> Path:
    """Write the skill as a folder `compact` in `target`: SKILL.md, pyproject.toml and the packages it needs.

    Hosts of Python-backed skills install this form. Returns the folder.

    Raises:
        UsageError: the folder already exists and is not empty, or cannot be written.
    """
    folder = target / SKILL_NAME
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} already exists; remove it, or name another directory")
    try:
        (folder / "src").mkdir(parents=True, exist_ok=True)
        (folder / "SKILL.md").write_text(skill_text(), encoding="utf-8")
        (folder / "pyproject.toml").write_text(
            PYPROJECT.format(
                name=SKILL_NAME,
                version=metadata.version("selfcompact"),
                description="Ask the host how full the context is, and to have it compacted.",
            ),
            encoding="utf-8",
        )
        for package in kernel_side_packages():
            for path in sorted(path for pattern in EXPORTED for path in package.glob(pattern)):
                copy = folder / "src" / package.name / path.relative_to(package)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}); name another directory") from error
    return folder


def kernel_side_packages() -> tuple[Path, Path]:
    """The folders of the two packages that run in the kernel."""
    import compact
    import host_bridge

    return Path(compact.__file__).parent, Path(host_bridge.__file__).parent
