"""docs/models.md: each family's line is one that works as far as the provider's own client goes."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from selfcompact.errors import UsageError
from selfcompact.models.registry import PROVIDERS, make_model

PAGE = (Path(__file__).parents[2] / "docs/models.md").read_text(encoding="utf-8")
ROWS = [row for row in PAGE.splitlines() if row.startswith("|") and "selfcompact run -m" in row]
CLIENTS = {
    "anthropic": "anthropic",
    "bedrock": "boto3",
    "google": "google.genai",
    "groq": "groq",
    "mistral": "mistralai",
    "openai": "openai",
}
"""The vendor's client that each extra brings."""


def installed(extra: str) -> bool:
    """Whether the client of an extra such as `selfcompact[google]` is here."""
    name = CLIENTS[extra.partition("[")[2].rstrip("]")]
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


OTHER_VARIABLES = {"AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com", "OPENAI_API_VERSION": "2025-01-01"}


def options(row: str) -> list[str]:
    (line,) = re.findall(r"`[^`]*selfcompact run ([^`]*)`", row)
    return shlex.split(line)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_line_names_a_model_that_can_be_made_and_whose_window_is_known(
    row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in re.findall(r"`([A-Z_]+_(?:KEY|ENDPOINT|VERSION))`", row):
        monkeypatch.setenv(variable, OTHER_VARIABLES.get(variable, "sk-test"))
    words = options(row)
    name = words[words.index("-m") + 1]
    address = words[words.index("--base-url") + 1] if "--base-url" in words else None
    extra = row.split("|")[2].strip().strip("`")
    if not installed(extra):
        with pytest.raises(UsageError, match=re.escape(f"pip install '{extra}'")):
            make_model(name, base_url=address)
        return
    model = make_model(name, base_url=address)
    assert model.context_window is not None or "--context-window" in words or address is not None


def test_every_provider_that_is_named_has_a_line() -> None:
    named = {options(row)[options(row).index("-m") + 1].partition(":")[0] for row in ROWS}
    assert set(PROVIDERS) <= named
