"""Interpreters as people have them: virtual environments, and prefixes that a version manager or conda has made.

Nothing is downloaded: a prefix is a linked copy of the interpreter that runs the tests, moved as conda moves one, and
what an environment has to have installed is read from where the tests have it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import ipykernel

_LEFT_OUT = ("site-packages", "dist-packages", "test", "idlelib", "lib2to3", "__pycache__", "config-*")


def make_prefix(prefix: Path) -> Path:
    """An interpreter with its library under `prefix`, nothing of it elsewhere; returns `bin/python`, a link."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = prefix / "lib" / version
    shutil.copytree(
        sysconfig.get_path("stdlib"), library, ignore=shutil.ignore_patterns(*_LEFT_OUT), copy_function=_link
    )
    extensions = Path(sysconfig.get_config_var("DESTSHARED"))
    if not (library / extensions.name).exists():
        shutil.copytree(extensions, library / extensions.name, copy_function=_link)
    libraries = Path(sysconfig.get_config_var("LIBDIR"))
    for shared in libraries.glob(f"lib{version}*.so*"):
        shutil.copy2(shared, prefix / "lib")
    (prefix / "bin").mkdir()
    _move(Path(sys.executable).resolve(), prefix / "bin" / version, str(libraries))
    (prefix / "bin" / "python3").symlink_to(version)
    (prefix / "bin" / "python").symlink_to("python3")
    _give_packages(library / "site-packages")
    return prefix / "bin" / "python"


def make_environment(folder: Path, base: Path | None = None) -> Path:
    """A virtual environment on `base`, which is the interpreter of the tests when none is given."""
    subprocess.run([str(base or sys.executable), "-m", "venv", "--without-pip", str(folder)], check=True)
    _give_packages(next(folder.glob("lib/python*/site-packages")))
    return folder / "bin" / "python"


def make_shim(root: Path, python: Path) -> Path:
    """What pyenv puts on PATH: a script that finds the interpreter and becomes it."""
    shim = root / "shims" / "python"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    shim.chmod(0o755)
    return shim


def _give_packages(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "given.pth").write_text(str(Path(ipykernel.__file__).parents[1]) + "\n")


def _move(source: Path, target: Path, libraries: str) -> None:
    """Copy a program whose shared libraries are looked for beside it, at whatever place it is now."""
    old = os.fsencode(libraries) + b"\0"
    target.write_bytes(source.read_bytes().replace(old, b"$ORIGIN/../lib".ljust(len(old), b"\0")))
    target.chmod(0o755)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or links to others' files are forbidden
        shutil.copy2(source, target)
