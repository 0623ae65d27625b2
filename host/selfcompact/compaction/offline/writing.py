"""A summary without a model, out of what is really in the messages.

It quotes instead of wording anew, so that it can leave something out but never say something that was not said. Each
line has a rank; when the budget is short the lowest ranks go in first. Its own earlier summary is parsed back into
lines and merged, never nested, and the budget follows the size of what is summarised, so that the text does not grow
with the number of compactions. Where a later statement of the user only changes an amount or a date, the later counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from selfcompact.compaction.offline import facts
from selfcompact.compaction.planning.plan import Plan
from selfcompact.compaction.style.contract import NONE
from selfcompact.compaction.style.forms import Form, read_any
from selfcompact.messages import AssistantMessage, Message, is_real_user, text_of
from selfcompact.text.inert import without_host_markers

SHARE = 0.15
"""Size of the summary in relation to what it replaces; denser ones lose what nothing else carries."""

MIN_TOKENS, MAX_TOKENS = 1_500, 8_000
"""The summary of even a short stretch may be this long, and that of a long one no longer."""

MAX_LINE_CHARS = 500
"""A single quoted line; errors and rules are seldom longer, pasted text is."""

MAX_OUTCOMES = 12
"""Calls whose last line of output is quoted; what older ones found is in names, files and reports."""

MAX_REQUEST_CHARS = 1_500
"""A request of the user, in the user's own words."""

_GOAL, _RULES, _DONE, _DOING, _BLOCKED = "Goal", "Constraints & Preferences", "Done", "In Progress", "Blocked"
_DECISIONS, _NEXT, _CONTEXT, _NOTES = "Key Decisions", "Next Steps", "Critical Context", "Additional Notes"

_NEWEST, _EARLIER, _QUESTION, _ASKED = "Newest request: ", "Earlier request: ", "Open question: ", "Asked to keep: "
_MODIFIED, _READ, _ERROR, _MADE = "Modified files: ", "Files read: ", "Error (", "A cell made "
_GO_ON = "Go on from the newest messages."

_OUR_LINES = (_MODIFIED, _READ, _ASKED, "Calls: ")
"""Beginnings of lines that are made anew each time, so that an earlier one is not taken over."""

_AMOUNT = re.compile(
    r"\b(?:caps?|budget|limit|deadline|due|versions?|port|timeout|threshold|target|at most|at least|maximum|minimum)\b",
    re.IGNORECASE,
)
_VALUE = re.compile(r"[$€£]?\d[\d,.:/-]*%?")


@dataclass
class _Draft:
    """Lines by section, each with its rank; a line that comes again moves to the end and keeps its better rank."""

    lines: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, section: str, text: str, rank: int) -> None:
        text = text.strip()
        if not text or text == NONE:
            return
        known = self.lines.setdefault(section, {})
        if _AMOUNT.search(text):
            shape = _VALUE.sub("#", text)
            for other in [line for line in known if line != text and _VALUE.sub("#", line) == shape]:
                rank = min(rank, known.pop(other))
        rank = min(rank, known.pop(text, rank))
        known[text] = rank


def offline_summary(plan: Plan, *, budget_tokens: int, redact: Callable[[str], str] = str) -> str:
    """A summary of what the plan takes out of the context, in the form of its style, within `budget_tokens`.

    Pure: the same plan gives the same text. Never raises for what messages say.
    """
    draft = _Draft()
    messages = plan.messages
    if plan.previous_summary:
        _take_previous(draft, redact(plan.previous_summary), renewed=any(map(is_real_user, messages)))
    _take_requests(draft, messages, redact)
    _take_work(draft, messages, redact)
    _take_context(draft, plan, messages, redact)
    return without_host_markers(_fitted(draft, plan.form, budget_tokens, plan.estimator.text))


def fitting_tokens(plan: Plan, limit_tokens: int) -> int:
    """How long the summary of this plan should be: a share of what it replaces, between a minimum and the limit."""
    replaced = sum(map(plan.estimator.message, plan.messages)) + plan.estimator.text(plan.previous_summary or "")
    return min(limit_tokens, max(MIN_TOKENS, min(MAX_TOKENS, int(replaced * SHARE))))


def _take_previous(draft: _Draft, previous: str, *, renewed: bool) -> None:
    """Lines of an earlier summary. `renewed`: the user spoke since, so that old requests and questions are no longer
    the newest ones."""
    for heading, text in read_any(previous):
        if heading == _NEXT or text.startswith(_OUR_LINES) or (renewed and text.startswith(_QUESTION)):
            continue
        if renewed and text.startswith(_NEWEST):
            draft.add(_NOTES, _EARLIER + text.removeprefix(_NEWEST), 3)
            continue
        place = _DONE if heading == _DOING else heading
        draft.add(place, text, _earlier_rank(place, text))


