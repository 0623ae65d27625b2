"""Script files: a scripted model as JSON, for `selfcompact run --script FILE`.

```json
{"context_window": 32000,
 "steps": [{"cell": "x = 1", "say": "Setting x."}, {"say": "done"}, {"overflow": true},
           {"fail": "text", "status": 500}],
 "summaries": ["…"]}
```

A bare list is the steps. A step may carry `thinking`, `usage` (`input`, `output`), `delay_s`, and a cell `timeout_s`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError

from selfcompact.errors import ScriptError
from selfcompact.messages import Usage
from selfcompact.models.scripted import ScriptedModel, Step, cell, fail, overflow, say

DEFAULT_WINDOW = 200_000
"""Tokens; what most large models have today."""

Tokens = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Usage(_Strict):
    input: Tokens = 0
    output: Tokens = 0


class _StepBase(_Strict):
    usage: _Usage | None = None
    thinking: StrictStr = ""
    delay_s: Annotated[float, Field(ge=0, le=3600)] = 0.0


class _CellStep(_StepBase):
    cell: StrictStr
    say: StrictStr = ""
    timeout_s: Annotated[float, Field(gt=0)] | None = None


class _SayStep(_StepBase):
    say: StrictStr


class _OverflowStep(_StepBase):
    overflow: Literal[True] | StrictStr


class _FailStep(_StepBase):
    fail: StrictStr
    status: Annotated[int, Field(ge=100, le=599)] | None = None


_STEPS: dict[str, type[_CellStep | _SayStep | _OverflowStep | _FailStep]] = {
    "cell": _CellStep,
    "overflow": _OverflowStep,
    "fail": _FailStep,
    "say": _SayStep,
}
"""Keyed by the field that tells the kind; `say` last, because a cell may say something too."""


class _Script(_Strict):
    context_window: Annotated[int, Field(ge=1)] = DEFAULT_WINDOW
    steps: list[dict[str, Any]]
    summaries: list[StrictStr] | None = None


def load_script(path: Path) -> ScriptedModel:
    """The scripted model that a file describes.

    Raises:
        ScriptError: the file cannot be read, is not JSON, or has a step that is not known; it names the step.
    """
    where = f"script {path}"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScriptError(where, f"cannot be read ({error.strerror or error}); name an existing file") from error
    except ValueError as error:
        raise ScriptError(where, f"is not JSON ({error})") from error
    if isinstance(data, list):
        data = {"steps": data}
    if not isinstance(data, dict):
        raise ScriptError(where, "should be an object with `steps`, or a list of steps")
    try:
        script = _Script.model_validate(data)
    except ValidationError as error:
        raise ScriptError(where, _first_problem(error)) from error
    steps = [_step(step, f"{where}, step {number}") for number, step in enumerate(script.steps, 1)]
    return ScriptedModel(steps, summaries=script.summaries, context_window=script.context_window)


def _step(data: dict[str, Any], where: str) -> Step:
    kind = next((kind for kind in _STEPS if kind in data), None)
    if kind is None:
        keys = ", ".join(sorted(map(repr, data))) or "nothing"
        raise ScriptError(where, f"has {keys}; a step is one of `cell`, `say`, `overflow`, `fail`")
    try:
        parsed = _STEPS[kind].model_validate(data)
    except ValidationError as error:
        raise ScriptError(where, _first_problem(error)) from error
    usage = Usage(input=parsed.usage.input, output=parsed.usage.output) if parsed.usage else None
    match parsed:
        case _CellStep():
            return cell(
                parsed.cell,
                say=parsed.say,
                thinking=parsed.thinking,
                timeout_s=parsed.timeout_s,
                usage=usage,
                delay_s=parsed.delay_s,
            )
        case _SayStep():
            return say(parsed.say, thinking=parsed.thinking, usage=usage, delay_s=parsed.delay_s)
        case _OverflowStep():
            return overflow(None if parsed.overflow is True else parsed.overflow)
        case _FailStep():
            return fail(parsed.fail, status=parsed.status)


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    at = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"`{at}` is not known here"
    return f"`{at}`: {first['msg'].lower()}" if at else first["msg"].lower()
