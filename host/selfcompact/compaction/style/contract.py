"""Summaries checked against the form that was asked for.

Checking never changes what a summary says. What can be put right without touching its content (a missing optional
section, prose before the first heading, a wrapping fence, order) is repaired and named; anything else is a violation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

NONE = "(none)"
"""Stands under a heading that has nothing."""

TURN_SECTION = "Current Turn"
"""Where the host puts the summary of a split turn's beginning; no summariser is asked for it."""


MAX_HEADING_CHARS = 200
"""A longer line is not a heading."""


@dataclass(frozen=True)
class Contract:
    """The headings of a form in their order, those that must have content, and headings below them."""

    headings: tuple[str, ...]
    required: frozenset[str]
    below: tuple[tuple[str, tuple[str, ...]], ...] = ()


SECTIONS_CONTRACT = Contract(
    headings=(
        "Goal",
        "Constraints & Preferences",
        "Progress",
        "Key Decisions",
        "Next Steps",
        "Critical Context",
        "Additional Notes",
    ),
    required=frozenset({"Goal", "Progress", "Next Steps"}),
    below=(("Progress", ("Done", "In Progress", "Blocked")),),
)

COMMON_HEADINGS = (
    "Goal",
    "Constraints & Preferences",
    "Done",
    "In Progress",
    "Blocked",
    "Key Decisions",
    "Next Steps",
    "Critical Context",
    "Additional Notes",
)
"""Where lines of a summary go, whatever its form; see `forms`."""

MARKS = {"Done": "[x] ", "In Progress": "[ ] "}
"""Marks before the items of some of them."""

HANDOFF_CONTRACT = Contract(
    headings=("Progress & Decisions", "Context & Constraints", "Remaining Work", "Data & References"),
    required=frozenset({"Progress & Decisions", "Remaining Work"}),
)

PREFIX_CONTRACT = Contract(
    headings=("Original Request", "Early Progress", "Context for Suffix"), required=frozenset({"Original Request"})
)


@dataclass(frozen=True)
class Checked:
    """A summary in its form, what was repaired, and how it breaks the contract (empty: it holds)."""

    text: str
    repairs: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """One heading of the second level and what stands under it."""

    heading: str
    body: str


def parse_sections(text: str) -> tuple[str, tuple[Section, ...]]:
    """What stands before the first heading, and the sections in their order. Headings in code fences are text."""
    preamble: list[str] = []
    found: list[tuple[str, list[str]]] = []
    fence = ""
    for line in text.splitlines():
        fence = fence_after(line, fence)
        heading = None if fence or len(line) > MAX_HEADING_CHARS else re.match(r"##[ \t]+(.+?)[ \t#]*$", line)
        if heading:
            found.append((heading[1], []))
        else:
            (found[-1][1] if found else preamble).append(line)
    return "\n".join(preamble).strip(), tuple(Section(name, "\n".join(body).strip()) for name, body in found)


def check(text: str, contract: Contract, *, message_count: int = 0) -> Checked:
    """The summary against its contract. Pure; the result's text has every heading of the contract once, in order.

    `message_count` is how many messages it stands for: the more, the more it has to say.
    """
    repairs: list[str] = []
    text = _unwrapped(text.strip(), repairs)
    if not text:
        return Checked("", violations=("the reply has no visible text",))
    preamble, sections = parse_sections(_normal_headings(text, contract, repairs))
    if not sections:
        said = "the reply declines the task" if declines(text) else "the reply has none of the headings that it should"
        return Checked(text, violations=(said,))
    if preamble:
        repairs.append("text before the first heading was left out")
    bodies = _by_heading(sections, contract, repairs)
    violations = [
        f"the section {name!r} is missing" if name not in bodies else f"the section {name!r} is empty"
        for name in contract.headings
        if name in contract.required and not _content(bodies.get(name, ""))
    ]
    absent = (name for name in contract.headings if name not in bodies)
    repairs.extend(f"the missing section {name!r} was added as empty" for name in absent)
    for name, below in contract.below:
        bodies[name] = _with_below(bodies.get(name, ""), below, repairs)
    least = least_chars(message_count)
    said_chars = sum(len(_content(body)) for body in bodies.values())
    if not violations and said_chars < least:
        violations.append(f"{said_chars} characters are too few for {message_count} messages")
    return Checked(render(bodies, contract), tuple(repairs), tuple(violations))


def render(bodies: dict[str, str], contract: Contract) -> str:
    """The text of a form: every heading in order, `(none)` where there is nothing."""
    return "\n\n".join(f"## {name}\n{bodies.get(name, '').strip() or NONE}" for name in contract.headings)


def with_turn(summary: str, prefix: str) -> str:
    """The history's summary with that of a split turn's beginning as its last section."""
    return f"{summary}\n\n## {TURN_SECTION}\n{demoted(prefix)}"


def with_notes(summary: str, notes: Sequence[str], contract: Contract = SECTIONS_CONTRACT) -> str:
    """The summary with further items in the contract's last section."""
    _, sections = parse_sections(summary)
    last = contract.headings[-1]
    lines = "\n".join(f"- {note}" for note in notes)
    parts: list[str] = []
    for section in sections:
        body = section.body
        if section.heading == last:
            body = lines if body == NONE else f"{body}\n{lines}"
        parts.append(f"## {section.heading}\n{body}")
    return "\n\n".join(parts)


