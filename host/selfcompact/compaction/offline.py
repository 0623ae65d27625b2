"""A summary without a model, out of what is really in the messages.

It quotes instead of wording anew, so that it can leave something out but never say something that was not said. Each
line has a rank; when the budget is short the highest ranks go in first. Its own earlier summary is parsed back into
lines and merged, never nested, so that the size does not grow with the number of compactions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from selfcompact.compaction import facts
from selfcompact.compaction.contract import (
    NONE,
    SECTIONS_CONTRACT,
    TURN_SECTION,
    parse_sections,
)
from selfcompact.compaction.inert import without_host_markers
from selfcompact.compaction.plan import Plan
from selfcompact.messages import AssistantMessage, Message, is_real_user, text_of

MAX_LINE_CHARS = 600
"""A single quoted line; errors and rules are seldom longer, pasted text is."""

MAX_REQUEST_CHARS = 2_000
"""The goal: the user's own words."""

Line = tuple[int, str]
"""Rank (0 first) and text."""

_GOAL, _RULES, _DONE, _DOING, _BLOCKED = "Goal", "Constraints & Preferences", "Done", "In Progress", "Blocked"
_DECISIONS, _NEXT, _CONTEXT, _NOTES = "Key Decisions", "Next Steps", "Critical Context", "Additional Notes"


@dataclass
class _Draft:
    lines: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, section: str, text: str, rank: int) -> None:
        text = text.strip()
        if text and text != NONE:
            known = self.lines.setdefault(section, {})
            known[text] = min(rank, known.get(text, rank))


def offline_summary(
    plan: Plan,
    *,
    budget_tokens: int,
    redact: Callable[[str], str] = str,
) -> str:
    """A summary of what the plan takes out of the context, in the `sections` form, within `budget_tokens`.

    Pure: the same plan gives the same text. Never raises for what messages say.
    """
    messages = plan.messages
    draft = _Draft()
    if plan.previous_summary:
        _take_previous(draft, redact(plan.previous_summary))
    _take_requests(draft, messages, redact)
    _take_work(draft, messages, redact)
    _take_context(draft, plan, messages, redact)
    return _fitted(draft, budget_tokens, plan.estimator.text)


def _take_previous(draft: _Draft, previous: str) -> None:
    """Lines of an earlier summary, each below what the messages say now."""
    preamble, sections = parse_sections(previous)
    for line in preamble.splitlines():
        draft.add(_NOTES, _item(line), 5)
    for section in sections:
        name = section.heading if section.heading in SECTIONS_CONTRACT.headings else _NOTES
        if name == "Progress":
            name = _DONE
        for line in _items(section.body):
            heading = re.match(r"### (.+)", line)
            if heading and section.heading == "Progress":
                name = heading[1] if heading[1] in (_DONE, _DOING, _BLOCKED) else _DONE
                name = _DONE if name == _DOING else name
            elif not heading:
                rank = {_GOAL: 1, _RULES: 1, _BLOCKED: 3, _CONTEXT: 3, _DECISIONS: 4}.get(name, 5)
                if name != _NEXT and section.heading != TURN_SECTION:
                    draft.add(name, _item(line), _rank_of(line, rank))
                elif section.heading == TURN_SECTION:
                    draft.add(_DONE, _item(line), 4)


def _rank_of(line: str, rank: int) -> int:
    """Files and errors keep their rank over many compactions."""
    return 1 if re.match(r"\W*(?:Modified:|Error)", line) else rank


def _take_requests(draft: _Draft, messages: Sequence[Message], redact: Callable[[str], str]) -> None:
    requests = [text_of(m) for m in messages if is_real_user(m) and text_of(m).strip()]
    if requests:
        if not draft.lines.get(_GOAL):
            draft.add(_GOAL, _short(redact(requests[0]), MAX_REQUEST_CHARS), 0)
        newest = _short(redact(requests[-1]), MAX_REQUEST_CHARS)
        if len(requests) > 1 or draft.lines.get(_GOAL):
            draft.add(_GOAL, f"Newest request: {newest}" if newest not in draft.lines[_GOAL] else newest, 0)
    for rule in facts.rules(messages):
        draft.add(_RULES, _short(redact(rule)), 1)
    for request in requests[1:-1]:
        draft.add(_NOTES, f"The user also said: {_short(redact(' '.join(request.split())), 240)}", 4)


