"""`selfcompact chat`: the same loop as a conversation in the terminal."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import click
import platformdirs
from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from selfcompact.cli.chat_commands import ChatCommands, Leave
from selfcompact.cli.choose import choice_of, session_options
from selfcompact.cli.ending import ended_by
from selfcompact.cli.screen import Screen, kept_line
from selfcompact.errors import SelfcompactError, SessionFileError
from selfcompact.events import AgentEnd, Event, MessageEnd, MessageStart, MessageUpdate
from selfcompact.messages import AssistantMessage
from selfcompact.models.protocol import Model
from selfcompact.private_files import create_private, make_private_folder
from selfcompact.session.open import open_session
from selfcompact.session.session import Session
from selfcompact.settings.load import LoadedSettings, load_settings
from selfcompact.workspace import sessions_folder

PROMPT = "› "
HINT = "Ctrl-C again leaves; /help lists the commands"


@click.command()
@session_options
@click.option("--continue", "newest", is_flag=True, help="Go on with the newest session of this workspace.")
def chat(
    model_name: str | None,
    base_url: str | None,
    key_variable: str | None,
    context_window: int | None,
    script: Path | None,
    workspace: Path,
    session_file: Path | None,
    newest: bool,
    overrides: tuple[str, ...],
    sandbox: str | None,
) -> None:
    """Talk with the agent. Enter sends, Alt-Enter begins a new line, Ctrl-C stops the turn and, twice, leaves.

    Commands begin with a slash; /help lists them.
    """
    if sandbox is not None:
        overrides = (*overrides, f"sandbox.kind={sandbox}")
    loaded = load_settings(workspace, overrides=overrides)
    model = choice_of(model_name, base_url, key_variable, context_window, script).model(loaded.settings)
    if newest:
        session_file = newest_session(workspace)
    anyio.run(_talk, model, workspace, session_file, loaded)


def newest_session(workspace: Path) -> Path:
    """The session of a workspace that was written last.

    Raises:
        SessionFileError: there is none.
    """
    folder = sessions_folder(workspace)
    files = sorted(folder.glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise SessionFileError(folder, "holds no session yet; leave --continue out to begin one")
    return files[-1]


async def _talk(model: Model, workspace: Path, session_file: Path | None, loaded: LoadedSettings) -> None:
    console = Console()
    async with open_session(model, workspace=workspace, session_file=session_file, settings=loaded) as session:
        chat_ = Chat(session, console, loaded)
        console.print(f"[dim]{escape(f'{model.provider}:{model.model_id}')} in {escape(str(session.workspace))}[/dim]")
        await chat_.run()
        console.print(kept_line("session log", str(session.session_file)))


class Chat:
    """One conversation at one terminal. Owned by the task that runs it."""

    def __init__(self, session: Session, console: Console, loaded: LoadedSettings) -> None:
        self._session, self._console = session, console
        self._commands = ChatCommands(session, console, loaded)
        self._screen = StreamingScreen(console)
        self._stream = session.events()

    async def run(self) -> None:
        """Read, answer, and again, until the user leaves."""
        self._show_waiting()
        asked = PromptSession[str](
            history=_history(),
            key_bindings=_keys(),
            multiline=True,
            bottom_toolbar=self._toolbar,
            erase_when_done=False,
        )
        interrupted = False
        while True:
            try:
                text = (await asked.prompt_async(PROMPT, prompt_continuation="  ")).strip()
            except KeyboardInterrupt:
                if interrupted or ended_by() is not None:
                    return
                interrupted = True
                self._console.print(f"[dim]{HINT}[/dim]")
                continue
            except EOFError:
                return
            interrupted = False
            if not text:
                continue
            try:
                await self._answer(text)
            except Leave:
                return

    async def _answer(self, text: str) -> None:
        try:
            if text.startswith("/"):
                await self._watched(lambda: self._commands.do(text))
                self._show_waiting()
            else:
                await self._prompt(text)
        except SelfcompactError as error:
            self._console.print(Text(str(error), style="red"))

    async def _prompt(self, text: str) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._show_until_the_end)
            await self._watched(lambda: self._session.prompt(text))

    async def _watched(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do something during which Ctrl-C aborts what the session does; a second one leaves."""

        async def watch() -> None:
            presses = 0
            with anyio.open_signal_receiver(signal.SIGINT) as signals:
                async for _ in signals:
                    presses += 1
                    if presses > 1 or ended_by() is not None:
                        raise Leave
                    await self._session.abort()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                await work()
                tasks.cancel_scope.cancel()
        except* Leave:
            raise Leave from None
        except* SelfcompactError as group:
            raise group.exceptions[0] from None

    async def _show_until_the_end(self) -> None:
        async for event in self._stream:
            self._screen.show(event)
            if isinstance(event, AgentEnd):
                return

    def _show_waiting(self) -> None:
        for event in self._stream.pending():
            self._screen.show(event)

    def _toolbar(self) -> HTML:
        status = self._session.status()
        tokens, window = status.estimated_tokens, status.context_window
        about = "≈ " if status.tokens is None else ""
        figures = f"{about}{tokens:,}" + (
            f" / {window:,} tokens ({100 * tokens / window:.0f} %)" if window else " tokens"
        )
        skill = "" if self._session.agent_callable else " · compact skill off"
        return HTML("<b>context</b> {} · {}{}").format(figures, self._session.model.model_id, skill)


class StreamingScreen(Screen):
    """Shows the text of a response as it comes, instead of at its end."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._streamed = ""

    def show(self, event: Event) -> None:
        """Draw one event."""
        match event:
            case MessageStart():
                self._streamed = ""
            case MessageUpdate():
                if self._streamed not in ("", event.kind):
                    self.console.print()
                style = "dim italic" if event.kind == "thinking" else ""
                self.console.print(Text(event.delta, style=style), end="", soft_wrap=True)
                self._streamed = event.kind
            case MessageEnd(message=AssistantMessage()) if self._streamed:
                self.console.print()
            case MessageEnd() if not isinstance(event.message, AssistantMessage):
                pass  # the user sees what they typed; results are shown with their cells
            case _:
                super().show(event)


def _history() -> FileHistory:
    folder = Path(platformdirs.user_data_dir("selfcompact"))
    make_private_folder(folder)
    with contextlib.suppress(FileExistsError):
        create_private(folder / "chat_history", b"")
    (folder / "chat_history").chmod(0o600)
    return FileHistory(str(folder / "chat_history"))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
