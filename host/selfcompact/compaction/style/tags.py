"""The tagged form of the `kimi` style: parsed into values, checked, repaired, written.

Code under "Latest version" may contain anything, these very tags too. So tags count only where they stand alone on a
line outside a code fence, and code is always written in a fence that is longer than any in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from selfcompact.compaction.style.contract import NONE, Checked, declines, fence_after, item, items, least_chars

TAGS = ("current_focus", "environment", "completed_tasks", "active_issues", "code_state", "important_context")
"""The tags in their order."""

REQUIRED = ("current_focus",)
"""Tags that must have content: everything else may really be empty."""

_SUMMARY, _ELEMENTS, _LATEST = "**Summary:**", "**Key elements:**", "**Latest version:**"


@dataclass(frozen=True)
class FileState:
    """One file as the work left it. `latest_version` is its critical code, without a fence."""

    name: str
    summary: str = ""
    key_elements: str = ""
    latest_version: str = ""


@dataclass(frozen=True)
class TaggedSummary:
    """A summary of the `kimi` style. Every part is Markdown text without its tag."""

    current_focus: str = ""
    environment: str = ""
    completed_tasks: str = ""
    active_issues: str = ""
    code_state: tuple[FileState, ...] = ()
    important_context: str = ""


def is_tagged(text: str) -> bool:
    """Whether a text looks like a summary of this form."""
    return re.search(r"^<current_focus>\s*$", text, re.MULTILINE) is not None


def parse(text: str) -> TaggedSummary:
    """The parts of a text; parts that are not there are empty. Never raises."""
    parts = _parts(text, TAGS)[0]
    files = tuple(_file(body) for name, body in _blocks(parts.get("code_state", ""), "file") if name)
    return TaggedSummary(
        **{name: body for name, body in parts.items() if name != "code_state"},
        code_state=tuple(file for file in files if file.name),
    )


def render(summary: TaggedSummary) -> str:
    """The text of a summary: every tag once, in order."""
    written: list[str] = []
    for name in TAGS:
        if name == "code_state":
            body = "\n\n".join(_render_file(file) for file in summary.code_state)
        else:
            body = getattr(summary, name).strip()
        written.append(f"<{name}>\n{body or NONE}\n</{name}>")
    return "\n\n".join(written)


def check(text: str, *, message_count: int = 0) -> Checked:
    """The text against the contract. Missing tags, another order and text outside the tags are repaired."""
    text = text.strip()
    if not text:
        return Checked("", violations=("the reply has no visible text",))
    text = _unwrapped(text)
    parts, outside, order = _parts(text, TAGS)
    if not parts:
        said = "the reply declines the task" if declines(text) else "the reply has none of the tags that it should"
        return Checked(text, violations=(said,))
    repairs = [f"the missing part {name!r} was added as empty" for name in TAGS if name not in parts]
    if outside.strip():
        repairs.append("text outside the tags was left out")
    if order != sorted(order, key=TAGS.index):
        repairs.append("the parts were put in order")
    violations = [
        f"the part {name!r} is missing or empty" for name in REQUIRED if parts.get(name, "").strip() in ("", NONE)
    ]
    summary = parse(text)
    if parts.get("code_state", "").strip() not in ("", NONE) and not summary.code_state:
        violations.append("the part 'code_state' has no <file> blocks")
    said_chars = sum(len(body.strip()) for body in parts.values() if body.strip() != NONE)
    if not violations and said_chars < least_chars(message_count):
        violations.append(f"{said_chars} characters are too few for {message_count} messages")
    return Checked(render(summary), tuple(repairs), tuple(violations))


def with_context(summary: TaggedSummary, text: str) -> TaggedSummary:
    """The summary with more important context."""
    known = summary.important_context.strip()
    return replace(summary, important_context=text if known in ("", NONE) else f"{known}\n{text}")


def of_lines(lines: Mapping[str, Sequence[str]]) -> TaggedSummary:
    """A summary out of lines by the headings of the `sections` form."""

    def listed(*headings: str) -> str:
        found = [line for heading in headings for line in lines.get(heading, ())]
        return "\n".join("- " + line.replace("\n", "\n  ") for line in found)

    return TaggedSummary(
        current_focus=listed("Goal", "In Progress", "Next Steps"),
        environment=NONE,
        completed_tasks=listed("Done"),
        active_issues=listed("Blocked"),
        important_context=listed("Constraints & Preferences", "Key Decisions", "Critical Context", "Additional Notes"),
    )


def to_lines(summary: TaggedSummary) -> list[tuple[str, str]]:
    """The lines of a summary by the headings of the `sections` form."""
    places = (
        ("Goal", summary.current_focus),
        ("Critical Context", summary.environment),
        ("Done", summary.completed_tasks),
        ("Blocked", summary.active_issues),
        ("Critical Context", summary.important_context),
    )
    found = [(heading, item(line)) for heading, body in places for line in items(body) if line.strip() != NONE]
    files = (f"{file.name}: {file.summary}\n{file.latest_version}".strip() for file in summary.code_state)
    return [*found, *(("Critical Context", text) for text in files)]


def _unwrapped(text: str) -> str:
    wrapped = re.fullmatch(r"```(?:xml|markdown)?[ \t]*\n(.*)\n```", text, re.DOTALL)
    return wrapped[1] if wrapped and wrapped[1].lstrip().startswith("<") else text


def _parts(text: str, names: Sequence[str]) -> tuple[dict[str, str], str, list[str]]:
    """Bodies by tag, the text outside, and the tags in the order they came."""
    bodies: dict[str, list[str]] = {}
    outside: list[str] = []
    order: list[str] = []
    inside = fence = ""
    for line in text.splitlines():
        fenced = bool(fence)
        fence = fence_after(line, fence)
        tag = None if fenced or fence else re.fullmatch(r"\s*<(/?)([a-z_]+)>\s*", line)
        if tag and tag[2] in names and not tag[1] and not inside:
            inside = tag[2]
            if inside not in bodies:
                order.append(inside)
            bodies.setdefault(inside, [])
        elif tag and tag[2] == inside and tag[1]:
            inside = ""
        else:
            one_line = None if fenced or fence or inside else re.fullmatch(r"\s*<([a-z_]+)>(.*)</\1>\s*", line)
            if one_line and one_line[1] in names:
                order.append(one_line[1])
                bodies.setdefault(one_line[1], []).append(one_line[2])
            else:
                (bodies[inside] if inside else outside).append(line)
    return {name: "\n".join(body).strip("\n") for name, body in bodies.items()}, "\n".join(outside), order


def _blocks(text: str, name: str) -> list[tuple[str, str]]:
    """The bodies of repeated tags, each with the tag's name."""
    found: list[tuple[str, list[str]]] = []
    inside = False
    fence = ""
    for line in text.splitlines():
        fenced = bool(fence)
        fence = fence_after(line, fence)
        if not fenced and not fence and line.strip() == f"<{name}>" and not inside:
            inside = True
            found.append((name, []))
        elif not fenced and not fence and line.strip() == f"</{name}>":
            inside = False
        elif inside:
            found[-1][1].append(line)
    return [(tag, "\n".join(body)) for tag, body in found]


