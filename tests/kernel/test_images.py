"""Images that cells display: decoded before they are kept, whatever they claim to be."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

from selfcompact.kernel.images import MAX_PIXELS, checked_image

from .conftest import OpenKernel


def encoded(kind: str = "PNG", size: tuple[int, int] = (3, 2), **options: object) -> str:
    """An image that is one."""
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, kind, **options)
    return base64.b64encode(file.getvalue()).decode()


RAW = base64.b64decode(encoded("PNG", (64, 64)))
MANY = encoded("PNG", (4001, 4000))
MOVING = encoded("PNG", save_all=True, append_images=[Image.new("RGB", (3, 2), "blue")])

NOT_KEPT = {
    "twelve bytes that begin like a PNG": ("image/png", base64.b64encode(b"\x89PNG\r\n\x1a\n1234").decode()),
    "a PNG without its end": ("image/png", base64.b64encode(RAW[:-20]).decode()),
    "a PNG whose pixels are broken": ("image/png", base64.b64encode(RAW[:50] + b"\0" * 20 + RAW[70:]).decode()),
    "a JPEG that says it is a PNG": ("image/png", encoded("JPEG")),
    "a GIF that says it is a PNG": ("image/png", encoded("GIF")),
    "a PNG that says it is a JPEG": ("image/jpeg", encoded("PNG")),
    "half a JPEG": ("image/jpeg", encoded("JPEG", (640, 480))[:400]),
    "no base64": ("image/png", "§§"),
    "nothing": ("image/png", ""),
    "more pixels than may be": ("image/png", MANY),
    "an animation": ("image/png", MOVING),
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_is_not_an_image_of_its_kind_is_left_out_with_a_sentence(name: str) -> None:
    image, note = checked_image(*NOT_KEPT[name], max_bytes=1_000_000)
    assert image is None
    assert note.startswith("[image/")
    assert "left out" in note


def test_an_image_is_kept_as_it_came_and_one_that_is_too_large_is_not() -> None:
    for mime_type, kind in (("image/png", "PNG"), ("image/jpeg", "JPEG")):
        data = encoded(kind, (640, 480))
        image, note = checked_image(mime_type, data[:10] + "\n" + data[10:], 1_000_000)
        assert image is not None
        assert (image.mime_type, image.data, note) == (mime_type, data, "")
        assert checked_image(mime_type, data, 10)[0] is None
    assert MAX_PIXELS >= 4000 * 4000


async def test_a_display_that_only_begins_like_an_image_is_told_to_the_model_and_not_kept(opened: OpenKernel) -> None:
    code = (
        "from IPython.display import publish_display_data as show\nimport base64\n"
        "show({'image/png': base64.b64encode(b'\\x89PNG\\r\\n\\x1a\\n1234').decode(), 'text/plain': '<Figure>'})\n"
        f"show({{'image/png': '{encoded()}'}})"
    )
    async with opened() as kernel:
        result = await kernel.execute(code)
    assert result.text == "<Figure>\n[image/png left out: it cannot be decoded as such an image]"
    assert [image.data for image in result.images] == [encoded()]
