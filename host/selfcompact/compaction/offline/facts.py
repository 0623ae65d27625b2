"""Facts told from messages without a model: rules, questions, errors and their last state, names made in cells.

Everything here quotes; nothing is worded anew. Pure functions over messages, linear in their text.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from selfcompact.codec import Json
from selfcompact.compaction.planning.files import CELL_TOOLS
from selfcompact.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolResultMessage,
    is_real_user,
    text_of,
)

_RULE = re.compile(
    r"\b(?:must|never|always|do ?n[o']t|do not|don\u2019t|only|without|at most|at least|no more than|instead of|"
    r"prefer|avoid|wants?|please|make sure|ensure|keep|leave .{1,40} alone|should(?: not|n't)?|required?|"
    r"forbidden|not allowed)\b"
    r"|\u5fc5\u987b|\u4e0d\u8981|\u4e0d\u5f97|\u7981\u6b62|\u52a1\u5fc5|\u4e00\u5b9a|\u3057\u306a\u3044\u3067|\u5fc5\u305a|\u3059\u308b\u306a",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decided|decision|because|instead of|rather than|chose|choose|opted|will use|going with|trade-?off|turns out|"
    r"root cause|the (?:problem|cause|reason) (?:is|was))\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])[)\"'\u201d\u300d]*\s+|\n+")
_ERROR_LINE = re.compile(
    r"^(?:E\s+)?(?P<line>(?:[\w.]*(?:Error|Exception|Warning|Interrupt|Exit|Timeout|Failure)\b|FAILED|FATAL|fatal|error(?:\[\w+\])?|ERROR)"
    r"(?::|\s).*)$",
    re.MULTILINE,
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|^-{20,}\n\w*(?:Error|Exception)", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


_EXACT = re.compile(
    r"\d|https?://|`[^`]+`|[\w-]+/[\w./-]+|\b\w+\.(?:py|js|ts|md|toml|json|yaml|yml|txt|csv|sh|c|h|go|rs)\b"
    r"|\b\w+_\w+\b|\b[a-z]+[A-Z]\w*\b|\b[A-Z]{2,}[A-Z0-9_-]*\b|[\"\u201c][^\"\u201d]{2,80}[\"\u201d]"
)
_REPORT = re.compile(
    r"\b(?:done|fixed|added|created|removed|renamed|updated|wrote|written|implemented|passes|passed|passing|works|working|"
    r"found|finished|complete[d]?|installed|verified|confirmed|deleted|moved|changed|failed|fails|broken)\b",
    re.IGNORECASE,
)
_CHATTER = re.compile(
    r"^(?:let me|now |i'?ll |i will |perfect|great|good|ok(?:ay)?\b|sure|you'?re (?:absolutely )?right|got it|hmm)",
    re.IGNORECASE,
)

MAX_CELL_CHARS = 100_000
"""A longer cell is data and not code; its names are not looked for."""

PASTED_CHARS = 3_000
"""A longer message is mostly pasted; its sentences are looked at only near its two ends."""

PASTED_ENDS_CHARS = 1_000
"""How far from each end of such a message."""


@dataclass(frozen=True)
class ErrorFact:
    """One distinct error, word for word, and how it stood at the end of the messages."""

    text: str
    source: str
    count: int
    is_over: bool

    @property
    def state(self) -> str:
        """The last state in words."""
        return "the same call went well later" if self.is_over else "not seen to be solved"


def sentences(text: str) -> Iterator[str]:
    """Sentences and lines of a text, without code fences, list marks and blank ones."""
    plain = re.sub(r"```.*?(?:```|\Z)", "\n", text, flags=re.DOTALL)
    for part in _SENTENCE.split(plain):
        if part is not None and (said := re.sub(r"^\s*(?:[-*>#]+|\d+[.)])\s+", "", part).strip()):
            yield said


def statements(text: str) -> tuple[str, ...]:
    """The sentences of a message, short ones joined to the one before where they say nothing by themselves."""
    if len(text) > PASTED_CHARS:
        text = f"{text[:PASTED_ENDS_CHARS]}\n{text[-PASTED_ENDS_CHARS:]}"
    found: list[str] = []
    for line in re.sub(r"```.*?(?:```|\Z)", "\n", text, flags=re.DOTALL).splitlines():
        # Two sentences of one line belong together: "The cap is 5. Never exceed it." is one rule.
        parts = list(sentences(line))
        if len(line) <= 240 and parts:
            found.append(" ".join(parts))
        else:
            found.extend(parts)
    return tuple(dict.fromkeys(found))


def is_rule(sentence: str) -> bool:
    """Whether a sentence of the user sets a rule or tells a wish."""
    return _RULE.search(sentence) is not None


def is_exact(sentence: str) -> bool:
    """Whether a sentence has something in it that cannot be guessed: a number, a name, a path, a quotation."""
    return _EXACT.search(sentence) is not None


def is_chatter(sentence: str) -> bool:
    """Whether a sentence of the agent only announces or agrees."""
    return _CHATTER.search(sentence) is not None and not is_exact(sentence)


def is_report(sentence: str) -> bool:
    """Whether a sentence of the agent reports an outcome."""
    return len(sentence) >= 20 and not _CHATTER.search(sentence) and _REPORT.search(sentence) is not None


def is_decision(sentence: str) -> bool:
    """Whether a sentence of the agent gives a reason or a choice."""
    return 20 <= len(sentence) <= 400 and not _CHATTER.search(sentence) and _DECISION.search(sentence) is not None


def open_questions(messages: Sequence[Message]) -> tuple[str, ...]:
    """Questions that nobody answered: those of the last agent message if no user came after it, and those of the
    last user message if no agent text came after it."""
    found: list[str] = []
    last_user = _last(messages, is_real_user)
    last_said = _last(messages, lambda m: isinstance(m, AssistantMessage) and bool(text_of(m).strip()))
    if last_said > last_user:
        found += [said for said in sentences(text_of(messages[last_said])) if is_question(said)]
    elif last_user >= 0:
        found += [said for said in sentences(text_of(messages[last_user])) if is_question(said)]
    return _unique(found)


def is_question(sentence: str) -> bool:
    """Whether a sentence asks something."""
    return sentence.rstrip(" )\"'*`\u201d\u300d").endswith(("?", "\uff1f"))


def errors(messages: Iterable[Message]) -> tuple[ErrorFact, ...]:
    """Every distinct error in tool results with its last state, in the order they first came.

    An error is over when the same call, or one on the same target, later went well.
    """
    calls: dict[str, ToolCall] = {}
    seen: dict[str, tuple[str, str, int, bool]] = {}
    open_by_target: dict[str, list[str]] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls.update((call.id, call) for call in message.tool_calls)
        elif isinstance(message, ToolResultMessage):
            call = calls.get(message.tool_call_id)
            target = _target(message.tool_name, call.arguments if call else {})
            lines = error_lines(message)
            if not lines:
                for text in open_by_target.pop(target, ()):
                    text_, source, count, _ = seen[text]
                    seen[text] = (text_, source, count, True)
                continue
            for line in lines:
                count = seen[line][2] if line in seen else 0
                seen[line] = (line, target, count + 1, False)
                open_by_target.setdefault(target, []).append(line)
    return tuple(ErrorFact(text, source, count, over) for text, source, count, over in seen.values())


def error_lines(message: ToolResultMessage) -> tuple[str, ...]:
    """The lines of a result that name an error; its last line when it is an error without such a line."""
    text = _ANSI.sub("", text_of(message))
    if not message.is_error and not _TRACEBACK.search(text):
        return ()
    found = [match["line"].strip()[:500] for match in _ERROR_LINE.finditer(text)]
    if found:
        return _unique(found[-3:])
    # "Command exited with code 1" says nothing by itself, so the line before it comes along.
    last = " / ".join([line.strip()[:300] for line in text.splitlines() if line.strip()][-2:])
    return (last,) if last and message.is_error else ()


def outcomes(messages: Iterable[Message]) -> tuple[str, ...]:
    """What calls printed last, each with the first line of its cell or command; errors and silent calls left out."""
    calls: dict[str, ToolCall] = {}
    found: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls.update((call.id, call) for call in message.tool_calls)
        elif isinstance(message, ToolResultMessage) and not error_lines(message):
            call = calls.get(message.tool_call_id)
            code = next((v for k in ("code", "command") if call and isinstance(v := call.arguments.get(k), str)), "")
            lines = [line.strip() for line in _ANSI.sub("", text_of(message)).splitlines() if line.strip()]
            if code.strip() and lines:
                found.append(f"`{_cut(code.strip().splitlines()[0], 80)}` printed last: {_cut(lines[-1], 160)}")
    return _unique(found)


def names_defined(messages: Iterable[Message]) -> Mapping[str, str]:
    """Names that cells made at their top level, each with what it was last made of (one line)."""
    names: dict[str, str] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                code = call.arguments.get("code")
                if call.name.lower() in CELL_TOOLS and isinstance(code, str):
                    for name, made_of in cell_names(code):
                        names.pop(name, None)
                        names[name] = made_of
    return names


def cell_names(code: str) -> tuple[tuple[str, str], ...]:
    """The names that one cell binds at its top level; none when it does not parse."""
    if len(code) > MAX_CELL_CHARS:
        return ()
    plain = "\n".join("" if re.match(r"\s*[!%?]", line) else line for line in re.split(r"\r\n|\r|\n", code))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(plain)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: list[tuple[str, str]] = []
    lines = plain.split("\n")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append((node.name, "function"))
        elif isinstance(node, ast.ClassDef):
            found.append((node.name, "class"))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found.extend((name, _one_line(lines, value)) for name, value in _bound(target, node.value))
    return tuple(item for item in found if not item[0].startswith("_"))


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment binds, each with its own value where both sides are written out."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else ()
        for index, part in enumerate(target.elts):
            yield from _bound(part.value if isinstance(part, ast.Starred) else part, parts[index] if parts else value)


def _one_line(lines: Sequence[str], node: ast.expr) -> str:
    """The source of an expression, its first line at most. `ast.get_source_segment` splits the whole cell each time,
    which is quadratic in a cell of many assignments."""
    first = lines[node.lineno - 1].encode()
    end = node.end_col_offset if node.end_lineno == node.lineno else None
    text = " ".join(first[node.col_offset : end].decode(errors="replace").split())
    text = text if end is not None else f"{text} ..."
    return text if len(text) <= 80 else f"{text[:77]}..."


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _target(tool: str, arguments: Mapping[str, Json]) -> str:
    """What a call was about: its file, the first line of its command or code."""
    for key in ("path", "file_path", "command", "code"):
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            first = value.strip().splitlines()[0].strip()
            return f"{tool}: {first if len(first) <= 120 else first[:117] + '...'}"
    return tool


def _last(messages: Sequence[Message], wanted: object) -> int:
    assert callable(wanted)
    return next((i for i in range(len(messages) - 1, -1, -1) if wanted(messages[i])), -1)


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
