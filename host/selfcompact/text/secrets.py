"""Secrets taken out of text by value, before it is sent to a summariser or stored in a summary.

What looks like a key goes: well-known prefixes, private key blocks, credentials in URLs, high entropy beside a
key-like name, and the exact values that the host knows to be secret. Redaction never fails: at worst it misses.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

REDACTED = "[redacted]"
"""Stands where a secret stood."""

MIN_SECRET_CHARS = 8
"""Shorter values of key variables are not searched for: they would hit ordinary words."""

MIN_ENTROPY_BITS = 3.0
"""Bits per character from which a value beside a key-like name counts as a secret; English words have under 2.9."""

KEY_VARIABLE = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIAL)S?(?:_BASE|_OLD|_NEW|_?[0-9]{1,2})?$"
    r"|SECRET|PASSW",
    re.IGNORECASE,
)
"""Names of environment variables whose values are secrets."""

SECRET_WORD = re.compile(r"key|token|secret|passw|credential|auth|cookie|session|private", re.IGNORECASE)
"""Words in the name of a variable that no kernel is given."""

_PREFIXED = re.compile(
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))(?:"
    r"sk-[A-Za-z0-9_-]{16,}|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}"
    r"|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    r")"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_IN_URL = re.compile(r"(?P<name>[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s:/@]{0,100}:)[^\s/@]{3,200}(?=@)")
_BEARER = re.compile(r"(?P<name>(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/-]{16,}=*", re.IGNORECASE)
_HEADER = re.compile(r"(?P<name>authorization\\*[\"']?\s*:\s*\\*[\"']?(?:[a-z]+ )?)[^\s\"'\\]{8,400}", re.IGNORECASE)
_SIGNATURE = re.compile(r"(?P<name>[?&](?:sig|X-Amz-Signature|X-Goog-Signature)=)[^\s&\"'<>]{16,}", re.IGNORECASE)
_LOGIN = re.compile(r"(?P<name>login\s+\S{1,100}\s+password\s+)[^\s\\\"']{4,200}")
_USER_OPTION = re.compile(r"(?P<name>(?:\s-u|--user)[ =][\"']?[\w.@-]{1,60}:)[^\s\"']{4,200}")
_OPTION = re.compile(
    r"(?P<name>--?(?:[a-z]{1,20}-){0,2}(?:password|passwd|passphrase|secret|token|api-?key|access-?key)[ =][\"']?)"
    r"(?P<value>(?![-$<{\[])[^\s\"']{6,300})",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"""(?xi)
    (?P<name>
        (?: (?P<strong> passw(?:or)?d | passphrase | pwd | secret | (?:api|access|account|auth|private|signing)[_-]?key
              | (?:auth|access)[_-]?token | credential ) | token )
        [A-Za-z0-9_-]{0,20} )
    (?P<gap> (?P<named> \\{0,8}["'])? \]? \s{0,4} (?: := | => | [:=] ) \s{0,4} )
    (?: (?P<quote> \\{0,8} ["'`]) (?P<quoted> (?: (?!(?P=quote)) (?: \\. | [^\n] ) ){4,300}? ) (?P=quote)
      | (?P<bare> [^\s"'`\\]{6,300} ) )
    """
)
"""A key-like name, and its value: to the closing quote whatever is in it, or to the next space."""

_SHAPES = (
    (("private key",), _PRIVATE_KEY),
    (("://",), _IN_URL),
    (("bearer", "basic"), _BEARER),
    (("authorization",), _HEADER),
    (("sig=", "signature="), _SIGNATURE),
    (("login",), _LOGIN),
    (("-u",), _USER_OPTION),
    (("-",), _OPTION),
)
"""Each with words of which a text must have one: looking for a word costs next to nothing."""

_TEMPLATE = re.compile(r"\$|%[({]|\{|<[^>]*>?$|\[redacted|\.{3}|\*{3}|x{6}", re.IGNORECASE)
"""How a value begins that only stands for one."""

_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+[,;)\]}]*$|[\w.]+[(\[].*|(?:None|True|False|null)\b")
_PATH = re.compile(r"(?:~|\.{1,2})?(?:/(?![^/]*[A-Z][^/]*[0-9]|[^/]*[0-9][^/]*[A-Z])[\w.-]{1,40})+/?[,;)\]}]*$")
_FILE_NAME = re.compile(r"(?:file|path|dir|name|id|url|type|count|length)$", re.IGNORECASE)


class Redactor:
    """Takes secrets out of texts. Immutable; redacting twice changes nothing more.

    Give it whole texts: a secret of which a part was cut off is not found any more.
    """

    def __init__(self, values: Sequence[str] = ()) -> None:
        """`values` are secrets that the host knows; those under 8 characters are left out."""
        known = {form for value in values if len(value) >= MIN_SECRET_CHARS for form in _forms(value)}
        ordered = sorted(known, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str) -> str:
        """The text with `[redacted]` where secrets stood."""
        if self._values is not None:
            text = self._values.sub(REDACTED, text)
        text = _PREFIXED.sub(REDACTED, text)
        lowered = text.lower()
        for words, shape in _SHAPES:
            if any(word in lowered for word in words):
                text = shape.sub(_redact_rest, text)
        return _NAMED.sub(_redact_named, text)

    def value(self, name: str, text: str) -> str:
        """A value that has a name of its own, such as an argument of a call."""
        shown = self(f'{name}="{text}"')
        if '"' in text or "\n" in text or not shown.endswith(f'"{REDACTED}"'):
            return self(text)
        return REDACTED


def _forms(value: str) -> Iterator[str]:
    """A secret as it may stand in a text: as it is, in JSON or a `repr`, in a URL, in base64."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield quote(value, safe="")
    yield base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of an environment's key variables, told by their names."""
    found = [value for name, value in environment.items() if KEY_VARIABLE.search(name) and not _PATH.match(value)]
    for value in environment.values():  # DATABASE_URL and its kind
        found += [match[0].removeprefix(match["name"]) for match in _IN_URL.finditer(value)]
    return tuple(value for value in dict.fromkeys(found) if len(value) >= MIN_SECRET_CHARS)


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable's name or value is of the kind that keys have. Errs on the side of secret: it decides what a
    kernel may have of the host's environment, not what is cut out of a text."""
    shapes = (_PREFIXED, _PRIVATE_KEY, _IN_URL)
    return bool(SECRET_WORD.search(name) or any(shape.search(value) for shape in shapes))


def entropy_bits(text: str) -> float:
    """Bits per character by the frequencies in the text itself."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values()) if text else 0.0


def _redact_rest(match: re.Match[str]) -> str:
    return match.groupdict().get("name", "") + REDACTED


def _redact_named(match: re.Match[str]) -> str:
    value, quoted = match["quoted"] or match["bare"], match["quoted"] is not None
    if _TEMPLATE.match(value) or _PATH.match(value) or _FILE_NAME.search(match["name"]):
        return match[0]
    if not quoted and _CODE.match(value):
        return match[0]
    as_variable = match["gap"] == "=" and match["name"].upper() == match["name"]
    if match["strong"] and (quoted or as_variable):
        is_secret = len(value) >= 6 and not (quoted and match["named"] is None and _is_prose(match, value))
    else:
        is_secret = _is_random(value, least_kinds=3 if match["strong"] else 5)
    if not is_secret:
        return match[0]
    end = "" if quoted or as_variable else value[len(value.rstrip(",;)]}")) :]
    quote_mark = match["quote"] or ""
    return f"{match['name']}{match['gap']}{quote_mark}{REDACTED}{end}{quote_mark}"


def _is_prose(match: re.Match[str], value: str) -> bool:
    """Words after a colon: a label or a message, as in `"password: 'must be longer'"`."""
    return ":" in match["gap"] and " " in value and not re.search("[0-9]", value)


def _is_random(value: str, *, least_kinds: int) -> bool:
    """Whether a value looks made up: by its entropy, or by having so many kinds of characters, marks among them."""
    bare = value.rstrip(",;)]}")
    mark = bool(re.search("[^A-Za-z0-9]", bare))
    kinds = sum(bool(re.search(kind, bare)) for kind in ("[a-z]", "[A-Z]", "[0-9]")) + mark
    if len(value) < 8 or kinds < 2 or not re.search("[0-9]", bare):
        return False
    return entropy_bits(value) >= MIN_ENTROPY_BITS or (mark and kinds >= least_kinds)
