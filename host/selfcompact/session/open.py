"""Opening a session: everything it needs is opened here, in order, and closed in the opposite order."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import anyio

from host_bridge.host.dispatcher import Dispatcher
from selfcompact.compaction.style.loading import style_of
from selfcompact.compaction.summary.summarisers import Summariser
from selfcompact.entries import MessageEntry
from selfcompact.events import WarningRaised
from selfcompact.kernel import Kernel, open_kernel
from selfcompact.log import SessionLog
from selfcompact.log.search import Archive
from selfcompact.models.protocol import Model
from selfcompact.session.compactor import Compactor
from selfcompact.session.conversation import Conversation
from selfcompact.session.coordinator import Coordinator
from selfcompact.session.hook_commands import AfterCommand, BeforeCommand
from selfcompact.session.hooks import Hooks
from selfcompact.session.kernel_state import opening_note
from selfcompact.session.log_place import check_log_place
from selfcompact.session.policy import SessionPolicy
from selfcompact.session.requests import RequestSlot
from selfcompact.session.session import Session, closing
from selfcompact.session.skill_end import SkillEnd
from selfcompact.session.state import SessionState
from selfcompact.session.stream import EventHub
from selfcompact.session.turn import IPYTHON, TurnRunner
from selfcompact.session.unwrap import unwrap_group
from selfcompact.session.writer import SummaryWriter, default_summariser
from selfcompact.settings.compaction import CompactionSettings, settings_for_window
from selfcompact.settings.load import LoadedSettings, load_settings
from selfcompact.settings.schema import Settings
from selfcompact.settings.watch import SettingsWatch
from selfcompact.skills import system_prompt
from selfcompact.text.secrets import Redactor, secret_values
from selfcompact.text.tokens import ScriptAwareEstimator
from selfcompact.workspace import checked_workspace, new_session_file

SANDBOX = "selfcompact.sandbox"
"""The custom entry that records a session whose kernel ran without a sandbox."""


@dataclass(frozen=True)
class SessionConfig:
    """How a session should be, as its opener said it; the arguments of `open_session`. Without a `summariser` the
    model and the settings decide."""

    model: Model
    workspace: Path
    settings: Settings
    watch: SettingsWatch
    system: str
    summariser: Summariser | None
    hooks: Hooks


@asynccontextmanager
async def open_session(
    model: Model,
    *,
    workspace: Path | str = ".",
    session_file: Path | str | None = None,
    settings: Settings | LoadedSettings | None = None,
    system: str | None = None,
    summariser: Summariser | None = None,
    hooks: Hooks | None = None,
) -> AsyncIterator[Session]:
    """Open a session: a kernel in its sandbox, the log, and everything between them.

    Leaving the block aborts what is going on, ends the kernel with all its processes, and closes the log. An error in
    the block comes out as it is.

    Args:
        model: answers the turns, and writes the summaries unless `summariser` is given. A `ScriptedModel`
            without summaries is summarised offline.
        workspace: the directory the agent works in; an existing one.
        session_file: made when missing, continued when there; None makes a new one under the user's data directory.
            One that lies where cells can write is refused.
        settings: None reads them from the usual places (`selfcompact.load_settings`), and the project's file is
            looked at again at each boundary; `Settings` hold as they are.
        system: the whole system prompt; None takes ours, with the compact skill in it when cells may call it.
        summariser: another writer of summaries.
        hooks: called round each compaction, before the commands that the settings name.

    Raises:
        UsageError: the workspace, the session file, a setting or the sandbox cannot be used.
        KernelStartError: the kernel did not become ready.
    """
    folder = checked_workspace(Path(workspace))
    loaded = load_settings(folder) if settings is None else settings
    fitting = _fitting(loaded.settings if isinstance(loaded, LoadedSettings) else loaded, model)
    config = SessionConfig(
        model=model,
        workspace=folder,
        settings=fitting,
        watch=SettingsWatch(loaded if isinstance(loaded, LoadedSettings) else None),
        system=system if system is not None else system_prompt(agent_callable=fitting.compaction.agent_callable),
        summariser=summariser,
        hooks=all_hooks(fitting.compaction, hooks),
    )
    default_summariser(model, fitting)  # a summariser that cannot be used is told before anything opens
    path = Path(session_file) if session_file is not None else new_session_file(folder)
    check_log_place(path, folder, fitting.sandbox)
    dispatcher = Dispatcher()
    with unwrap_group(), SessionLog.open(path.absolute(), cwd=folder, fsync=fitting.log.fsync) as log:
        async with (
            model if isinstance(model, AbstractAsyncContextManager) else nullcontext(),
            open_kernel(fitting.kernel, fitting.sandbox, workspace=folder, dispatcher=dispatcher) as kernel,
            assembled(config, log, kernel, dispatcher) as session,
        ):
            yield session


@asynccontextmanager
async def assembled(
    config: SessionConfig, log: SessionLog, kernel: Kernel, dispatcher: Dispatcher
) -> AsyncIterator[Session]:
    """Put a session together from what is open already, and close it at the end.

    Tasks of the session live in a task group of this block, so they end with it.
    """
    hub, slot, state, model = EventHub(), RequestSlot(), SessionState(), config.model
    conversation = Conversation(log, overhead_tokens=_overhead_tokens(config.system), report=_warner(hub))
    conversation.change_model(model.provider, model.model_id)
    turns = TurnRunner(
        conversation,
        model,
        kernel,
        system=config.system,
        hub=hub,
        cache_key=log.header.id,
        retry=config.settings.retry,
    )
    secrets = secret_values(os.environ)
    redact = Redactor(secrets)
    policy = SessionPolicy(conversation, turns, hub, slot, settings=config.settings, watch=config.watch, redact=redact)
    writer = SummaryWriter(config.summariser, policy=policy, cache_key=log.header.id)
    writer.current()  # there is always one that is known to work
    has_past = any(isinstance(entry, MessageEntry) for entry in log.entries)
    first_note = await opening_note(kernel, log.path, config.settings.kernel_state) if has_past else None
    if kernel.sandbox.warning:
        conversation.note(SANDBOX, {"kind": kernel.sandbox.kind})
        hub.keep(WarningRaised(message=kernel.sandbox.warning))
    for sentence in log.damage:
        hub.keep(WarningRaised(message=sentence))
    async with anyio.create_task_group() as tasks:
        compactor = Compactor(
            conversation,
            policy=policy,
            writer=writer,
            kernel=kernel,
            log=log,
            hub=hub,
            hooks=config.hooks,
            tasks=tasks,
            secrets=secrets,
        )
        skill = SkillEnd(dispatcher, hub, slot, Archive(log.path), redact)
        session = Session(
            conversation=conversation,
            turns=turns,
            coordinator=Coordinator(policy=policy, compactor=compactor, slot=slot, skill=skill, state=state),
            hub=hub,
            state=state,
            log=log,
            workspace=config.workspace,
            kernel=kernel,
            first_note=first_note,
        )
        async with closing(session):
            yield session
        tasks.cancel_scope.cancel()


def _warner(hub: EventHub) -> Callable[[str], None]:
    return lambda sentence: hub.emit(WarningRaised(message=sentence))


def all_hooks(settings: CompactionSettings, hooks: Hooks | None) -> Hooks:
    """The program's hooks, then the commands of the settings."""
    hooks = hooks or Hooks()
    return dataclasses.replace(
        hooks,
        before_compact=(*hooks.before_compact, *map(BeforeCommand, settings.hooks.before_compact)),
        after_compact=(*hooks.after_compact, *map(AfterCommand, settings.hooks.after_compact)),
    )


def _fitting(settings: Settings, model: Model) -> Settings:
    window = settings.context_window or model.context_window
    style_of(settings.compaction)  # a style or prompt file that is not there is an error now, not at a compaction
    return settings.model_copy(update={"compaction": settings_for_window(settings.compaction, window)})


def _overhead_tokens(system: str) -> int:
    """Tokens of what every request carries beside its messages: the system prompt and the tool's schema."""
    estimator = ScriptAwareEstimator()
    return estimator.text(system) + estimator.text(f"{IPYTHON.name}{IPYTHON.description}{IPYTHON.parameters}")