def _file(body: str) -> FileState:
    parts: dict[str, list[str]] = {"": []}
    current = fence = ""
    for line in body.splitlines():
        fenced = bool(fence)
        fence = fence_after(line, fence)
        label = (
            None if fenced else next((mark for mark in (_SUMMARY, _ELEMENTS, _LATEST) if line.startswith(mark)), None)
        )
        if label:
            current = label
            parts[current] = [line.removeprefix(label).strip()]
        else:
            parts[current].append(line)
    texts = {name: "\n".join(lines).strip("\n") for name, lines in parts.items()}
    return FileState(
        name=texts[""].strip().strip("`"),
        summary=texts.get(_SUMMARY, "").strip(),
        key_elements=texts.get(_ELEMENTS, "").strip(),
        latest_version=_without_fence(texts.get(_LATEST, "")),
    )


def _without_fence(text: str) -> str:
    fenced = re.fullmatch(r"\s*(`{3,}|~{3,})[^\n]*\n(.*?)\n?\1[ \t]*\s*", text, re.DOTALL)
    return fenced[2] if fenced else text


def _render_file(file: FileState) -> str:
    longest = max((len(run) for run in re.findall(r"`+", file.latest_version)), default=0)
    fence = "`" * max(3, longest + 1)
    code = f"\n{fence}\n{file.latest_version}\n{fence}" if file.latest_version else ""
    elements = f"\n{file.key_elements}" if file.key_elements else ""
    return f"<file>\n{file.name}\n\n{_SUMMARY}\n{file.summary}\n\n{_ELEMENTS}{elements}\n\n{_LATEST}{code}\n</file>"
