"""What happened on a branch that is being left, told for the work that goes on from an earlier point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from selfcompact.compaction.planning import budget
from selfcompact.compaction.planning.clean import clean_message
from selfcompact.compaction.style.loading import load_style, prompt
from selfcompact.compaction.summary.fold import Folder, Progress, Tally, Task
from selfcompact.compaction.summary.summarisers import TextSummariser
from selfcompact.compaction.summary.transcript import transcript
from selfcompact.messages import Message
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.text.secrets import Redactor
from selfcompact.text.tokens import Estimator, ScriptAwareEstimator


async def branch_summary(
    messages: Iterable[Message],
    summariser: TextSummariser,
    settings: CompactionSettings,
    *,
    secrets: Sequence[str] = (),
    on_progress: Callable[[Progress], None] | None = None,
    estimator: Estimator | None = None,
) -> str:
    """What happened on a branch that is being left, in the form of the `sections` style.

    Raises:
        SummaryRejected: the reply broke the form twice.
        ModelError: the provider failed.
    """
    style, redact = load_style("sections"), Redactor(secrets)
    cleaned = [clean_message(message, redact) for message in messages]
    messages = tuple(messages)
    window = summariser.context_window or budget.ASSUMED_WINDOW_TOKENS
    task = Task(
        part="branch",
        style=style,
        form=style.form,
        items=transcript(cleaned, drop_thinking=summariser.drops_thinking),
        window=window,
        output_tokens=budget.summary_tokens(settings.reserve_tokens, window, summariser.max_output_tokens),
        message_count=len(messages),
        context=prompt("notes", "branch"),
    )
    tokens = (estimator or ScriptAwareEstimator()).text
    return await Folder(summariser, tokens=tokens, redact=redact, tally=Tally(), on_progress=on_progress).fold(task)
