"""The environment that a kernel gets: an allow-list, and never a value that looks like a key. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|auth|cookie|session|private")
_SECRET_VALUE = re.compile(
    r"""(?x)
    \b(?: sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abprs]|hf|AIza|AKIA|ASIA|ya29 ) [-_.A-Za-z0-9]{16,}
    | \beyJ[-_A-Za-z0-9]{10,}\.[-_A-Za-z0-9]{10,}          # a JSON web token
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----
    | ://[^/\s:@]+:[^/\s@]+@                               # a password in an address
    """
)


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable's name or value is of the kind that keys have. Errs on the side of keeping it outside."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


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
