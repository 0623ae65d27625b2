"""The environment that a kernel gets: an allow-list, and never a value that looks like a key. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfcompact.text.secrets import looks_secret


def allowed(environment: Mapping[str, str], names: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of `environment` that are on the list, and the names on it that were held back as secrets."""
    passed, held_back = {}, []
    for name in names:
        value = environment.get(name)
        if value is None or name == "PATH":
            continue
        if looks_secret(name, value):
            held_back.append(name)
        else:
            passed[name] = value
    return passed, tuple(held_back)
