"""The slash commands of `selfcompact chat`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict

import anyio.to_thread
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from selfcompact.cli.choose import ModelChoice
from selfcompact.cli.screen import gauge
from selfcompact.cli.settings import setting_rows
from selfcompact.session.session import Session
from selfcompact.settings.load import LoadedSettings

RECENT = 10
"""User messages that /rewind lists."""

HELP = {
    "/compact [instructions]": "compact now; the instructions say what the summary must keep",
    "/status": "how full the context is",
    "/agent-callable on|off": "whether the agent may compact itself",
    "/settings": "every setting, and where it came from",
    "/model PROVIDER:NAME": "let another model answer from the next request on",
    "/rewind [ID]": "go back to an earlier entry; without an id, list the newest messages",
    "/search QUERY": "find something in everything that was ever said",
    "/help": "this list",
    "/quit": "leave (also Ctrl-D, or Ctrl-C twice)",
}


class Leave(Exception):
    """The user wants to leave."""


class ChatCommands:
    """Carries out commands for one chat. Errors of the session pass through."""

    def __init__(self, session: Session, console: Console, loaded: LoadedSettings) -> None:
        self._session, self._console, self._loaded = session, console, loaded
        self._known: dict[str, Callable[[str], Awaitable[None]]] = {
            "/compact": self._compact,
            "/status": self._status,
            "/agent-callable": self._agent_callable,
            "/settings": self._settings,
            "/model": self._model,
            "/rewind": self._rewind,
            "/search": self._search,
            "/help": self._help,
            "/quit": self._quit,
            "/exit": self._quit,
        }

    async def do(self, text: str) -> None:
        """Carry out one command.

        Raises:
            Leave: it was /quit.
            SelfcompactError: what it asked for could not be done.
        """
        word, _, rest = text.partition(" ")
        command = self._known.get(word)
        if command is None:
            self._console.print(f"[red]there is no command {escape(word)}[/red]; /help lists them")
            return
        await command(rest.strip())

    async def _compact(self, instructions: str) -> None:
        outcome = await self._session.compact(instructions or None)
        if outcome.result is None:
            self._console.print(f"[yellow]{outcome.status}: {escape(outcome.message or '')}[/yellow]")

    async def _status(self, _: str) -> None:
        status = self._session.status()
        self._console.print(gauge(status.estimated_tokens, status.context_window, estimated=status.tokens is None))
        self._console.print(json.dumps(asdict(status)), style="dim")

    async def _agent_callable(self, wanted: str) -> None:
        if wanted not in ("on", "off"):
            state = "on" if self._session.agent_callable else "off"
            self._console.print(f"the compact skill is {state}; write /agent-callable on, or off")
            return
        self._session.set_agent_callable(wanted == "on")

    async def _settings(self, _: str) -> None:
        table = Table("setting", "value", "from", box=None, pad_edge=False, header_style="bold")
        for key, value, origin in setting_rows(self._loaded):
            table.add_row(key, json.dumps(value), origin)
        self._console.print(table)

    async def _model(self, name: str) -> None:
        if not name:
            model = self._session.model
            self._console.print(f"{model.provider}:{model.model_id}")
            return
        model = await anyio.to_thread.run_sync(ModelChoice(name).model, self._session.settings)
        self._session.set_model(model)
        self._console.print(f"{escape(name)} answers from the next request on")

    async def _rewind(self, entry_id: str) -> None:
        if entry_id:
            await self._session.rewind(entry_id)
            self._console.print(f"back at entry {escape(entry_id)}; the kernel is as it is now")
            return
        tree = await self._session.tree()
        for node in [node for node in tree.path() if node.kind in ("user", "assistant")][-RECENT:]:
            self._console.print(f"[bold]{node.id}[/bold] [cyan]{node.kind}[/cyan] {escape(node.excerpt)}")
        self._console.print("[dim]/rewind ID goes back to one of them[/dim]")

    async def _search(self, query: str) -> None:
        if not query:
            self._console.print("write what to look for: /search QUERY")
            return
        hits = await self._session.search(query)
        for hit in hits:
            self._console.print(f"[bold]{hit.entry_id}[/bold] [dim]{hit.kind}[/dim] {escape(hit.excerpt)}")
        if not hits:
            self._console.print("nothing found")

    async def _help(self, _: str) -> None:
        table = Table(box=None, pad_edge=False, show_header=False)
        for command, meaning in HELP.items():
            table.add_row(escape(command), meaning)
        self._console.print(table)

    async def _quit(self, _: str) -> None:
        raise Leave
