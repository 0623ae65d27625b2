"""The session: what a program holds.

A run is carried by the task that awaits `prompt()`. Handlers of the bridge and other tasks of the program only put
values into slots (a request, input, a manual compaction, another model), which the run takes out at the next
boundary. So nothing is ever changed under a run's feet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from selfcompact.kernel import Kernel
from selfcompact.log import SessionLog, read_live
from selfcompact.log.fork import fork_session
from selfcompact.log.search import Archive, Hit
from selfcompact.log.tree import SessionTree, read_tree
from selfcompact.messages import Message, user
from selfcompact.models.protocol import Model
from selfcompact.session.branches import REWIND, left_behind
from selfcompact.session.compactor import CompactionOutcome
from selfcompact.session.conversation import Conversation
from selfcompact.session.coordinator import Coordinator
from selfcompact.session.inbox import Inbox
from selfcompact.session.kernel_state import save_state
from selfcompact.session.run import Run, RunResult
from selfcompact.session.state import SessionState, State
from selfcompact.session.status import ContextStatus
from selfcompact.session.stream import EventHub, EventStream
from selfcompact.session.turn import TurnRunner
from selfcompact.settings.schema import Settings


class Session:
    """A conversation with a model that works in a kernel. Made by `selfcompact.open_session`.

    Methods may be called from any task of the event loop the session was opened in. One run at a time; what is
    given while one is going on is delivered at its next boundary, once and in order.
    """

    def __init__(
        self,
        *,
        conversation: Conversation,
        turns: TurnRunner,
        coordinator: Coordinator,
        hub: EventHub,
        state: SessionState,
        log: SessionLog,
        workspace: Path,
        kernel: Kernel,
        first_note: str | None,
    ) -> None:
        self.header, self.session_file, self.workspace, self.kernel = log.header, log.path, workspace, kernel
        self._conversation, self._turns, self._hub, self._state = conversation, turns, hub, state
        self._coordinator, self._inbox, self._first_note = coordinator, Inbox(), first_note
        self._scope: anyio.CancelScope | None = None
        self._running = False
        self._has_run = False

    # What a program sees

    @property
    def state(self) -> State:
        """What the session is doing: `idle`, `running`, `at_boundary`, `compacting` or `closed`."""
        return self._state.value

    @property
    def model(self) -> Model:
        """The model that answers the turns."""
        return self._turns.model

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._coordinator.policy.settings

    @property
    def context_window(self) -> int | None:
        """Tokens the next request may have, output included; None when neither settings nor model know."""
        return self._coordinator.policy.context_window

    @property
    def agent_callable(self) -> bool:
        """Whether cells may call `compact.status()` and `compact.run()` now."""
        return self._coordinator.skill.enabled

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages the next request would carry."""
        return self._conversation.history()

    def events(self) -> EventStream:
        """A stream of everything that happens from now on; read it with `async for`, close it with `aclose()`."""
        return self._hub.open()

    def status(self) -> ContextStatus:
        """How full the context is; costs the same however old the session is."""
        return self._coordinator.status()

    # What a program may do

    async def prompt(self, text: str) -> RunResult:
        """Give the model a task and work until it is done, fails, or is aborted.

        Waits for a manual compaction to end first. Cancelling this call aborts the run: the history stays valid and
        what was logged stays logged.

        Raises:
            SessionBusy: a run is going on; use `steer` or `follow_up` to give it input.
            SessionClosed: the session was closed.
        """
        coordinator = self._coordinator
        while coordinator.manual is not None and not self._running:
            await coordinator.manual.settled.wait()
        self._state.claim("running")
        run = Run(coordinator, self._conversation, self._turns, self._hub, self._state, self._inbox)
        result: RunResult | None = None
        self._running = self._has_run = True
        try:
            with anyio.CancelScope() as self._scope:
                result = await run.drive(user(text), note=self._first_note)
        except Exception as error:
            result = run.broken_by(error)
            raise
        finally:
            self._running, self._scope = False, None
            if run.has_begun:
                self._first_note = None
            try:
                result = run.finish(result)
                if result.status != "done":
                    coordinator.give_up_ahead()
            finally:
                coordinator.settle_manual(None)
                self._state.settle()
        return result

    def steer(self, text: str) -> None:
        """Give input to the run that is going on; it is delivered at the next boundary, before the next request.

        Raises:
            SessionClosed: the session was closed.
        """
        self._state.check_open()
        self._inbox.steer(user(text))

    def follow_up(self, text: str) -> None:
        """Give input for when the run that is going on would end; it then goes on with it.

        Raises:
            SessionClosed: the session was closed.
        """
        self._state.check_open()
        self._inbox.follow_up(user(text))

    async def abort(self) -> None:
        """Stop whatever is going on and return when it has settled; does nothing when the session is idle."""
        if self._scope is not None:
            self._scope.cancel()
        await self._state.settled()

    async def compact(self, instructions: str | None = None, *, now: bool = False) -> CompactionOutcome:
        """Compact at the next boundary, or at once when the session is idle. `now` aborts a run first.

        A second call while one is waiting or running gets the first one's outcome: one record is written. Cancelling
        the last call that waits for it cancels the compaction, and nothing else: the run goes on.

        Raises:
            SessionClosed: the session was closed.
        """
        self._state.check_open()
        if now and self._running:
            await self.abort()
        coordinator = self._coordinator
        while self._running or coordinator.manual is not None:
            outcome = await coordinator.wait_in_line(instructions).wait()
            if outcome is not None:
                return outcome
        self._state.claim("compacting")
        self._scope = anyio.CancelScope()
        try:
            return await coordinator.compact_now(instructions, self._scope)
        finally:
            self._scope = None
            self._state.settle()

    def set_agent_callable(self, enabled: bool) -> None:
        """Switch whether cells may call the compact skill, also while a run is going on.

        Switching it off drops a pending request and says so in an event.
        """
        self._coordinator.skill.switch(enabled)

    def set_model(self, model: Model) -> None:
        """Let another model answer, from the next request on.

        When the context does not fit into the new model's window, it is compacted first, with the model that can
        still read it. The change is recorded in the log.

        Raises:
            SessionClosed: the session was closed.
        """
        self._state.check_open()
        self._coordinator.let_answer(model)

    # The archive: the whole file, on demand

    async def search(self, query: str, limit: int = 10) -> list[Hit]:
        """Find entries by their text in everything that was ever said, the summarised parts included; best first.

        The index beside the log is built by the first search and follows the log from then on.
        """
        return await anyio.to_thread.run_sync(Archive(self.session_file).search, query, limit)

    async def tree(self) -> SessionTree:
        """Every entry of the session with its branches; reads the whole file."""
        return await anyio.to_thread.run_sync(read_tree, self.session_file)

    async def rewind(self, entry_id: str, *, summarise: bool = False) -> None:
        """Go on from an earlier entry; the branch that is left stays in the log.

        The context becomes exactly what it was when that entry was the newest, also across a compaction. With
        `summarise`, what happened on the branch that is left is told to the model first. The kernel is not rewound.

        Raises:
            SessionBusy: a run is going on; abort it first.
            SessionClosed: the session was closed.
            SessionFileError: there is no such entry.
            SummaryRejected, ModelError: the summariser failed, and there is no fallback; nothing changed.
        """
        self._state.claim("compacting")
        try:
            with anyio.CancelScope() as self._scope:
                left = self._conversation.leaf_id
                live = await anyio.to_thread.run_sync(partial(read_live, self.session_file, leaf_id=entry_id))
                told = await self._summary_of_branch(left, entry_id) if summarise and left is not None else None
                self._conversation.go_back(live)
                if told is not None and left is not None:
                    self._conversation.summarise_branch(left, told)
                else:
                    self._conversation.note(REWIND, {"from": left})
                self._conversation.sync()
        finally:
            self._scope = None
            self._state.settle()

    async def _summary_of_branch(self, left: str, entry_id: str) -> str | None:
        entries = await anyio.to_thread.run_sync(left_behind, self.session_file, left, entry_id)
        return await self._coordinator.summarise_branch(entries)

    async def fork(self, target: Path | str, entry_id: str | None = None) -> Path:
        """Copy the branch that ends at an entry (the newest when none is named) into a new session file.

        Raises:
            SessionFileError: there is no such entry, or the file already exists.
        """
        leaf = entry_id or self._conversation.leaf_id or ""
        return await anyio.to_thread.run_sync(fork_session, self.session_file, Path(target), leaf)

    def label(self, entry_id: str, label: str | None) -> None:
        """Name an entry, or take its name away with None."""
        self._state.check_open()
        self._conversation.label(entry_id, label)

    def set_name(self, name: str | None) -> None:
        """Give the session a display name."""
        self._state.check_open()
        self._conversation.name(name)

    async def close(self) -> None:
        """Abort what is going on, save the kernel's variables where the settings say so, and accept nothing more.

        Closing twice is fine.
        """
        if not self._state.close():
            return
        await self.abort()
        self._coordinator.give_up_ahead()
        if self._has_run and self.settings.kernel_state.keep:
            problem = await save_state(self.kernel, self.session_file, self.settings.kernel_state)
            if problem is not None:
                self._coordinator.policy.warn(problem)
        self._hub.close()


@asynccontextmanager
async def closing(session: Session) -> AsyncIterator[Session]:
    """Close the session at the end, also when the block is left by an error or a cancellation."""
    try:
        yield session
    finally:
        with anyio.CancelScope(shield=True):
            await session.close()
