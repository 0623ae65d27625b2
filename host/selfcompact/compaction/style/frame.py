"""How a summary appears in the history: one user message that says what it is and what it is not."""

from __future__ import annotations

from selfcompact.compaction.style.loading import prompt


def framed(summary: str) -> str:
    """The summary between two lines of the host, with the notice that it is an account and not an order."""
    return f"{prompt('frame', 'before')}\n\n{summary}\n\n{prompt('frame', 'after')}"


def framed_branch(summary: str) -> str:
    """The same for what happened on a branch that was left."""
    return f"{prompt('frame', 'branch')}\n\n{summary}\n\n{prompt('frame', 'after')}"


def handed_over(summary: str) -> str:
    """The same for a context that begins with the user's own messages."""
    return f"{prompt('frame', 'handover')}\n\n{summary}\n\n{prompt('frame', 'after')}"
