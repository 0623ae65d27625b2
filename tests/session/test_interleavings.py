"""Random interleavings of everything that can happen to a session, and what must hold in every one of them.

Everything is the real session but the kernel's process: cells here are instructions to an in-memory kernel, whose
requests go through the memory bridge. Thousands of cases need that; real kernels are in tests/end_to_end.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import selfcompact as sc
from selfcompact.entries import CompactionEntry, MessageEntry
from selfcompact.log import SessionLog, read_session
from selfcompact.messages import AssistantMessage, Message, text_of
from selfcompact.models.scripted import StepSource
from selfcompact.session.history import build_history, validate_history
from selfcompact.settings.compaction import CompactionSettings
from tests.session.memory_kernel import FAST_DISK, SUMMARY, memory_session, yield_times
from tests.test_events import in_order

WINDOW = 6_000


@dataclasses.dataclass(frozen=True)
class Plan:
    """One case: what the model does, what the program does and when, and what goes wrong."""

    steps: list[tuple[str, int]]
    actions: list[tuple[str, int]]
    summaries: list[bool]
    vetoes: list[bool]
    background: bool


STEPS = [
    "cell fill",
    "cell fill;wait 9",
    "cell ask",
    "cell ask keep it;fill",
    "cell status",
    "cell wait 3;fill",
    "say",
    "overflow",
    "fail",
]
ACTIONS = ["prompt", "prompt", "steer", "follow_up", "abort", "compact", "compact now", "off", "on", "nothing"]
PLANS = st.builds(
    Plan,
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 6)), min_size=2, max_size=25),
    actions=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 25)), max_size=20),
    summaries=st.lists(st.booleans(), max_size=6),
    vetoes=st.lists(st.booleans(), max_size=6),
    background=st.booleans(),
)


def scripted(steps: Sequence[tuple[str, int]]) -> Iterator[StepSource]:
    """The drawn steps, each after some yields; then answers without end."""

    def later(kind: str, pause: int) -> StepSource:
        async def step(_messages: Sequence[Message]) -> sc.Step:
            await yield_times(pause)
            if kind == "say":
                return sc.say("said")
            if kind == "overflow":
                return sc.overflow("prompt is too long")
            if kind == "fail":
                return sc.fail("the provider is down", status=500)
            return sc.cell(kind.removeprefix("cell "))

        return step

    return itertools.chain((later(*step) for step in steps), itertools.repeat(sc.say("end")))


@asynccontextmanager
async def session_of(plan: Plan, path: Path) -> AsyncIterator[tuple[sc.Session, sc.ScriptedModel]]:
    model = sc.ScriptedModel(scripted(plan.steps), context_window=WINDOW)
    vetoes = itertools.chain(plan.vetoes, itertools.repeat(False))

    async def before(_: sc.CompactionPreparation) -> sc.Veto | None:
        await anyio.lowlevel.checkpoint()
        return sc.Veto("no") if next(vetoes) else None

    outcomes = itertools.chain(plan.summaries, itertools.repeat(True))
    compaction = CompactionSettings(
        reserve_tokens=1_500, keep_recent_tokens=600, offline_fallback=False, background=plan.background
    )
    async with memory_session(
        path,
        model,
        summaries=(SUMMARY if good else sc.PermissionDenied("no", status=403) for good in outcomes),
        hooks=sc.Hooks(before_compact=[before]),
        compaction=compaction,
    ) as session:
        yield session, model


class Driver:
    """Carries out the actions of a plan and remembers which inputs were accepted."""

    def __init__(self, session: sc.Session) -> None:
        self.session = session
        self.accepted: dict[str, list[str]] = {"prompt": [], "steer": [], "follow_up": []}
        self.results: list[sc.RunResult] = []
        self._names = itertools.count(1)

    async def play(self, plan: Plan) -> None:
        async with anyio.create_task_group() as tasks:
            self._do("prompt", tasks.start_soon)
            for action, pause in plan.actions:
                self._do(action, tasks.start_soon)
                await yield_times(pause)
            await self.session.abort()
        await self._prompt("the last word")

    def _do(self, action: str, start_soon: Callable[..., object]) -> None:
        session, text = self.session, f"input number {next(self._names)}."
        match action:
            case "prompt":
                start_soon(self._prompt, text)
            case "steer":
                session.steer(text)
                self.accepted["steer"].append(text)
            case "follow_up":
                session.follow_up(text)
                self.accepted["follow_up"].append(text)
            case "abort":
                start_soon(session.abort)
            case "compact" | "compact now":
                start_soon(self._compact, action == "compact now")
            case "off" | "on":
                session.set_agent_callable(action == "on")

    async def _prompt(self, text: str) -> None:
        try:
            self.results.append(await self.session.prompt(text))
        except sc.SessionBusy:
            return
        self.accepted["prompt"].append(text)

    async def _compact(self, now: bool) -> None:
        await self.session.compact("by hand", now=now)


async def check(plan: Plan) -> None:
    with tempfile.TemporaryDirectory(dir=FAST_DISK) as folder, anyio.fail_after(20):
        path = Path(folder) / "session.jsonl"
        async with session_of(plan, path) as (session, model):
            stream = session.events()
            driver = Driver(session)
            await driver.play(plan)
            events = stream.pending()
            assert session.state == "idle"
            last_history = session.history
        for end in (item for item in events if isinstance(item, sc.events.CompactionEnd)):
            event(f"{end.reason} {end.status}")
        log_is_right(path, driver)
        for request in model.requests:
            assert validate_history(request.messages) == []
        assert not any(isinstance(result.error, sc.InvalidHistory) for result in driver.results)
        events_are_right(events)
        with SessionLog.open(path, cwd=path.parent) as log:
            assert build_history(log.entries) == last_history


def log_is_right(path: Path, driver: Driver) -> None:
    """Nothing lost, nothing doubled, in order; the attempt limit held."""
    _, entries, damage = read_session(path)
    assert damage == []
    said = [text_of(e.message) for e in entries if isinstance(e, MessageEntry) and e.message.role == "user"]
    assert len(said) == len(set(said))
    for kind in ("steer", "follow_up"):
        delivered = [text for text in said if text in driver.accepted[kind]]
        # What still waits when a run fails or is aborted comes with the next one; the rest is in order.
        assert delivered == driver.accepted[kind][: len(delivered)]
    assert set(driver.accepted["prompt"]) <= set(said)
    if driver.results and driver.results[-1].status == "done":
        assert set(driver.accepted["steer"]) | set(driver.accepted["follow_up"]) <= set(said)
    in_a_row = 0
    for entry in entries:
        if isinstance(entry, CompactionEntry):
            in_a_row += 1
            assert in_a_row <= 2
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            in_a_row = 0


def events_are_right(events: Sequence[sc.events.Event]) -> None:
    """Every run's events came in the documented order, with at most one compaction at a boundary."""
    run: list[str] | None = None
    compactions = 0
    for item in events:
        if item.type == "agent_start":
            run = []
        if run is not None:
            run.append(item.type)
        if item.type == "agent_end" and run is not None:
            assert ended_early(item) or in_order(run), run
            run = None
        if item.type in ("turn_start", "agent_start", "agent_end"):
            compactions = 0
        if item.type == "compaction_start":
            compactions += 1
            assert run is None or compactions <= 1


def ended_early(event: sc.events.Event) -> bool:
    """A run that was aborted may end anywhere."""
    return isinstance(event, sc.events.AgentEnd) and event.status == "aborted"


@given(PLANS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
async def test_no_interleaving_loses_doubles_or_breaks_anything(plan: Plan) -> None:
    await check(plan)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(PLANS)
@settings(max_examples=int(os.environ.get("INTERLEAVINGS", "2000")), suppress_health_check=[HealthCheck.too_slow])
async def test_thousands_of_interleavings_lose_double_or_break_nothing(plan: Plan) -> None:
    """68. `make soak` runs 10,000."""
    await check(plan)
