from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, plan
from selfcompact.compaction.summary.remote import RemoteSummariser
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.compaction.summary.summarise import summarise
from selfcompact.errors import (
    AuthenticationFailed,
    ContextOverflow,
    ModelError,
    ModelTimeout,
    PermissionDenied,
    ProviderUnavailable,
    RateLimited,
    SettingsError,
)
from selfcompact.settings.compaction import CompactionSettings
from tests.compaction.build import logged, sections, whole_turns

ASKED = SummaryRequest("system", "prompt", 500)


class Service(BaseHTTPRequestHandler):
    """Answers as the test says; keeps what it was asked."""

    answer: ClassVar[tuple[int, dict[str, str], bytes]] = (200, {}, b"")
    hangs: ClassVar[threading.Event | None] = None
    asked: ClassVar[list[tuple[dict[str, Any], str | None]]] = []

    @classmethod
    def reset(cls) -> None:
        """Forget the last test."""
        cls.asked, cls.hangs = [], None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((json.loads(body), self.headers.get("Authorization")))
        if self.hangs is not None:
            self.hangs.wait(10)
        status, headers, text = self.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Stay silent."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    Service.reset()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/summaries"
    if Service.hangs is not None:
        Service.hangs.set()
    server.shutdown()
    thread.join()
    server.server_close()


async def test_the_service_gets_both_prompts_the_limit_and_the_token_and_answers_with_a_summary(endpoint: str) -> None:
    Service.answer = (200, {}, json.dumps({"summary": "done", "usage": {"input": 7, "output": 3}}).encode())
    remote = RemoteSummariser(endpoint, token_variable="SUMMARY_TOKEN", environment={"SUMMARY_TOKEN": "t0ken"})
    reply = await remote.ask(ASKED)
    assert Service.asked == [({"systemPrompt": "system", "prompt": "prompt", "maxTokens": 500}, "Bearer t0ken")]
    assert reply.text == "done"
    assert reply.usage is not None
    assert reply.usage.total == 10


async def test_a_whole_summary_is_written_by_the_service(endpoint: str) -> None:
    Service.answer = (200, {}, json.dumps({"summary": sections()}).encode())
    settings = CompactionSettings(keep_recent_tokens=200)
    planned = plan(Ledger(logged(whole_turns(20))), settings, 200_000)
    assert isinstance(planned, Plan)
    summary = await summarise(planned, RemoteSummariser(endpoint), settings)
    assert (summary.text, summary.offline, summary.summariser) == (sections(), False, f"remote:{endpoint}")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelError),
        (401, AuthenticationFailed),
        (403, PermissionDenied),
        (413, ContextOverflow),
        (429, RateLimited),
        (500, ProviderUnavailable),
        (503, ProviderUnavailable),
    ],
)
async def test_failures_are_told_apart_by_their_status_and_keep_the_text(
    endpoint: str, status: int, kind: type[ModelError]
) -> None:
    Service.answer = (status, {"Retry-After": "7"}, b"the service's own words")
    with pytest.raises(ModelError) as failed:
        await RemoteSummariser(endpoint).ask(ASKED)
    assert type(failed.value) is kind
    assert (failed.value.status, failed.value.provider_message) == (status, "the service's own words")
    if isinstance(failed.value, RateLimited):
        assert failed.value.retry_after_s == 7


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"summary": 3}', b"[]"])
async def test_an_answer_without_a_summary_is_a_failure_and_never_a_summary(endpoint: str, body: bytes) -> None:
    Service.answer = (200, {}, body)
    with pytest.raises(ProviderUnavailable):
        await RemoteSummariser(endpoint).ask(ASKED)


async def test_a_service_that_stays_silent_is_given_up(endpoint: str) -> None:
    Service.hangs = threading.Event()
    with pytest.raises(ModelTimeout):
        await RemoteSummariser(endpoint, idle_s=0.1).ask(ASKED)


async def test_a_service_that_cannot_be_reached_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ProviderUnavailable):
            await RemoteSummariser(f"http://127.0.0.1:{taken.getsockname()[1]}/").ask(ASKED)


async def test_a_missing_token_is_said_by_the_name_of_its_variable(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="SUMMARY_TOKEN"):
        await RemoteSummariser(endpoint, token_variable="SUMMARY_TOKEN", environment={}).ask(ASKED)
    assert Service.asked == []
