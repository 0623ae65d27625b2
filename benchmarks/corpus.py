"""Texts of each kind that sessions are made of, the same on every run."""

from __future__ import annotations

import ast
import base64
import inspect
import json
import random
import textwrap
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

_TEXTS = Path(__file__).parent / "texts"

_FAILING = (
    "int('x')",
    "{}['missing']",
    "[1, 2][7]",
    "open('/srv/data/none.csv')",
    "import no_such_module",
    "1 / 0",
    "json.loads('{\"a\": 1,')",
    "None.upper()",
)


def corpus() -> Mapping[str, str]:
    """Text by kind, some 3,000 to 60,000 characters each."""
    return {name: make() for name, make in _KINDS.items()}


def _file(name: str) -> Callable[[], str]:
    return lambda: (_TEXTS / f"{name}.txt").read_text(encoding="utf-8")


def _code() -> str:
    return "\n".join(inspect.getsource(module) for module in (ast, json, textwrap, traceback))[:60_000]


def _json() -> str:
    chance = random.Random(7)
    rows = [
        {
            "id": number,
            "name": f"{chance.choice(('alpha', 'beta', 'gamma'))}-{number}",
            "value": round(chance.random(), chance.randrange(2, 12)),
            "path": f"/srv/data/{number}/report_{number}.json",
            "createdAt": f"2026-01-{chance.randrange(1, 29):02}T12:{chance.randrange(60):02}:00Z",
            "tags": ["nightly", "failed"],
            "ok": bool(number % 2),
        }
        for number in range(120)
    ]
    return json.dumps(rows, indent=2) + json.dumps(rows)


def _tracebacks() -> str:
    found: list[str] = []
    for number, source in enumerate(_FAILING):
        scope: dict[str, object] = {}
        body = source if not source.startswith("import") else "__import__(str(path))"
        code = f"import json\n\n\ndef load_{number}(path):\n    return {body}"
        try:
            exec(compile(code + f"\n\n\nload_{number}('config.toml')", f"/srv/app/job_{number}.py", "exec"), scope)
        except Exception:  # noqa: BLE001 - whatever the snippet raises is what is wanted
            found.append(traceback.format_exc())
    return "\n".join(found)


def _base64() -> str:
    return base64.b64encode(random.Random(3).randbytes(30_000)).decode()


def _emoji() -> str:
    return "".join(random.Random(5).choices("😀😂🎉🚀✅❌👍🔥💡🐛📦🧪🙏🤖📝🔧", k=3_000))


_KINDS: Mapping[str, Callable[[], str]] = {
    "english": _file("english"),
    "python": _code,
    "chinese": _file("chinese"),
    "japanese": _file("japanese"),
    "json": _json,
    "tracebacks": _tracebacks,
    "base64": _base64,
    "emoji": _emoji,
}