def demoted(text: str) -> str:
    """Headings one level lower, outside code fences."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        fence = fence_after(line, fence)
        lines.append(f"#{line}" if not fence and re.match(r"#{1,5} ", line) else line)
    return "\n".join(lines)


def least_chars(message_count: int) -> int:
    """What a summary has to say at least, in characters beside its headings."""
    return 20 if message_count < 10 else 60 if message_count < 50 else 120


def items(body: str) -> list[str]:
    """The list items of a section, each with its indented lines; other lines stand for themselves."""
    found: list[str] = []
    for line in body.splitlines():
        if line.startswith("  ") and found:
            found[-1] += "\n" + line[2:]
        elif line.strip():
            found.append(line)
    return found


def item(line: str) -> str:
    """An item without its list mark."""
    return re.sub(r"^(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?", "", line.strip())


def fence_after(line: str, fence: str) -> str:
    """The code fence that is open after a line, given the one that was open before it."""
    match = re.match(r"[ \t]{0,3}(`{3,}|~{3,})", line)
    if not match:
        return fence
    if not fence:
        return match[1]
    closes = match[1][0] == fence[0] and len(match[1]) >= len(fence) and not line.strip().strip(fence[0])
    return "" if closes else fence


def _unwrapped(text: str, repairs: list[str]) -> str:
    wrapped = re.fullmatch(r"```(?:markdown|md)?[ \t]*\n(.*)\n```", text, re.DOTALL)
    if wrapped and re.match(r"\s*#", wrapped[1]):
        repairs.append("a fence around the whole reply was taken off")
        return wrapped[1].strip()
    tagged = re.fullmatch(r"<(summary|output)>\s*(.*?)\s*</\1>", text, re.DOTALL)
    if tagged:
        repairs.append("a tag around the whole reply was taken off")
        return tagged[2]
    return text


def _normal_headings(text: str, contract: Contract, repairs: list[str]) -> str:
    """Headings of the contract at another level, in other case or in bold, as the contract has them."""
    known = {_key(name): name for name in contract.headings}
    lower = {_key(name) for _, below in contract.below for name in below}
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        fence = fence_after(line, fence)
        match = (
            None
            if fence or len(line) > MAX_HEADING_CHARS
            else re.match(r"(#{1,4})[ \t]+\**(.+?)\**:?[ \t#]*$|\*\*([^*]+?):?\*\*:?[ \t]*$", line)
        )
        if match:
            key = _key(match[2] or match[3])
            if key in known and key not in lower:
                line = _as(f"## {known[key]}", line, repairs)
            elif match[1] and key in lower:
                line = _as(f"### {(match[2]).strip()}", line, repairs)
        lines.append(line)
    return "\n".join(lines)


def _as(wanted: str, line: str, repairs: list[str]) -> str:
    if line.rstrip() != wanted:
        repairs.append(f"the heading {line.strip()!r} was written as {wanted!r}")
    return wanted


def _key(name: str) -> str:
    return re.sub(r"[^a-z]+", "", name.lower().replace("&", "and"))


def _by_heading(sections: Sequence[Section], contract: Contract, repairs: list[str]) -> dict[str, str]:
    bodies: dict[str, str] = {}
    strays: list[str] = []
    for section in sections:
        if section.heading not in contract.headings:
            repairs.append(f"the section {section.heading!r} is not part of the form and went to the end")
            strays.append(f"### {section.heading}\n{demoted(section.body)}".strip())
        elif section.heading in bodies:
            repairs.append(f"the section {section.heading!r} came twice and was joined")
            bodies[section.heading] = f"{bodies[section.heading]}\n{section.body}".strip()
        else:
            bodies[section.heading] = section.body
    if list(bodies) != [name for name in contract.headings if name in bodies]:
        repairs.append("the sections were put in order")
    if strays:
        last = contract.headings[-1]
        kept = bodies.get(last, "")
        bodies[last] = "\n\n".join(filter(None, ("" if kept == NONE else kept, *strays)))
    return bodies


def _with_below(body: str, below: Sequence[str], repairs: list[str]) -> str:
    present = {_key(match) for match in re.findall(r"^###[ \t]+(.+?)[ \t#]*$", body, re.MULTILINE)}
    missing = [name for name in below if _key(name) not in present]
    if not missing:
        return body
    repairs.extend(f"the missing part {name!r} was added as empty" for name in missing)
    if not present and _content(body):
        body = f"### {below[0]}\n{body}"
        missing = [name for name in missing if name != below[0]]
    return "\n\n".join(filter(None, (body.strip(), *(f"### {name}\n{NONE}" for name in missing))))


def _content(body: str) -> str:
    """What a section says: without headings, list marks and `(none)`."""
    lines = (re.sub(r"^[\s>*+-]*(?:\[[ xX]\]|\d+\.)?\s*", "", line) for line in body.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("#") and line != NONE).strip()


def declines(text: str) -> bool:
    """Whether a reply is a refusal in words."""
    return (
        re.match(
            r"(?i)\W*(?:(?:i(?: a|['\u2019])m )?sorry|i can(?:no|['\u2019])t|i(?: a|['\u2019])m (?:not able|unable))",
            text,
        )
        is not None
    )
