"""The whole file as a tree: every branch, with labels and excerpts. Reads all of it, one entry at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from selfcompact.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    message_of,
)
from selfcompact.errors import SessionFileError
from selfcompact.log.chain import ancestors
from selfcompact.log.reading import stream_entries
from selfcompact.messages import AssistantMessage, ToolResultMessage, text_of

EXCERPT_CHARS = 80


@dataclass(frozen=True)
class TreeNode:
    """One entry in the tree. `depth` counts the branches that were taken to get here; `live` marks the current path."""

    id: str
    parent_id: str | None
    kind: str
    excerpt: str
    timestamp: str
    children: tuple[str, ...] = ()
    label: str | None = None
    live: bool = False


@dataclass(frozen=True)
class SessionTree:
    """All entries of a session by id, in file order; `leaf_id` is where the session goes on."""

    nodes: dict[str, TreeNode]
    leaf_id: str | None
    name: str | None = None

    @property
    def roots(self) -> tuple[TreeNode, ...]:
        """Entries without a parent in this file; one, unless the file is damaged."""
        return tuple(node for node in self.nodes.values() if node.parent_id not in self.nodes)

    def path(self, entry_id: str | None = None) -> list[TreeNode]:
        """The nodes from a root to an entry (the leaf when none is named), oldest first."""
        parents = {node.id: node.parent_id for node in self.nodes.values()}
        return [self.nodes[found] for found in _walk_up(parents, entry_id or self.leaf_id)][::-1]


def read_tree(path: Path, on_progress: Callable[[int], None] | None = None) -> SessionTree:
    """Read the tree of a session file. `on_progress` is called with the offset reached, now and then.

    Raises:
        SessionFileError: it cannot be read or is not a session file of our version.
    """
    nodes: dict[str, TreeNode] = {}
    children: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    name: str | None = None
    leaf_id: str | None = None
    for count, (offset, entry) in enumerate(stream_entries(path)):
        if on_progress is not None and count % 5_000 == 0:
            on_progress(offset)
        nodes[entry.id] = TreeNode(entry.id, entry.parent_id, kind_of(entry), excerpt_of(entry), entry.timestamp)
        if entry.parent_id is not None:
            children.setdefault(entry.parent_id, []).append(entry.id)
        leaf_id = entry.id
        if isinstance(entry, LabelEntry):
            labels[entry.target_id] = entry.label or ""
        elif isinstance(entry, SessionInfoEntry):
            name = entry.name
    live = set(_walk_up({node.id: node.parent_id for node in nodes.values()}, leaf_id))
    full = {
        node.id: TreeNode(
            node.id,
            node.parent_id,
            node.kind,
            node.excerpt,
            node.timestamp,
            tuple(children.get(node.id, ())),
            labels.get(node.id) or None,
            node.id in live,
        )
        for node in nodes.values()
    }
    return SessionTree(full, leaf_id, name)


def path_to(path: Path, entry_id: str) -> list[str]:
    """The ids from the root to an entry, oldest first.

    Raises:
        SessionFileError: the file cannot be read, or has no such entry.
    """
    parents = {entry.id: entry.parent_id for _, entry in stream_entries(path)}
    if entry_id not in parents:
        raise SessionFileError(path, f"has no entry {entry_id}; `selfcompact inspect --tree` lists them")
    return list(_walk_up(parents, entry_id))[::-1]


def kind_of(entry: Entry) -> str:
    """What an entry is, in a word: the role of a message, else the type."""
    return entry.message.role if isinstance(entry, MessageEntry) else entry.type


def excerpt_of(entry: Entry, limit: int = EXCERPT_CHARS) -> str:
    """The beginning of what an entry says, on one line."""
    match entry:
        case CompactionEntry() | BranchSummaryEntry():
            text = entry.summary
        case ModelChangeEntry():
            text = f"{entry.provider}:{entry.model_id}"
        case LabelEntry():
            text = f"{entry.target_id}: {entry.label or '(removed)'}"
        case SessionInfoEntry():
            text = entry.name or ""
        case CustomEntry():
            text = entry.custom_type
        case _:
            message = message_of(entry)
            text = text_of(message) if message is not None else ""
            if isinstance(message, AssistantMessage) and not text.strip():
                text = "; ".join(f"{call.name}: {_code(call.arguments)}" for call in message.tool_calls)
            elif isinstance(message, ToolResultMessage) and message.is_error:
                text = f"error: {text}"
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def _code(arguments: object) -> str:
    code = arguments.get("code") if hasattr(arguments, "get") else None
    return str(code if code is not None else arguments)


def _walk_up(parents: Mapping[str, str | None], entry_id: str | None) -> Iterator[str]:
    def parent_of(known: str) -> str | None:
        parent = parents[known]
        return parent if parent in parents else None

    return ancestors(entry_id if entry_id in parents else None, parent_of)
