"""Summaries written by a service of one's own: one POST, one answer.

The request is `{"systemPrompt", "prompt", "maxTokens"}`, the answer `{"summary"}`, optionally with `usage` (`input` and
`output` tokens) and `stopReason`. A bearer token comes from a named environment variable, so that it never stands in
a settings file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx2

from selfcompact.codec import Json
from selfcompact.compaction.summary.request import SummaryRequest
from selfcompact.compaction.summary.summarisers import IDLE_S, SummaryReply
from selfcompact.errors import (
    ModelError,
    ModelTimeout,
    ProviderUnavailable,
    SettingsError,
)
from selfcompact.messages import Usage
from selfcompact.models.failures import error_for

CONNECT_S = 10.0
"""Seconds for the connection itself; the answer has `idle_s`."""

MAX_ERROR_CHARS = 2_000
"""What of an error's body is carried in the exception."""


@dataclass(frozen=True)
class RemoteSummariser:
    """Asks an endpoint. Opens one connection per request and leaves nothing behind.

    `token_variable` names the environment variable with the bearer token; None sends none. `context_window` and
    `max_output_tokens` are the service's, None where nobody knows.
    """

    endpoint: str
    token_variable: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    drops_thinking: bool = False
    idle_s: float = IDLE_S
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    @property
    def name(self) -> str:
        """As records name it."""
        return f"remote:{self.endpoint}"

    async def ask(self, request: SummaryRequest, on_text: Callable[[int], None] | None = None) -> SummaryReply:
        """The service's answer.

        Raises:
            SettingsError: the variable for the token is not set.
            ModelError: the service failed; told apart by status (401, 403, 413, 429, 5xx) as for any provider.
        """
        body = {"systemPrompt": request.system, "prompt": request.prompt, "maxTokens": request.max_output_tokens}
        timeout = httpx2.Timeout(self.idle_s, connect=CONNECT_S)
        try:
            async with httpx2.AsyncClient(timeout=timeout) as client:
                response = await client.post(self.endpoint, json=body, headers=self._headers())
        except httpx2.TimeoutException as error:
            raise ModelTimeout(self.idle_s) from error
        except httpx2.HTTPError as error:
            raise ProviderUnavailable(f"{self.endpoint} cannot be reached: {error}") from error
        if response.status_code >= 400:
            raise _failure(response)
        reply = _reply(response)
        if on_text is not None:
            on_text(len(reply.text))
        return reply

    def _headers(self) -> dict[str, str]:
        if self.token_variable is None:
            return {}
        token = self.environment.get(self.token_variable)
        if not token:
            raise SettingsError(
                f"environment variable {self.token_variable}",
                "is not set; the remote summariser takes its bearer token from it",
                key="compaction.remoteTokenVariable",
            )
        return {"Authorization": f"Bearer {token}"}


def _reply(response: httpx2.Response) -> SummaryReply:
    try:
        data: Json = response.json()
    except ValueError as error:
        raise ProviderUnavailable(
            f"{response.url} answered with something that is not JSON", status=response.status_code
        ) from error
    summary = data.get("summary") if isinstance(data, dict) else None
    if not isinstance(summary, str):
        raise ProviderUnavailable(f"{response.url} answered without a summary", status=response.status_code)
    usage = data.get("usage")
    counts = (
        {key: usage[key] for key in ("input", "output") if isinstance(usage.get(key), int)}
        if isinstance(usage, dict)
        else {}
    )
    reason = data.get("stopReason")
    return SummaryReply(
        text=summary,
        usage=Usage(**counts) if counts else None,
        stop_reason=reason if isinstance(reason, str) else "stop",
    )


def _failure(response: httpx2.Response) -> ModelError:
    text = response.text[:MAX_ERROR_CHARS] or response.reason_phrase
    after = response.headers.get("retry-after", "")
    return error_for(response.status_code, text, retry_after_s=float(after) if after.isdigit() else None)