def _earlier_rank(section: str, text: str) -> int:
    if text.startswith(_ERROR):
        return 2
    ranks = {_GOAL: 1, _RULES: 1, _CONTEXT: 2, _BLOCKED: 3, _DECISIONS: 4}
    return 1 if text.startswith((_QUESTION, _NEWEST)) else ranks.get(section, 5)


def _take_requests(draft: _Draft, messages: Sequence[Message], redact: Callable[[str], str]) -> None:
    """What the user said: the first and the newest request whole, rules and statements with something exact in them
    sentence by sentence."""
    requests = [redact(text_of(m)).strip() for m in messages if is_real_user(m) and text_of(m).strip()]
    if not requests:
        return
    if not draft.lines.get(_GOAL):
        first = next((request for request in requests if len(request.split()) > 2), requests[0])
        draft.add(_GOAL, _short(first, MAX_REQUEST_CHARS), 1)
    for request in requests:
        for sentence in facts.statements(request):
            if facts.is_rule(sentence):
                draft.add(_RULES, _short(sentence), 1)
            elif facts.is_exact(sentence):
                draft.add(_CONTEXT, _short(sentence), 2)
            elif request != requests[-1]:
                draft.add(_NOTES, _short(sentence, 240), 5)
    newest = _short(requests[-1], MAX_REQUEST_CHARS)
    if newest not in draft.lines.get(_GOAL, {}):
        draft.add(_GOAL, _NEWEST + newest, 0)
    else:
        draft.add(_GOAL, newest, 0)


def _take_work(draft: _Draft, messages: Sequence[Message], redact: Callable[[str], str]) -> None:
    calls: dict[str, int] = {}
    said: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                calls[call.name] = calls.get(call.name, 0) + 1
            said.extend(sentence for sentence in facts.statements(redact(text_of(message))) if len(sentence) > 3)
    if calls:
        draft.add(_DONE, "Calls: " + ", ".join(f"{name} {count}" for name, count in calls.items()), 4)
    for outcome in facts.outcomes(messages)[-MAX_OUTCOMES:]:
        draft.add(_DONE, redact(outcome), 4)
    for sentence in [sentence for sentence in said[-1:] if not facts.is_chatter(sentence)]:
        draft.add(_DOING, _short(sentence), 1)
    for sentence in said[:-1]:
        if facts.is_report(sentence):
            draft.add(_DONE, _short(sentence, 300), 3 if facts.is_exact(sentence) else 4)
        elif facts.is_decision(sentence):
            draft.add(_DECISIONS, _short(sentence, 300), 3)
        elif facts.is_exact(sentence):
            draft.add(_DONE, _short(sentence, 240), 5)


def _take_context(draft: _Draft, plan: Plan, messages: Sequence[Message], redact: Callable[[str], str]) -> None:
    if plan.files.modified_files:
        draft.add(_CONTEXT, _MODIFIED + ", ".join(map(redact, plan.files.modified_files)), 0)
    if plan.files.read_files:
        draft.add(_CONTEXT, _READ + ", ".join(map(redact, plan.files.read_files)), 3)
    for error in facts.errors(messages):
        times = f", {error.count} times" if error.count > 1 else ""
        where = _short(redact(error.source), 140)
        draft.add(_CONTEXT, f"{_ERROR}{error.state}{times}) in {where}: {_short(redact(error.text))}", 1)
        if not error.is_over:
            draft.add(_BLOCKED, _short(redact(error.text)), 3)
    for name, made_of in list(facts.names_defined(messages).items())[-40:]:
        draft.add(_CONTEXT, f"{_MADE}`{name}`: {redact(made_of)}", 4)
    for question in facts.open_questions(messages):
        draft.add(_NOTES, _QUESTION + _short(redact(question)), 0)
    if plan.instructions:
        draft.add(_NOTES, _ASKED + _short(redact(plan.instructions), MAX_REQUEST_CHARS), 1)
    draft.add(_NEXT, _GO_ON, 0)


def _fitted(draft: _Draft, form: Form, budget_tokens: int, tokens: Callable[[str], int]) -> str:
    """The draft's lines by rank, the newest first within a rank, as many as fit, in their own order."""
    ranked = [
        (rank, -order, section, text)
        for section, lines in draft.lines.items()
        for order, (text, rank) in enumerate(lines.items())
    ]
    room = budget_tokens - tokens(form.render({}))
    kept: set[tuple[str, str]] = set()
    for _, _, section, text in sorted(ranked, key=lambda item: item[:2]):
        cost = tokens(f"- [x] {text}\n")
        if cost <= room:
            room -= cost
            kept.add((section, text))
    chosen = {name: [text for text in lines if (name, text) in kept] for name, lines in draft.lines.items()}
    if not chosen.get(_GOAL) and draft.lines.get(_GOAL):
        chosen[_GOAL] = [_short(list(draft.lines[_GOAL])[-1], max(40, room * 3))]
    return form.render(chosen)


def _short(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """The text, or its two ends. Never longer than the limit and the note between the ends."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]} [… {len(text) - head - tail:,} characters …] {text[len(text) - tail :]}"
