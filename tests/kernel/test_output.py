"""What a cell shows: cut to head and tail while it is received, without colours, whole where it fits."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcompact.kernel import CellResult
from selfcompact.kernel.output import TextCapture, plain

from .conftest import OpenKernel

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def captured(pieces: Iterable[str], head: int = 50, tail: int = 30) -> TextCapture:
    capture = TextCapture(head, tail)
    for piece in pieces:
        capture.feed(piece)
    return capture


@given(st.lists(st.text(alphabet="abc\nüx€😀", max_size=40), max_size=20))
def test_text_that_fits_is_kept_whole_and_more_is_head_and_tail(pieces: list[str]) -> None:
    whole = "".join(pieces)
    capture = captured(pieces)
    text = capture.text()
    size = len(whole.encode())
    if size <= 80 - 3:  # a character of four bytes that does not fit into the head goes to the tail
        assert text == whole
        assert capture.total_omitted == 0
        return
    if not capture.total_omitted:
        assert text == whole
        return
    head, tail = re.split(r"\n\[… [\d,]+ bytes left out …\]\n", text)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head.encode()) <= 50
    assert len(tail.encode()) <= 30
    assert abs(size - len(head.encode()) - len(tail.encode()) - capture.total_omitted) <= 6  # half characters


@given(st.integers(1, 5000), st.integers(1, 50))
def test_memory_does_not_grow_with_the_text(pieces: int, size: int) -> None:
    capture = captured("x" * size for _ in range(pieces))
    kept = sum(len(text) for text in capture._head) + sum(len(text) for text, _ in capture._tail)
    assert kept <= 50 + 30 + size


@given(st.lists(st.integers(0, 40), max_size=6))
def test_colours_are_removed_wherever_they_are_split(cuts: list[int]) -> None:
    text = "\x1b[1;31mred\x1b[0m and \x1b]8;;http://x\x07link\x1b]8;;\x07\x1b[2K plain"
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    capture = captured((text[a:b] for a, b in itertools.pairwise(places)), head=500)
    assert capture.text() == "red and link plain"


def test_a_line_that_was_overwritten_shows_its_end() -> None:
    assert captured(["10%\r", "50%\r", "100%\ndone"]).text() == "100%\ndone"


@pytest.mark.parametrize("text", ["a\x00b\x07c", "a\r\nb", "\x1b(B\x1b=x"])
def test_control_characters_are_gone(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", plain(text))


async def test_what_a_cell_shows_is_what_the_model_reads(opened: OpenKernel) -> None:
    async with opened() as kernel:
        result = await kernel.execute(
            "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('\\x1b[31mred\\x1b[0m')\n'value'"
        )
        assert result == CellResult(
            status="ok",
            text="out\nerr\nred\n'value'",
            execution_count=1,
            generation=1,
            duration_s=result.duration_s,
        )
        silent = await kernel.execute("x = 1")
        assert (silent.text, silent.execution_count) == ("", 2)


async def test_an_error_shows_its_traceback_after_what_was_printed(opened: OpenKernel) -> None:
    async with opened() as kernel:
        result = await kernel.execute("print('before')\ndef f(): 1 / 0\nf()")
        assert (result.status, result.error_name, result.error_value) == (
            "error",
            "ZeroDivisionError",
            "division by zero",
        )
        assert result.text.startswith("before\n")
        assert result.text.endswith("ZeroDivisionError: division by zero")
        assert "\x1b" not in result.text
        syntax = await kernel.execute("1 +")
        assert (syntax.status, syntax.error_name) == ("error", "SyntaxError")


async def test_children_and_descriptors_write_into_the_cell_that_started_them(opened: OpenKernel) -> None:
    async with opened() as kernel:
        for number in range(5):
            result = await kernel.execute(f"import os, subprocess\nsubprocess.run(['echo', 'child {number}']);")
            assert result.text == f"child {number}"


@pytest.mark.slow
async def test_ten_thousand_flushed_lines_are_complete_or_say_what_is_missing(opened: OpenKernel) -> None:
    """Nothing is lost on the way, whatever the speed of the two sides."""
    lines = "".join(f"line {n}\n" for n in range(10_000))
    async with opened(output_head_bytes=200_000) as kernel:
        whole = await kernel.execute("for n in range(10_000): print('line', n, flush=True)", timeout_s=50)
        assert whole.text == lines.rstrip("\n")
        assert whole.omitted_bytes == 0
    async with opened() as kernel:
        cut = await kernel.execute("for n in range(10_000): print('line', n, flush=True)", timeout_s=50)
        head, tail = re.split(r"\n\[… [\d,]+ bytes left out …\]\n", cut.text)
        assert lines.startswith(head)
        assert lines.rstrip("\n").endswith(tail)
        assert cut.omitted_bytes == len(lines) - 24 * 1024


FLOODS = {
    "one line of 100 MB": "print('x' * 100_000_000)",
    "a value of 100 MB": "'z' * 100_000_000",
    "an error text of 100 MB": "raise ValueError('e' * 100_000_000)",
    "100 MB through the descriptor": "import os\nfor n in range(2000): os.write(1, b'q' * 50_000)",
    "display data of 60 MB": (
        "from IPython.display import publish_display_data as p\np({'text/plain': 'r' * 60_000_000})\n"
        "p({'image/png': 'r' * 60_000_000})"
    ),
}


def resident_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@pytest.mark.slow
async def test_floods_end_normally_and_cost_the_host_no_memory(opened: OpenKernel) -> None:
    """Less than 64 MiB more than before, and the next cell is what it would have been."""
    async with opened({"memory": None}) as kernel:
        await kernel.execute("1")
        for name, code in FLOODS.items():
            forget_peak()
            before = resident_mib("VmRSS")
            result = await kernel.execute(code, timeout_s=50)
            assert result.status in ("ok", "error"), name
            assert len(result.text.encode()) < 48 * 1024, name
            assert "left out" in result.text, name
            assert resident_mib("VmHWM") - before < 64, name
            while (following := await kernel.execute("1 + 1")).text.startswith("[printed by earlier cells"):
                pass
            assert (following.text, following.note) == ("2", None), name


@pytest.mark.slow
async def test_a_gigabyte_of_lines_costs_the_host_no_memory(opened: OpenKernel) -> None:
    async with opened({"memory": None}) as kernel:
        forget_peak()
        before = resident_mib("VmRSS")
        result = await kernel.execute("s = 'y' * 999\nfor n in range(1_000_000): print(s)", timeout_s=50)
        assert result.status == "ok"
        assert result.omitted_bytes == 10**9 - 24 * 1024
        assert resident_mib("VmHWM") - before < 64


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_hundred_thousand_displays_cost_the_host_no_memory(opened: OpenKernel) -> None:
    async with opened() as kernel:
        forget_peak()
        before = resident_mib("VmRSS")
        result = await kernel.execute("for n in range(100_000): display(n)", timeout_s=150)
        assert result.status == "ok"
        assert result.text.endswith("99999")
        assert resident_mib("VmHWM") - before < 64


async def test_a_message_that_is_too_long_to_read_is_named_and_the_channel_heals(opened: OpenKernel) -> None:
    """A hostile kernel sends past our own limits."""
    code = """
