"""From a plan to a summary: the only step of a compaction that asks a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from selfcompact.compaction.offline import facts
from selfcompact.compaction.offline.writing import fitting_tokens
from selfcompact.compaction.planning import budget
from selfcompact.compaction.planning.clean import clean_message, without_secrets
from selfcompact.compaction.planning.plan import Plan
from selfcompact.compaction.style.loading import Style, style_of
from selfcompact.compaction.summary.fold import Folder, Progress, Tally, Task
from selfcompact.compaction.summary.literals import KeptLiterals, kept_literals
from selfcompact.compaction.summary.retry import Sleep
from selfcompact.compaction.summary.summarisers import OfflineSummariser, Summariser, TextSummariser
from selfcompact.compaction.summary.transcript import transcript
from selfcompact.errors import ModelError, SummaryRejected
from selfcompact.messages import Usage, text_of
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.text.clip import clip_tokens
from selfcompact.text.secrets import Redactor


@dataclass(frozen=True)
class Summary:
    """A summary that holds its contract. The parts that the host writes are not in it yet.

    `kept` are the literals that were asked to be kept. `failure` says why the offline summariser stepped in, when a
    model should have written the summary; `usage` and `requests` are what all requests cost, the failed ones too.
    """

    text: str
    summariser: str
    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    offline: bool = False
    repaired: tuple[str, ...] = ()
    kept: KeptLiterals = field(default_factory=KeptLiterals)
    failure: str | None = None


async def summarise(
    plan: Plan,
    summariser: Summariser,
    settings: CompactionSettings,
    *,
    window: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    secrets: Sequence[str] = (),
    sleep: Sleep | None = None,
    tally: Tally | None = None,
) -> Summary:
    """Write the summary that a plan needs. Changes nothing anywhere: cancelling it leaves no trace.

    `window` is assumed where the summariser does not know its own. `secrets` are values that must not be sent or
    stored. `tally` counts what requests cost, also when the call is cancelled. A reply outside the contract is asked
    for once more; after that, or when the provider fails, the offline summariser writes it if
    `settings.offline_fallback` allows, and the result says so.

    Raises:
        SummaryRejected: the replies broke the contract, and there is no fallback.
        ModelError: the provider failed, and there is no fallback.
    """
    redact = Redactor(secrets)
    plan = without_secrets(plan, redact)
    if isinstance(summariser, OfflineSummariser):
        return _finished(plan, _offline(plan, summariser, settings, redact), redact, summariser.name, offline=True)
    tally = tally if tally is not None else Tally()
    try:
        text = await _by_model(plan, summariser, settings, window, redact, tally, on_progress, sleep)
    except (SummaryRejected, ModelError) as error:
        if not settings.offline_fallback:
            raise
        offline = OfflineSummariser()
        text = _offline(plan, offline, settings, redact)
        return _finished(plan, text, redact, offline.name, tally, offline=True, failure=str(error))
    return _finished(plan, text, redact, summariser.name, tally)


async def _by_model(
    plan: Plan,
    summariser: TextSummariser,
    settings: CompactionSettings,
    window: int | None,
    redact: Redactor,
    tally: Tally,
    on_progress: Callable[[Progress], None] | None,
    sleep: Sleep | None,
) -> str:
    style = style_of(settings)
    width = summariser.context_window or window or budget.ASSUMED_WINDOW_TOKENS

    def tokens(text: str) -> int:
        return plan.scaled(plan.estimator.text(text))

    folder = Folder(summariser, tokens=tokens, redact=redact, tally=tally, on_progress=on_progress, sleep=sleep)
    instructions = clip_tokens(plan.instructions, budget.MAX_INSTRUCTIONS_TOKENS, tokens) if plan.instructions else None
    # A turn that has nothing before it needs no part of its own: it is the history.
    splits = plan.is_split_turn and len(plan.to_summarise) > 0
    history = plan.to_summarise if splits else plan.messages
    main = Task(
        part="history",
        style=style,
        form=style.form,
        items=transcript(history, drop_thinking=summariser.drops_thinking),
        window=width,
        output_tokens=_output_tokens(style, settings, width, summariser),
        message_count=len(history),
        previous=plan.previous_summary,
        context=clip_tokens(_context(plan), budget.MAX_CONTEXT_TOKENS, tokens),
        instructions=instructions,
    )
    if not splits:
        return await folder.fold(main)
    prefix = Task(
        part="turn prefix",
        style=style,
        form=style.prefix_form,
        items=transcript(plan.turn_prefix, drop_thinking=summariser.drops_thinking),
        window=width,
        output_tokens=budget.prefix_tokens(settings.reserve_tokens, width, summariser.max_output_tokens),
        message_count=0,  # brief by design, however long the prefix
        first_kind="prefix",
        instructions=instructions,
    )
    if not prefix.items:
        return await folder.fold(main)
    written = await _side_by_side(folder, main, prefix)
    return style.form.with_turn(written[0], written[1])


def _output_tokens(style: Style, settings: CompactionSettings, window: int, summariser: TextSummariser) -> int:
    limit = budget.summary_tokens(settings.reserve_tokens, window, summariser.max_output_tokens)
    return limit if style.output_tokens is None else min(limit, style.output_tokens)


async def _side_by_side(folder: Folder, *tasks: Task) -> tuple[str, ...]:
    """The folds of several tasks at once; the first failure cancels the others and is raised as itself."""
    written: dict[int, str] = {}
    failures: list[Exception] = []

    async def run(index: int, task: Task) -> None:
        try:
            written[index] = await folder.fold(task)
        except (SummaryRejected, ModelError) as error:
            failures.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for index, task in enumerate(tasks):
            group.start_soon(run, index, task)
    if failures:
        raise failures[0]
    return tuple(written[index] for index in range(len(tasks)))


def _context(plan: Plan) -> str:
    """What the host knows besides the conversation: the files, as data."""
    lines = [f"Modified files: {', '.join(plan.files.modified_files)}"] if plan.files.modified_files else []
    if plan.files.read_files:
        lines.append(f"Files read: {', '.join(plan.files.read_files)}")
    return "\n".join(lines)


def supplied_summary(plan: Plan, text: str, summariser: str, *, secrets: Sequence[str] = ()) -> Summary:
    """A summary that was not asked of a summariser, with the same care: secrets out, open questions and what was asked
    to be kept in."""
    redact = Redactor(secrets)
    return _finished(without_secrets(plan, redact), redact(text), redact, summariser)


def missing_questions(plan: Plan, text: str, redact: Redactor) -> tuple[str, ...]:
    """Questions that nobody answered, that leave the context, and that the summary does not have."""
    staying = [clean_message(message, redact) for message in plan.kept]
    open_ones = facts.open_questions((*plan.removed, *staying))
    kept = [text_of(message) for message in staying]
    leaving = (question for question in open_ones if not any(question in said for said in kept))
    return tuple(question for question in leaving if question not in text)


def _offline(plan: Plan, summariser: OfflineSummariser, settings: CompactionSettings, redact: Redactor) -> str:
    limit = budget.summary_tokens(settings.reserve_tokens, plan.window)
    return summariser.write(plan, fitting_tokens(plan, int(limit / plan.ratio)), redact)


def _finished(
    plan: Plan,
    text: str,
    redact: Redactor,
    name: str,
    tally: Tally | None = None,
    *,
    offline: bool = False,
    failure: str | None = None,
) -> Summary:
    tally = tally or Tally()
    questions = () if offline else missing_questions(plan, text, redact)
    if questions:
        text = plan.form.with_notes(text, [f"Open question: {question}" for question in questions])
        tally.repairs.append("an open question of the last message was added word for word")
    kept = kept_literals(
        plan.instructions,
        earlier=plan.earlier_literals,
        summary=text,
        history=(text_of(message) for message in plan.removed),
        budget_tokens=budget.KEPT_LITERALS_TOKENS,
        estimator=plan.estimator,
    )
    return Summary(
        text=text,
        summariser=name,
        usage=tally.usage,
        requests=tally.requests,
        offline=offline,
        repaired=tuple(dict.fromkeys(tally.repairs)),
        kept=kept,
        failure=failure,
    )
