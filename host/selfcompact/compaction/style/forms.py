"""Output contracts: what a style's summary must look like, and what the engine needs to do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from selfcompact.compaction.style import contract as sections
from selfcompact.compaction.style import tags
from selfcompact.compaction.style.contract import Checked, Contract

Lines = Mapping[str, Sequence[str]]
"""Lines by the headings of the `sections` form (`Done`, `In Progress` and `Blocked` in the place of `Progress`): the
common ground on which a summary of one form is read by another, and in which the offline summariser writes."""


class Form(Protocol):
    """One output contract. Pure; nothing here raises for what a text says."""

    def check(self, text: str, *, message_count: int = 0) -> Checked:
        """The text in its form, what was repaired, and how it breaks the contract."""

    def with_notes(self, text: str, notes: Sequence[str]) -> str:
        """The text with further items where the form has room for them."""

    def with_turn(self, text: str, prefix: str) -> str:
        """The text with the summary of a split turn's beginning."""

    def render(self, lines: Lines) -> str:
        """A text of this form out of lines."""

    def read(self, text: str) -> list[tuple[str, str]]:
        """The lines of a text, each with its heading; empty when the text is not of this form."""


class SectionsForm:
    """Markdown headings: `sections`, `handoff`, and the forms of styles in folders.

    `places` says under which of its headings each heading of the common ground goes.
    """

    def __init__(self, contract: Contract, places: Mapping[str, str] | None = None) -> None:
        self.contract = contract
        self.places = dict(places or {})

    def check(self, text: str, *, message_count: int = 0) -> Checked:
        return sections.check(text, self.contract, message_count=message_count)

    def with_notes(self, text: str, notes: Sequence[str]) -> str:
        return sections.with_notes(text, notes, self.contract)

    def with_turn(self, text: str, prefix: str) -> str:
        return sections.with_turn(text, prefix)

    def render(self, lines: Lines) -> str:
        bodies: dict[str, list[str]] = {name: [] for name in self.contract.headings}
        below = dict(self.contract.below)
        for heading in sections.COMMON_HEADINGS:
            place = self._place(heading)
            mark = sections.MARKS.get(heading, "")
            items = [f"- {mark}" + line.replace("\n", "\n  ") for line in lines.get(heading, ())]
            if heading in below.get(place, ()):
                bodies[place] += [f"### {heading}", *(items or [sections.NONE]), ""]
            else:
                bodies[place] += items
        return sections.render({name: "\n".join(body) for name, body in bodies.items()}, self.contract)

    def read(self, text: str) -> list[tuple[str, str]]:
        preamble, parts = sections.parse_sections(text)
        if not any(part.heading in self.contract.headings for part in parts):
            return []
        back: dict[str, str] = {}
        for heading in reversed(sections.COMMON_HEADINGS):
            back[self._place(heading)] = heading
        found = [("Additional Notes", line) for line in sections.items(preamble)]
        for part in parts:
            heading = "Done" if part.heading == sections.TURN_SECTION else back.get(part.heading, "Additional Notes")
            for line in sections.items(part.body):
                if line.startswith("### "):
                    name = line.removeprefix("### ").strip()
                    heading = name if name in sections.COMMON_HEADINGS else heading
                else:
                    found.append((heading, sections.item(line)))
        return found

    def _place(self, heading: str) -> str:
        if heading in self.places:
            return self.places[heading]
        for name, parts in self.contract.below:
            if heading in parts:
                return name
        return heading if heading in self.contract.headings else self.contract.headings[-1]


class TagsForm:
    """The tags of the `kimi` style."""

    def check(self, text: str, *, message_count: int = 0) -> Checked:
        return tags.check(text, message_count=message_count)

    def with_notes(self, text: str, notes: Sequence[str]) -> str:
        parsed = tags.parse(text)
        added = "\n".join(f"- {note}" for note in notes)
        return tags.render(tags.with_context(parsed, added))

    def with_turn(self, text: str, prefix: str) -> str:
        parsed = tags.parse(text)
        return tags.render(tags.with_context(parsed, f"The turn that goes on:\n{sections.demoted(prefix)}"))

    def render(self, lines: Lines) -> str:
        return tags.render(tags.of_lines(lines))

    def read(self, text: str) -> list[tuple[str, str]]:
        return tags.to_lines(tags.parse(text)) if tags.is_tagged(text) else []


SECTIONS = SectionsForm(sections.SECTIONS_CONTRACT)
PREFIX = SectionsForm(sections.PREFIX_CONTRACT)
HANDOFF = SectionsForm(
    sections.HANDOFF_CONTRACT,
    {
        "Goal": "Context & Constraints",
        "Constraints & Preferences": "Context & Constraints",
        "Done": "Progress & Decisions",
        "Key Decisions": "Progress & Decisions",
        "In Progress": "Remaining Work",
        "Blocked": "Remaining Work",
        "Next Steps": "Remaining Work",
        "Critical Context": "Data & References",
        "Additional Notes": "Data & References",
    },
)
KIMI = TagsForm()

FORMS: Mapping[str, Form] = {"sections": SECTIONS, "handoff": HANDOFF, "kimi": KIMI}
"""The contracts by name, as a style's `style.toml` names them."""


def read_any(text: str) -> list[tuple[str, str]]:
    """The lines of a summary of whatever form, so that one style can take over from another."""
    for form in (KIMI, SECTIONS, HANDOFF):
        found = form.read(text)
        if found:
            return found
    return [("Additional Notes", sections.item(line)) for line in sections.items(text)]
