"""An image that the provider cannot take costs one request, and not the session."""

from __future__ import annotations

import json
from pathlib import Path

import selfcompact as sc
from selfcompact.messages import ImageContent, blocks
from selfcompact.models.protocol import ModelRequest
from selfcompact.models.scripted import Step
from selfcompact.session.history import WITHHELD

from .conftest import OpenSession
from .helpers import history_text, of_type

SHOW = (
    "from IPython.display import Image, display\nimport base64, zlib, struct\n"
    "def chunk(kind, data):\n"
    "    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\n"
    "rows = b''.join(b'\\0' + bytes(3 * 4) for _ in range(4))\n"
    "png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>2I5B', 4, 4, 8, 2, 0, 0, 0))\n"
    "png += chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')\n"
    "display(Image(data=png))"
)
REFUSED = Step(error=sc.ImageRefused("Could not process image", status=400))


def images(request: ModelRequest) -> int:
    return sum(isinstance(block, ImageContent) for message in request.messages for block in blocks(message))


async def test_a_refused_image_is_replaced_by_a_sentence_for_good_and_the_run_goes_on(
    opened: OpenSession, tmp_path: Path
) -> None:
    log = tmp_path / "s.jsonl"
    steps = [sc.cell(SHOW), sc.cell(SHOW), REFUSED, sc.say("I see no image.")]
    async with opened(steps, session_file=log) as session:
        stream = session.events()
        result = await session.prompt("go")
        model = session.model
        assert isinstance(model, sc.ScriptedModel)
        counts = [images(request) for request in model.requests]
        (warning,) = of_type(stream.pending(), "warning")
    assert (result.status, result.text) == ("done", "I see no image.")
    assert counts == [0, 1, 2, 1], "what was taken before stays"
    assert "Could not process image" in warning.message
    assert [json.loads(line)["type"] for line in log.read_text().splitlines()].count("message") == 7
    async with opened([sc.say("again")], session_file=log) as session:
        assert history_text(session).count(WITHHELD) == 1
        await session.prompt("and now?")
        model = session.model
        assert isinstance(model, sc.ScriptedModel)
        assert images(model.requests[0]) == 1


async def test_when_it_is_refused_again_the_older_images_go_too_and_then_the_error_is_the_answer(
    opened: OpenSession,
) -> None:
    steps = [sc.cell(SHOW), sc.cell(SHOW), REFUSED, REFUSED, REFUSED]
    async with opened(steps) as session:
        result = await session.prompt("go")
        model = session.model
        assert isinstance(model, sc.ScriptedModel)
        assert [images(request) for request in model.requests] == [0, 1, 2, 1, 0]
    assert result.status == "failed"
    assert isinstance(result.error, sc.ImageRefused)


async def test_an_error_about_something_else_withholds_nothing(opened: OpenSession) -> None:
    async with opened([sc.cell(SHOW), sc.fail("no images for you", status=400)]) as session:
        await session.prompt("go")
        assert WITHHELD not in history_text(session)
