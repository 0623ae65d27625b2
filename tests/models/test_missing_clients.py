"""What is said where a vendor's client, or the library that speaks for it, is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from selfcompact import UsageError, make_model


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("openai:gpt-5", "openai"),
        ("openai-chat:gpt-4.1", "openai"),
        ("anthropic:claude-sonnet-4-5", "anthropic"),
        ("google:gemini-2.5-pro", "google"),
        ("google-vertex:gemini-2.5-pro", "google"),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock"),
        ("mistral:mistral-large-latest", "mistral"),
        ("groq:openai/gpt-oss-120b", "groq"),
        ("openrouter:anthropic/claude-sonnet-4.5", "openai"),
        ("ollama:qwen3", "openai"),
        ("somebody-else:a-model", "openai"),
    ],
)
def test_without_the_library_a_model_is_a_usage_error_that_names_the_command(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [module for module in sys.modules if module.startswith("selfcompact.models.provider")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "selfcompact.models.vendor", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    monkeypatch.setenv("SOME_KEY", "sk-test")
    with pytest.raises(UsageError) as caught:
        make_model(name, key_variable="SOME_KEY")
    said = f"model {name!r}: the vendor's client is not installed; run: pip install 'selfcompact[{extra}]'"
    assert str(caught.value) == said


PROGRAM = """
import asyncio, sys
sys.modules["pydantic_ai"] = None
import selfcompact as sc

async def main():
    model = sc.ScriptedModel([sc.cell("6 * 7"), sc.say("It is 42.")])
    async with sc.open_session(model, workspace=sys.argv[1], session_file=sys.argv[1] + ".jsonl") as session:
        print((await session.prompt("What is six times seven?")).text)

asyncio.run(main())
"""


def test_a_scripted_session_runs_where_no_client_is_installed(tmp_path_factory: pytest.TempPathFactory) -> None:
    workspace = tmp_path_factory.mktemp("workspace")
    command = [sys.executable, "-c", PROGRAM, str(workspace)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "It is 42.\n", "")


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_a_web_server_the_fake_provider_says_what_to_install(missing: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from selfcompact.testing import Reply, cell_reply
try:
    from selfcompact.testing import FakeProvider
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "the fake provider needs a web server; run: pip install 'selfcompact[testing]'\n", done.stderr
