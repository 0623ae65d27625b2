"""`-m` and its companions: a real client against a real server, and what is said when there is no model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from selfcompact.cli import main
from selfcompact.testing import FakeProvider, Reply, cell_reply

pytestmark = pytest.mark.slow  # each of these starts programs of its own, or waits

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")


async def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    env = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    with anyio.fail_after(50):
        return await anyio.run_process(
            [sys.executable, "-m", "selfcompact", "run", "go", "--session", f"{folder}.jsonl", *arguments],
            cwd=folder,
            check=False,
            env={**env, "COLUMNS": "110", **variables},
        )


def log_of(workspace: Path) -> bytes:
    """The log beside the workspace, empty when there is none."""
    path = Path(f"{workspace}.jsonl")
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("family", ["openai", "anthropic"])
async def test_a_model_works_through_its_vendors_client(tmp_path: Path, family: str) -> None:
    async with FakeProvider([cell_reply("6 * 7", say="I count."), Reply("It is 42.")]) as server:
        url = server.anthropic_url if family == "anthropic" else server.openai_url
        done = await run(
            tmp_path, "-m", f"{family}:fake", "--base-url", url, "--context-window", "50000", "--json",
            "--key-variable", "MY_KEY", MY_KEY="sk-canary-123456",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        sent = server.requests
    assert len(sent) == 2
    assert "42" in json.dumps(sent[1].body)
    assert all("canary" in r.headers.get("authorization", "") + r.headers.get("x-api-key", "") for r in sent)
    ended = json.loads(done.stdout.splitlines()[-1])
    assert ended["status"] == "done"
    assert b"canary" not in done.stdout + done.stderr + log_of(tmp_path)


async def test_the_settings_can_say_everything_about_a_model(tmp_path: Path) -> None:
    """A key of the usual variable is not sent to an address that is not the vendor's."""
    async with FakeProvider([Reply("hello")]) as server:
        (tmp_path / ".selfcompact").mkdir()
        said = {"contextWindow": 40_000, "maxOutputTokens": 123, "baseUrl": server.openai_url}
        (tmp_path / ".selfcompact/settings.json").write_text(
            json.dumps({"model": "openai-chat:fake.v1", "models": {"openai-chat:fake.v1": said}})
        )
        done = await run(tmp_path, "--json", OPENAI_API_KEY="sk-canary-123456")
        assert done.returncode == 0, done.stderr
        (request,) = server.requests
    assert request.body["max_tokens"] == 123
    assert "canary" not in json.dumps(request.headers)
    turn_end = next(event for line in done.stdout.splitlines() if (event := json.loads(line))["type"] == "turn_end")
    assert turn_end["contextWindow"] == 40_000


async def test_without_a_model_it_says_how_to_choose_one_and_which_keys_are_there(tmp_path: Path) -> None:
    done = await run(tmp_path, ANTHROPIC_API_KEY="sk-canary-123456")
    assert done.returncode == 2
    said = done.stderr.decode()
    for part in ("-m PROVIDER:NAME", "ANTHROPIC_API_KEY", "selfcompact demo", "--script FILE"):
        assert part in said
    assert "canary" not in said
    assert log_of(tmp_path) == b""
    assert "none; a provider's key" in (await run(tmp_path)).stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "local:m", "--base-url", "http://127.0.0.1:9/v1"], "nobody knows its context window; name it with"),
        (["-m", "gpt-5"], "should be provider:name"),
        (["-m", "nobody:m"], "nobody:m"),
        (["-m", "openai:gpt-5"], "OPENAI_API_KEY"),
        (["-m", "openai:gpt-5", "--key-variable", "NOT_THERE"], "NOT_THERE is not set"),
        (["-m", "local:m", "--script", "x.json"], "leave out the options"),
        (["-m", "local:m", "--context-window", "0"], "0 is not in the range"),
        (["-m", "local:m", "--set", "models.local:m.contextWindow=no"], "models.local:m.contextWindow"),
        (["-m", "local:m", "--set", "models.local:m.window=5"], "an object with some of baseUrl"),
    ],
)
def test_a_wrong_choice_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["selfcompact", "run", "go", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in said
    assert said.strip().splitlines()[-1].count(": ") >= 1
    assert list(tmp_path.iterdir()) == []
