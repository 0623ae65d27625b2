"""Reading what a model was asked: whole responses, prompts, and the tagged parts of a summary's prompt."""

from __future__ import annotations

import re

from selfcompact.messages import AssistantMessage, UserMessage, text_of
from selfcompact.models.protocol import Completed, Model, ModelRequest


async def complete(model: Model, request: ModelRequest) -> AssistantMessage:
    """The whole response to one request.

    Raises:
        selfcompact.errors.ModelError: the provider failed.
    """
    message: AssistantMessage | None = None
    async for event in model.stream(request):
        if isinstance(event, Completed):
            message = event.message
    if message is None:
        raise RuntimeError(f"{model.provider}:{model.model_id} ended its stream without a response")
    return message


def prompt_text(request: ModelRequest) -> str:
    """All user text of a request, in order: what a summariser is asked with."""
    return "\n\n".join(text_of(message) for message in request.messages if isinstance(message, UserMessage))


def parts_of(prompt: str) -> dict[str, str]:
    """The tagged parts of a prompt by name, told by the nonce of its first tag."""
    first = re.match(r'<[a-z-]+ nonce="([0-9a-f]+)">', prompt)
    if first is None:
        return {}
    tagged = re.compile(
        rf'^<(?P<name>[a-z-]+) nonce="{first[1]}">\n(?P<body>.*?)\n</(?P=name) nonce="{first[1]}">$',
        re.DOTALL | re.MULTILINE,
    )
    return {match["name"]: match["body"] for match in tagged.finditer(prompt)}
