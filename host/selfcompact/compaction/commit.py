"""The one record that a compaction appends. Pure: the session writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from selfcompact.compaction.planning import hostblocks
from selfcompact.compaction.planning.hostblocks import HostBlock
from selfcompact.compaction.planning.plan import Plan
from selfcompact.compaction.style.contract import NONE
from selfcompact.compaction.style.forms import read_any
from selfcompact.compaction.style.frame import framed
from selfcompact.compaction.summary.summarise import Summary
from selfcompact.details import KEY, CompactionDetails
from selfcompact.entries import CompactionEntry, new_entry_id, now_iso
from selfcompact.errors import NotBeneficial
from selfcompact.messages import Message, ToolResultMessage
from selfcompact.text.clip import clip
from selfcompact.text.secrets import Redactor

SHORT_CHARS = 400
"""Of the short summary in the record."""


def compaction_entry(
    plan: Plan,
    summary: Summary,
    *,
    parent_id: str | None,
    manifest_text: str | None = None,
    noted: CompactionDetails | None = None,
    secrets: Sequence[str] = (),
    reason: str | None = None,
    entry_id: str | None = None,
    clock: Callable[[], str] = now_iso,
) -> CompactionEntry:
    """The entry that puts the summary in the place of the planned part of the history.

    `manifest_text` tells the state of the kernel, taken from the living kernel at this moment; None when there is no
    kernel. `reason` is why it was done; `entry_id` is made when none is given. `noted` is what
    the session has to say of it in the entry's details.

    Raises:
        NotBeneficial: the new context would not be smaller than the old one.
    """
    redact = Redactor(secrets)
    text = stored_text(plan, summary, redact(manifest_text or ""), redact)
    after = tokens_after(plan, text)
    if after >= plan.tokens_before:
        raise NotBeneficial(plan.tokens_before, after, largest_kept(plan, text))
    ours = replace(
        noted or CompactionDetails(),
        reason=reason,
        style=plan.style,
        rebuild=plan.rebuild,
        number=plan.number,
        summariser=summary.summariser,
        offline=summary.offline,
        requests=summary.requests,
        usage=summary.usage.to_json(),
        tokens_after=after,
        short_summary=short_summary(summary.text),
        is_split_turn=plan.is_split_turn,
        kept_verbatim=summary.kept.carried,
        ratios={model: round(ratio, 4) for model, ratio in plan.ratios.items()},
        failure=redact(summary.failure) if summary.failure is not None else None,
        repaired=summary.repaired or None,
    )
    own_id = entry_id or new_entry_id()
    return CompactionEntry(
        id=own_id,
        parent_id=parent_id,
        timestamp=clock(),
        summary=text,
        first_kept_entry_id=plan.first_kept_entry_id or own_id,
        tokens_before=plan.tokens_before,
        details={
            "readFiles": [redact(name) for name in plan.files.read_files],
            "modifiedFiles": [redact(name) for name in plan.files.modified_files],
            KEY: ours.to_json(),
        },
        custom_instructions=redact(plan.instructions) if plan.instructions else None,
    )


def stored_text(plan: Plan, summary: Summary, manifest_text: str, redact: Callable[[str], str]) -> str:
    """The summary and the parts that the host writes, as the record and the next context have them."""
    return hostblocks.join(
        summary.text,
        (
            HostBlock(hostblocks.KEPT, summary.kept.text()),
            *(
                HostBlock(hostblocks.USER_MESSAGE, redact(text))
                for text in plan.user_messages or (plan.newest_user_message or "",)
            ),
            HostBlock(hostblocks.KERNEL, manifest_text),
        ),
    )


def short_summary(text: str) -> str:
    """The goal and the newest state in a few hundred characters, for lists of sessions; quoted, not worded anew."""
    lines = read_any(text)
    wanted = ("Goal", "In Progress", "Next Steps")
    found = [line for name in wanted for heading, line in lines if heading == name and line != NONE]
    return clip(" ".join(found[:3]), SHORT_CHARS)


def tokens_after(plan: Plan, stored: str) -> int:
    """The size of the context that would begin with this text."""
    return plan.overhead_tokens + plan.kept_tokens + plan.scaled(plan.estimator.text(framed(stored)))


def largest_kept(plan: Plan, stored: str) -> str:
    """The largest thing in the new context, in words: what stands in the way of a smaller one."""
    largest: tuple[int, str] = (plan.estimator.text(stored), "the summary with what the host adds to it")
    for message in plan.kept:
        largest = max(largest, (plan.estimator.message(message), _named(message)))
    return f"{largest[1]} ({plan.scaled(largest[0]):,} tokens)"


def _named(message: Message) -> str:
    if isinstance(message, ToolResultMessage):
        return f"a result of {message.tool_name}"
    return f"a message of role {message.role}"
