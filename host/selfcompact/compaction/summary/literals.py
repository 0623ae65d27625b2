"""What instructions ask to keep word for word, and whether it is there.

A summariser may drop what it was asked to keep; so the literals are found here and appended by code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from selfcompact.text.tokens import Estimator

MAX_SEARCHED_CHARS = 20_000
"""What of instructions is searched for literals; nobody writes longer ones by hand."""

_FENCE = re.compile(r"```[^\n`]*\n(.*?)\n?```", re.DOTALL)
_QUOTED = (
    re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL),
    re.compile(r"()\"([^\"]+)\""),
    re.compile(r"()\u201c([^\u201d]+)\u201d"),
    re.compile(r"()\u300c([^\u300d]+)\u300d"),
    re.compile(r"()(?<![A-Za-z0-9])'([^'\n]+)'(?![A-Za-z0-9])"),
)
_TEST_ID = re.compile(r"(?<![\w./-])[\w./-]+\.py::[\w:\[\].,-]*[\w\]]")
_PATH = re.compile(r"(?<![\w/.])(?:~?/|\.{1,2}/)?(?:[\w.+-]+/)+[\w.+-]*\w|(?<![\w/.])[\w-]+\.[a-z]{1,5}(?![\w.])")


@dataclass(frozen=True)
class KeptLiterals:
    """Literals for the next context.

    `carried` is everything asked for that fits into the budget, for this and later compactions; `missing` are those of
    it that the summary does not have; `left_out` did not fit.
    """

    carried: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def text(self) -> str:
        """The body of `## Kept verbatim`; empty when there is nothing to say."""
        if not self.missing and not self.left_out:
            return ""
        lines = ["## Kept verbatim", *map(_quoted, self.missing)]
        if self.left_out:
            named = ", ".join(f"{len(literal):,} characters beginning {literal[:40]!r}" for literal in self.left_out)
            lines.append(f"Did not fit, but is in the session log: {named}")
        return "\n".join(lines)


def quoted_literals(instructions: str) -> tuple[str, ...]:
    """What stands in quotes, backticks or fences, each once, in order. These are kept in any case."""
    found: dict[str, None] = {}

    def take(match: re.Match[str]) -> str:
        literal = match[match.lastindex or 0]
        if literal.strip():
            found[literal.strip() if "\n" not in literal else literal] = None
        return " "

    rest = _FENCE.sub(take, instructions[:MAX_SEARCHED_CHARS])
    for pattern in _QUOTED:
        rest = pattern.sub(take, rest)
    return tuple(sorted(found, key=instructions.find))


def bare_literals(instructions: str) -> tuple[str, ...]:
    """Paths and test ids that stand without quotes. These are kept when the history knows them."""
    searched = instructions[:MAX_SEARCHED_CHARS]
    tests = _TEST_ID.findall(searched)
    rest = _TEST_ID.sub(" ", searched)
    return tuple(dict.fromkeys((*tests, *_PATH.findall(rest))))


def kept_literals(
    instructions: str | None,
    *,
    earlier: Sequence[str] = (),
    summary: str,
    history: Iterable[str] = (),
    budget_tokens: int,
    estimator: Estimator,
) -> KeptLiterals:
    """What must be appended so that everything asked for is in the new context.

    `earlier` are literals that earlier compactions carried: they go on being carried, the new ones first, as far as
    the budget goes. What stands in quotes is kept in any case, a bare path or test id when the history has it.
    """
    wanted = list(quoted_literals(instructions or ""))
    bare = [literal for literal in bare_literals(instructions or "") if literal not in wanted]
    if bare:
        texts = tuple(history)
        wanted += [literal for literal in bare if any(literal in text for text in texts)]
    carried: list[str] = []
    left_out: list[str] = []
    used = 0
    for literal in dict.fromkeys((*wanted, *earlier)):
        tokens = estimator.text(literal) + 2
        if used + tokens <= budget_tokens:
            carried.append(literal)
            used += tokens
        elif literal in wanted and literal not in summary:
            left_out.append(literal)
    missing = tuple(literal for literal in carried if literal not in summary)
    return KeptLiterals(tuple(carried), missing, tuple(left_out))


def _quoted(literal: str) -> str:
    """A list item that shows the literal as it is, in a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", literal)), default=0)
    if "\n" in literal:
        fence = "`" * max(3, longest + 1)
        return f"{fence}\n{literal}\n{fence}"
    ticks = "`" * (longest + 1)
    pad = " " if literal.startswith("`") or literal.endswith("`") else ""
    return f"- {ticks}{pad}{literal}{pad}{ticks}"