def _take_work(draft: _Draft, messages: Sequence[Message], redact: Callable[[str], str]) -> None:
    calls: dict[str, int] = {}
    said: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                calls[call.name] = calls.get(call.name, 0) + 1
            first = next((s for s in facts.sentences(text_of(message)) if len(s) > 3), "")
            if first:
                said.append(first)
    if calls:
        counted = ", ".join(f"{name} {count}" for name, count in calls.items())
        draft.add(_DONE, f"[x] Calls in this part: {counted}", 4)
    for age, line in enumerate(reversed(said)):
        if age == 0:
            draft.add(_DOING, f"[ ] {_short(redact(line))}", 1)
        else:
            draft.add(_DONE, f"[x] {_short(redact(line), 240)}", 3 if age < 12 else 5)
    for line in facts.decisions(messages)[-20:]:
        draft.add(_DECISIONS, _short(redact(line)), 3)


def _take_context(draft: _Draft, plan: Plan, messages: Sequence[Message], redact: Callable[[str], str]) -> None:
    for path in plan.files.modified_files:
        draft.add(_CONTEXT, f"Modified: {redact(path)}", 0)
    for path in plan.files.read_files:
        draft.add(_CONTEXT, f"Read: {redact(path)}", 4)
    for error in facts.errors(messages):
        times = f", {error.count} times" if error.count > 1 else ""
        where = _short(redact(error.source), 140)
        draft.add(_CONTEXT, f"Error ({error.state}{times}) in {where}: {_short(redact(error.text))}", 1)
        if error.state.startswith("not"):
            draft.add(_BLOCKED, _short(redact(error.text)), 3)
    for name, made_of in facts.names_defined(messages).items():
        draft.add(_CONTEXT, f"A cell made `{name}`: {redact(made_of)}", 2)
    for question in facts.open_questions(messages):
        draft.add(_NOTES, f"Open question: {_short(redact(question))}", 0)
    if plan.instructions:
        draft.add(_NOTES, f"Asked for with this compaction: {_short(redact(plan.instructions), MAX_REQUEST_CHARS)}", 1)
    draft.add(_NEXT, "Go on from the newest messages below; check files and names before relying on this summary.", 0)


def _fitted(draft: _Draft, budget_tokens: int, tokens: Callable[[str], int]) -> str:
    """The draft's lines by rank, newest first within a rank, as many as fit, in their own order."""
    ranked: list[tuple[int, int, str, str]] = []
    for section, lines in draft.lines.items():
        for order, (text, rank) in enumerate(lines.items()):
            ranked.append((rank, -order if rank > 1 else order, section, text))
    used = tokens(_render({}))
    kept: set[tuple[str, str]] = set()
    for rank, _, section, text in sorted(ranked, key=lambda item: item[:2]):
        cost = tokens(text) + 3
        if used + cost > budget_tokens and not (rank == 0 and section == _GOAL and not kept):
            continue
        used += cost
        kept.add((section, text))
    return _render({name: [t for t in lines if (name, t) in kept] for name, lines in draft.lines.items()})


def _render(lines: dict[str, list[str]]) -> str:
    parts: list[str] = []
    for name in SECTIONS_CONTRACT.headings:
        parts.append(f"## {name}")
        if name == "Progress":
            for below in (_DONE, _DOING, _BLOCKED):
                parts += [f"### {below}", _listed(lines.get(below, [])), ""]
        else:
            parts += [_listed(lines.get(name, [])), ""]
    return without_host_markers("\n".join(parts).strip())


def _listed(lines: Sequence[str]) -> str:
    """A list; further lines of an item are indented, so that nothing in it can be taken for a heading."""
    return "\n".join("- " + line.replace("\n", "\n  ") for line in lines) or NONE


def _items(body: str) -> list[str]:
    """The list items of a section, each with its indented lines; other lines stand for themselves."""
    found: list[str] = []
    for line in body.splitlines():
        if line.startswith("  ") and found:
            found[-1] += "\n" + line[2:]
        elif line.strip():
            found.append(line)
    return found


def _item(line: str) -> str:
    return re.sub(r"^(?:[-*+]|\d+[.)])\s+", "", line.strip())


def _short(text: str, limit: int = MAX_LINE_CHARS) -> str:
    text = text.strip()
    return (
        text
        if len(text) <= limit
        else f"{text[: limit * 2 // 3]} [… {len(text) - limit:,} characters …] {text[-(limit // 3) :]}"
    )
