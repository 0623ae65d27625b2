"""Text from outside made inert before it stands next to instructions.

Tags that mark the parts of a summary request, control tokens of chat formats, and the labels of the transcript are
disarmed by swapping their first character for a look-alike that no parser takes for the real one. Nothing is lost for
a reader, and disarming twice changes nothing more. Escaping to an entity was not enough: a model reads `&lt;/x&gt;`
as the tag, so entities are disarmed as well.
"""

from __future__ import annotations

import re
from functools import cache

from selfcompact.text.surrogates import encodable

BOUNDARY_TAGS = (
    "conversation",
    "previous-summary",
    "additional-context",
    "instructions",
    "turn-prefix",
    "system",
)
"""Names of tags that must not be forged; a hyphen stands for any of hyphen, underscore, space, or nothing."""

_GAP = r"[\s\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]{0,12}"
"""Bounded, so that hostile text cannot make matching quadratic."""
_LESS = r"(?:[<\uff1c\ufe64\u2039\u3008\u276e]|&(?:amp;)*(?:lt|LT|#0*60|#[xX]0*3[cC]);?)"
_SLASH = r"(?:[/\uff0f\u2044\u2215\u29f8]|&(?:amp;)*(?:sol|#0*47|#[xX]0*2[fF]);?)?"


def _letter(char: str) -> str:
    if char in "-_":
        return r"[-_\s\uff0d\uff3f\u2010-\u2015\u2212]{0,4}"
    wide = chr(ord(char.upper()) + 0xFEE0) + chr(ord(char.lower()) + 0xFEE0)
    return f"[{char.lower()}{char.upper()}{wide}]"


def _name(tag: str) -> str:
    return _GAP.join(_letter(char) for char in tag)


@cache
def _tags() -> re.Pattern[str]:
    """Compiled at its first use: it takes 30 ms, and whoever imports this may never need it."""
    names = "|".join(_name(tag) for tag in BOUNDARY_TAGS)
    return re.compile(f"{_LESS}(?={_GAP}{_SLASH}{_GAP}(?:{names})" + r"(?![a-zA-Z]))")


_CONTROL = re.compile(
    r"<(?=\s*[|\uff5c][^|\uff5c\n<>]{1,60}[|\uff5c]\s*>)"  # Harmony, ChatML, Llama 3, DeepSeek
    r"|<(?=<\s*/?\s*SYS\s*>>)"  # Llama 2
    r"|<(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|tool_call|tool_response|think)>)",  # Llama, Gemma, Qwen
    re.IGNORECASE,
)
_BRACKETS = re.compile(
    r"\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|IMG)\s*\])", re.IGNORECASE
)
_LABELS = re.compile(
    r"^(?P<indent>[ \t]*)\[(?=(?:User|Assistant|Think|Tool Call|Tool Result|Host|Shell|Note)\b[^\]\n]{0,40}\]:)",
    re.IGNORECASE | re.MULTILINE,
)
_ROLES = re.compile(r"^(?P<role>Human|Assistant|System|User):(?=\s)", re.MULTILINE)
_HOST_BLOCKS = re.compile(r"\[(?=[\s]*/?[\s]*host[\s]+block\b|[\s]*end[\s]+of[\s]+host[\s]+block\b)", re.IGNORECASE)

_ANGLE, _BRACKET = "\u27e8", "\u27e6"


def inert(text: str) -> str:
    """The text with boundary tags, control tokens, transcript labels and host markers disarmed.

    Pure and idempotent; never raises.
    """
    text = _tags().sub(_ANGLE, encodable(text))
    text = _CONTROL.sub(_ANGLE, text)
    text = _BRACKETS.sub(_BRACKET, text)
    text = _LABELS.sub(lambda match: match["indent"] + _BRACKET, text)
    text = _ROLES.sub(lambda match: match["role"] + " :", text)
    return without_host_markers(text)


def without_host_markers(text: str) -> str:
    """The text with everything disarmed that could be taken for the beginning or end of a block the host wrote."""
    return _HOST_BLOCKS.sub(_BRACKET, text)