from jupyter_client.session import Session
kernel = get_ipython().kernel
loud = Session(key=kernel.session.key)
loud.send(kernel.iopub_socket, "stream", {"name": "stdout", "text": "x" * 40_000_000}, parent=kernel.get_parent())
"""
    async with opened({"memory": None}) as kernel:
        result = await kernel.execute(code)
        assert "was lost" in (result.note or "")
        assert (await kernel.execute("print('heard')")).text == "heard"
        assert kernel.generation == 1


async def test_output_of_a_thread_never_lands_in_another_cells_result(opened: OpenKernel) -> None:
    async with opened() as kernel:
        await kernel.execute(
            "import threading, time\ndef talk():\n    time.sleep(0.2)\n    print('late words', flush=True)\n"
            "thread = threading.Thread(target=talk); thread.start()"
        )
        await kernel.execute("thread.join(); time.sleep(0.1)")
        result = await kernel.execute("'mine'")
        late, mine = result.text.split("[this cell]\n")
        assert "late words" in late
        assert "after they had ended" in late
        assert mine == "'mine'"
        assert (await kernel.execute("'next'")).text == "'next'"


async def test_images_are_kept_as_blocks_up_to_their_number(opened: OpenKernel) -> None:
    code = f"from IPython.display import Image\nimport base64\nimage = Image(data=base64.b64decode('{PNG}'))\n"
    async with opened(images_per_cell=2) as kernel:
        result = await kernel.execute(code + "for _ in range(5): display(image)")
        assert [image.mime_type for image in result.images] == ["image/png"] * 2
        assert "3 more images left out" in result.text
        assert PNG not in result.text


async def test_clearing_the_output_forgets_what_was_shown(opened: OpenKernel) -> None:
    code = (
        "from IPython.display import clear_output\n"
        "for n in range(3):\n    clear_output(wait=True)\n    print('step', n)"
    )
    async with opened() as kernel:
        assert (await kernel.execute(code)).text == "step 2"


async def test_the_output_callback_hears_each_piece_and_may_fail(opened: OpenKernel) -> None:
    heard: list[str] = []

    def fail(_text: str) -> None:
        raise RuntimeError("a display that broke")

    async with opened() as kernel:
        await kernel.execute("print('a', flush=True); print('b')", on_output=heard.append)
        assert "".join(heard) == "a\nb\n"
        assert (await kernel.execute("print('c')", on_output=fail)).text == "c"
