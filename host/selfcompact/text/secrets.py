"""Secrets taken out of text by value, before it is sent to a summariser or stored in a summary.

What looks like a key goes: well-known prefixes, private key blocks, credentials in URLs, high entropy beside a
key-like name, and the exact values that the host knows to be secret. Redaction never fails: at worst it misses.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

REDACTED = "[redacted]"
"""Stands where a secret stood."""

MIN_SECRET_CHARS = 8
"""Shorter values of key variables are not searched for: they would hit ordinary words."""

MIN_ENTROPY_BITS = 3.0
"""Bits per character from which a value beside a key-like name counts as a secret; English words have under 2.9."""

KEY_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?$", re.IGNORECASE)
"""Names of environment variables whose values are secrets."""

SECRET_WORD = re.compile(r"key|token|secret|passw|credential|auth|cookie|session|private", re.IGNORECASE)
"""Words in the name of a variable that no kernel is given."""

_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{16,}|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}"
    r"|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    r")"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_IN_URL = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s:/@]{1,100}:)[^\s:/@]{3,200}(?=@)")
_BEARER = re.compile(r"(?P<word>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/-]{16,}=*", re.IGNORECASE)
_NAMED = re.compile(
    r"(?P<name>(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|passphrase|credential|auth[_-]?key)"
    r"[A-Za-z0-9_-]{0,20}[\"']?\s*(?:[:=]|=>)\s*[\"']?)(?P<value>[^\s\"',;{}()\[\]<>]{8,200})",
    re.IGNORECASE,
)


class Redactor:
    """Takes secrets out of texts. Immutable; redacting twice changes nothing more."""

    def __init__(self, values: Sequence[str] = ()) -> None:
        """`values` are secrets that the host knows; those under 8 characters are left out."""
        known = sorted({value for value in values if len(value) >= MIN_SECRET_CHARS}, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """The text with `[redacted]` where secrets stood."""
        if self._values is not None:
            text = self._values.sub(REDACTED, text)
        text = _PRIVATE_KEY.sub(REDACTED, text)
        text = _PREFIXED.sub(REDACTED, text)
        text = _IN_URL.sub(lambda match: match["scheme"] + REDACTED, text)
        text = _BEARER.sub(lambda match: match["word"] + REDACTED, text)
        return _NAMED.sub(_redact_named, text)


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of an environment's key variables, told by their names."""
    return tuple(
        value for name, value in environment.items() if KEY_VARIABLE.search(name) and len(value) >= MIN_SECRET_CHARS
    )


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable's name or value is of the kind that keys have. Errs on the side of secret: it decides what a
    kernel may have of the host's environment, not what is cut out of a text."""
    shapes = (_PREFIXED, _PRIVATE_KEY, _IN_URL)
    return bool(SECRET_WORD.search(name) or any(shape.search(value) for shape in shapes))


def entropy_bits(text: str) -> float:
    """Bits per character by the frequencies in the text itself."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values()) if text else 0.0


def _redact_named(match: re.Match[str]) -> str:
    value = match["value"]
    mixed = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]", "[^A-Za-z0-9]"))
    is_code = "." in value or "/" in value or value.startswith(("$", "%", "os", REDACTED[:1]))
    if is_code or mixed < 2 or not re.search("[0-9]", value) or entropy_bits(value) < MIN_ENTROPY_BITS:
        return match[0]
    return match["name"] + REDACTED
