"""A real model in llama.cpp's server: the window it tells, the overflow it answers, the summaries it writes.

`make test-local-llm MODEL=file.gguf` runs this. A small model's words are not tested, only what becomes of them: a
summary that breaks the form is refused, and the offline one takes its place.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import selfcompact as sc
from selfcompact.compaction.planning.ledger import Ledger
from selfcompact.compaction.planning.plan import Plan, plan
from selfcompact.compaction.summary.summarise import summarise
from selfcompact.compaction.summary.summarisers import ModelSummariser
from selfcompact.errors import ContextOverflow
from selfcompact.messages import text_of, user
from selfcompact.models.protocol import ModelRequest
from selfcompact.models.registry import make_model
from selfcompact.models.window import server_window
from selfcompact.settings.compaction import CompactionSettings
from tests.compaction.build import logged, said, turns
from tests.requests_sent import complete

WINDOW = 4_096
START_S = 120.0
"""Seconds until the model is loaded; large files take their time."""

pytestmark = [pytest.mark.local_llm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has loaded the model."""
    file, program = os.environ.get("LOCAL_LLM_MODEL"), os.environ.get("LOCAL_LLM_SERVER") or "llama-server"
    found = shutil.which(program)
    if not file or found is None:
        pytest.skip("needs LOCAL_LLM_MODEL and llama.cpp's server; run it with make test-local-llm MODEL=file.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [found, "-m", file, "-c", str(WINDOW), "-np", "1", "--host", "127.0.0.1", "--port", str(port)]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as output, subprocess.Popen(arguments, stdout=output, stderr=output) as server:
        try:
            _wait(f"http://127.0.0.1:{port}/health", server, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def _wait(health: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.fail(f"the server ended: {log.read_text(errors='replace')[-2000:]}")
        try:
            if httpx2.get(health, timeout=1).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.2)
    pytest.fail(f"the server was not ready after {START_S:g} s")


def local(address: str, **options: Any) -> sc.Model:
    return make_model("local:any", base_url=address, ask_server=True, **options)


def test_the_server_tells_its_window(address: str) -> None:
    assert server_window(address, "any") == WINDOW
    assert local(address).context_window == WINDOW


async def test_it_answers_and_reports_usage(address: str) -> None:
    message = await complete(local(address), ModelRequest("Be brief.", (user("Say hello."),), max_output_tokens=32))
    assert text_of(message).strip()
    assert message.usage is not None
    assert message.usage.prompt > 0


async def test_a_prompt_that_is_too_long_is_an_overflow(address: str) -> None:
    long = " ".join(f"word{number}" for number in range(4 * WINDOW))
    with pytest.raises(ContextOverflow) as caught:
        await complete(local(address), ModelRequest("Be brief.", (user(long),), max_output_tokens=32))
    assert caught.value.provider_message


async def test_a_conversation_longer_than_the_window_becomes_a_summary_that_holds_its_form(address: str) -> None:
    """Every request fits, whatever the model makes of it."""
    entries = logged([*turns(24, words=120), said("Go on.")])
    settings = CompactionSettings(reserve_tokens=1_000, keep_recent_tokens=100)
    planned = plan(Ledger(entries), settings, window=WINDOW)
    assert isinstance(planned, Plan)
    assert planned.tokens_before > 2 * WINDOW
    outcome = await summarise(planned, ModelSummariser(local(address)), settings, window=WINDOW)
    assert check_is_clean(outcome.text)
    assert outcome.requests >= 2
    assert outcome.failure is None or "context" not in outcome.failure.lower()


def check_is_clean(text: str) -> bool:
    """Whether every required heading is there, in order."""
    places = [text.find(f"## {name}") for name in ("Goal", "Progress", "Next Steps")]
    return -1 not in places and places == sorted(places)
