"""The host's end of the compact skill: the handlers a cell's calls arrive at, and the switch that takes them away."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

import anyio.to_thread

from host_bridge.host.server import Dispatcher
from host_bridge.wire.protocol import CompactType
from selfcompact.codec import Json
from selfcompact.events import AgentCallableChanged, CompactionScheduled, RequestDropped
from selfcompact.log.search import Archive, searchable
from selfcompact.log.tree import kind_of
from selfcompact.session.requests import (
    SCHEDULED_NOTE,
    EntryPayload,
    PendingRequest,
    RecallPayload,
    RequestSlot,
    RunPayload,
    RunReply,
    StatusPayload,
)
from selfcompact.session.status import ContextStatus
from selfcompact.session.stream import EventHub
from selfcompact.text.clip import clip
from selfcompact.text.secrets import Redactor

HANDLER_TIMEOUT_S = 10.0
"""For `status` and `run`; both answer from memory, so this only bounds a fault."""

ARCHIVE_TIMEOUT_S = 60.0
"""For `recall` and `entry`: the first one of a long session builds the index."""

MAX_ENTRY_CHARS = 24_000
"""What a cell gets of one entry: some 6,000 tokens if it prints all of it, and well within a frame."""


class SkillHost(Protocol):
    """What the skill's end asks of its session."""

    def status(self) -> ContextStatus:
        """How full the context is."""

    def refusal(self, instructions: str | None) -> str | None:
        """Why a request would not be accepted now; None when it would."""

    def pending_changed(self, pending: PendingRequest | None) -> None:
        """Hear of a request that was accepted, or, with None, of one that was dropped."""


class SkillEnd:
    """Answers cells for one session, which it asks at each call.

    Owns the registration of the handlers: those of `status` and `run` come and go with the operator's switch, those of
    `recall` and `entry` stay. `turn` is set by the run while a turn is active.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        hub: EventHub,
        slot: RequestSlot,
        archive: Archive,
        redact: Redactor,
    ) -> None:
        self._dispatcher, self._hub, self._slot, self._archive = dispatcher, hub, slot, archive
        self._redact = redact
        self._host: SkillHost
        self._enabled = False
        self.turn: int | None = None
        # Reading what was said is not gated: summaries and cut messages name entries, and no pointer may lead nowhere.
        dispatcher.register(CompactType.RECALL, RecallPayload, self._on_recall, timeout_s=ARCHIVE_TIMEOUT_S)
        dispatcher.register(CompactType.ENTRY, EntryPayload, self._on_entry, timeout_s=ARCHIVE_TIMEOUT_S)

    def serve(self, host: SkillHost) -> None:
        """Ask this session from now on; no cell runs before."""
        self._host = host

    @property
    def enabled(self) -> bool:
        """Whether cells may call the skill now."""
        return self._enabled

    def switch(self, enabled: bool) -> bool:
        """Take requests from cells, or stop taking them; whether that changed anything. Off drops a pending one."""
        if enabled == self._enabled:
            return False
        self._enabled = enabled
        if enabled:
            self._dispatcher.register(CompactType.STATUS, StatusPayload, self._on_status, timeout_s=HANDLER_TIMEOUT_S)
            self._dispatcher.register(CompactType.RUN, RunPayload, self._on_run, timeout_s=HANDLER_TIMEOUT_S)
        else:
            for request_type in (CompactType.STATUS, CompactType.RUN):
                self._dispatcher.unregister(request_type)
            self.drop("the operator switched the compact skill off")
        self._hub.emit(AgentCallableChanged(enabled=enabled))
        return True

    def drop(self, cause: str) -> None:
        """Forget a pending request and say so."""
        dropped = self._slot.clear()
        if dropped is not None:
            self._host.pending_changed(None)
            self._hub.emit(RequestDropped(cause=cause, custom_instructions=dropped.instructions))

    async def _on_status(self, _payload: StatusPayload) -> Mapping[str, Json]:
        return self._host.status().to_json()

    async def _on_run(self, payload: RunPayload) -> RunReply:
        if self.turn is None:
            return {"scheduled": False, "reason": "no active turn: a compaction can be asked for only while one runs"}
        instructions = None if payload.instructions is None else self._redact(payload.instructions)
        refusal = self._host.refusal(instructions)
        if refusal is not None:
            return {"scheduled": False, "reason": refusal}
        request = PendingRequest(instructions)
        self._slot.put(request)
        self._host.pending_changed(request)
        self._hub.emit(CompactionScheduled(custom_instructions=instructions))
        return {"scheduled": True, "note": SCHEDULED_NOTE}

    async def _on_recall(self, payload: RecallPayload) -> Mapping[str, Json]:
        hits = await anyio.to_thread.run_sync(partial(self._archive.search, payload.query, payload.limit))
        return {
            "hits": [
                {"entry_id": h.entry_id, "kind": h.kind, "timestamp": h.timestamp, "excerpt": h.excerpt} for h in hits
            ]
        }

    async def _on_entry(self, payload: EntryPayload) -> Mapping[str, Json]:
        found = await anyio.to_thread.run_sync(self._archive.entry, payload.entry_id)
        if found is None:
            return {"entry": None}
        text = searchable(found)
        omitted = max(0, len(text) - MAX_ENTRY_CHARS)
        text = clip(text, MAX_ENTRY_CHARS)
        return {
            "entry": {
                "entry_id": found.id,
                "kind": kind_of(found),
                "timestamp": found.timestamp,
                "text": text,
                "omitted_chars": omitted,
            }
        }
