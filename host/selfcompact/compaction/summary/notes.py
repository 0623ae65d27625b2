"""Other texts about a session, each asked for by itself: a short summary, a branch summary, a hand-over document.

They are for people, for `inspect` and for branches that are left; none of them replaces history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from selfcompact.compaction.planning import budget
from selfcompact.compaction.style.loading import load_style, prompt
from selfcompact.compaction.summary.fold import Folder, Progress, Tally, Task
from selfcompact.compaction.summary.request import SummaryRequest, new_nonce, tagged
from selfcompact.compaction.summary.retry import with_retries
from selfcompact.compaction.summary.summarisers import SummaryReply, TextSummariser
from selfcompact.compaction.summary.transcript import transcript
from selfcompact.errors import SummaryRejected
from selfcompact.messages import Message
from selfcompact.settings.compaction import CompactionSettings
from selfcompact.text.clip import clip_tokens
from selfcompact.text.inert import inert
from selfcompact.text.secrets import Redactor
from selfcompact.text.tokens import Estimator, ScriptAwareEstimator


async def short_summary(
    summary: str, summariser: TextSummariser, settings: CompactionSettings, *, secrets: Sequence[str] = ()
) -> str:
    """Two or three sentences in the first person out of a summary: what `inspect` and lists of sessions show.

    Raises:
        SummaryRejected: the reply has no usable text.
        ModelError: the provider failed.
    """
    return await _about("short", summary, summariser, budget.short_summary_tokens(settings.reserve_tokens), secrets)


async def hand_over(
    summary: str, summariser: TextSummariser, settings: CompactionSettings, *, secrets: Sequence[str] = ()
) -> str:
    """A document for whoever takes the work over, out of a summary.

    Raises:
        SummaryRejected: the reply has no usable text.
        ModelError: the provider failed.
    """
    limit = budget.summary_tokens(settings.reserve_tokens, summariser.context_window, summariser.max_output_tokens)
    return await _about("hand-over", summary, summariser, limit, secrets)


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
    messages = tuple(messages)
    window = summariser.context_window or budget.ASSUMED_WINDOW_TOKENS
    task = Task(
        part="branch",
        style=style,
        form=style.form,
        items=transcript(messages, redact=redact, drop_thinking=summariser.drops_thinking),
        window=window,
        output_tokens=budget.summary_tokens(settings.reserve_tokens, window, summariser.max_output_tokens),
        message_count=len(messages),
        context=prompt("notes", "branch"),
    )
    tokens = (estimator or ScriptAwareEstimator()).text
    return await Folder(summariser, tokens=tokens, redact=redact, tally=Tally(), on_progress=on_progress).fold(task)


async def _about(kind: str, summary: str, summariser: TextSummariser, limit_tokens: int, secrets: Sequence[str]) -> str:
    redact = Redactor(secrets)
    window = summariser.context_window or budget.ASSUMED_WINDOW_TOKENS
    limit_tokens = min(limit_tokens, summariser.max_output_tokens or limit_tokens)
    fitted = clip_tokens(
        inert(redact(summary)), int(window * budget.INPUT_SHARE) - limit_tokens, ScriptAwareEstimator().text
    )
    request = SummaryRequest(
        system=prompt("notes", "system"),
        prompt=f"{tagged('previous-summary', fitted, new_nonce())}\n\n{prompt('notes', kind)}",
        max_output_tokens=limit_tokens,
    )
    reply: SummaryReply = await with_retries(lambda: summariser.ask(request), name=summariser.name)
    text = redact(reply.text).strip()
    if not text or reply.tool_calls or reply.stop_reason == "length":
        raise SummaryRejected((f"the reply for the {kind} text cannot be used",))
    return text
