"""Texts made to be slow: no step may cost more than in proportion to the length."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from selfcompact.compaction.offline.facts import errors, is_exact, is_rule, names_defined, sentences, statements
from selfcompact.compaction.planning.files import files_of
from selfcompact.compaction.style.tags import check as check_tags
from selfcompact.compaction.summary.literals import bare_literals, quoted_literals
from selfcompact.compaction.summary.transcript import without_base64
from selfcompact.text.inert import inert
from selfcompact.text.secrets import Redactor
from selfcompact.text.tokens import ScriptAwareEstimator
from tests.compaction.build import answered, called, resulted

SIZE = 200_000
LIMIT_S = 3.0

TEXTS = {
    "spaces": "<" + " " * SIZE,
    "angles": "<" * SIZE,
    "angles and spaces": "< " * (SIZE // 2),
    "half a tag": "<conversatio " * (SIZE // 13),
    "entities": "&amp;" * (SIZE // 5),
    "backticks": "`" * SIZE,
    "odd backticks": "` `` ``` " * (SIZE // 9),
    "quotes": "\"'" * (SIZE // 2),
    "letters": "a" * SIZE,
    "base64 lines": ("A1b2" * 59 + "A1!\n") * (SIZE // 240),
    "one long word": "token" * (SIZE // 5),
    "key names": "api_key=" * (SIZE // 8),
    "brackets": "[host block" * (SIZE // 11),
    "newlines": "\n" * SIZE,
    "slashes": "a/" * (SIZE // 2),
    "dots": "." * SIZE,
    "digits": "1" * SIZE,
    "assignments": "y = 1\n" * (SIZE // 13),
    "form feeds": "y = '\f'\n" * (SIZE // 18),
}

STEPS: dict[str, Callable[[str], object]] = {
    "inert": inert,
    "redact": Redactor(["known-secret"]),
    "without_base64": without_base64,
    "estimate": ScriptAwareEstimator().text,
    "quoted": quoted_literals,
    "bare": bare_literals,
    "sentences": lambda text: list(sentences(text)),
    "statements": lambda text: [is_rule(s) or is_exact(s) for s in statements(text)],
    "errors": lambda text: errors([answered("", called("a", "x")), resulted("a", text, is_error=True)]),
    "names": lambda text: names_defined([answered("", called("a", text))]),
    "files": lambda text: files_of([answered("", called("a", text))]),
    "tags": check_tags,
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.slow
def test_a_text_made_to_be_slow_is_not(step: str) -> None:
    slow: dict[str, float] = {}
    for name, text in TEXTS.items():
        began = time.perf_counter()
        STEPS[step](text)
        took = time.perf_counter() - began
        if took > LIMIT_S:
            slow[name] = round(took, 1)
    assert slow == {}
