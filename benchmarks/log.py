"""The session log: appending, opening, and searching over 1,000 to 300,000 entries of about 1 kB."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from selfcompact.entries import CompactionEntry, MessageEntry, SessionHeader, now_iso
from selfcompact.log import SessionLog, read_session
from selfcompact.log.archive import Archive
from selfcompact.log.lines import encode_line
from selfcompact.messages import user

SIZES = (1_000, 10_000, 100_000, 300_000)
LIVE = 600
"""Messages that the newest compaction kept."""

TEXT = "The reader sees about one kilobyte of ordinary words in every record. " * 13
REPEATS = 20
OPEN = """
import sys, tracemalloc
from pathlib import Path
from selfcompact.log import SessionLog
tracemalloc.start()
with SessionLog.open(Path(sys.argv[1]), cwd=Path("/")) as log:
    assert len(log.entries) > 0
print(tracemalloc.get_traced_memory()[1])
"""


def entry(number: int) -> MessageEntry:
    """One record, of about a kilobyte; every thousandth has a word of its own."""
    text = f"{number} {TEXT}" + (f" needle{number}" if number % 1_000 == 7 else "")
    parent = f"{number - 1:016x}" if number else None
    return MessageEntry(id=f"{number:016x}", parent_id=parent, timestamp=now_iso(), message=user(text))


def write(path: Path, count: int) -> None:
    """A log whose live context is the newest `LIVE` messages."""
    with path.open("wb") as file:
        file.write(encode_line(SessionHeader(version=3, id="s", timestamp=now_iso(), cwd="/")))
        for number in range(count):
            file.write(encode_line(entry(number)))
        kept = f"{max(0, count - LIVE):016x}"
        newest = f"{count - 1:016x}"
        compaction = CompactionEntry(
            id="c", parent_id=newest, timestamp=now_iso(), summary="s", first_kept_entry_id=kept, tokens_before=9
        )
        file.write(encode_line(compaction))


def median_ms(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median time of a call in milliseconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def open_once(path: Path) -> None:
    """Open and close, as a session does."""
    with SessionLog.open(path, cwd=Path("/")):
        pass


def append_ms(path: Path) -> float:
    """The median time of appending one record, without waiting for the disk."""
    with SessionLog.open(path, cwd=Path("/"), fsync=False) as log:
        return median_ms(lambda: log.append(entry(1)), 200)


def peak_mb(path: Path) -> float:
    """What opening allocates at most, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", OPEN, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1e6


def main() -> None:
    """Print the table."""
    print("| entries | file | append | open | memory | read whole | first search | next search |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / f"{size}.jsonl"
            write(path, size)
            megabytes = path.stat().st_size / 1e6
            opened, memory = median_ms(partial(open_once, path)), peak_mb(path)
            whole = median_ms(partial(read_session, path), 1)
            archive = Archive(path)
            first = median_ms(partial(archive.search, "needle7"), 1)
            following = median_ms(partial(archive.search, "needle7"))
            append = append_ms(path)
            print(
                f"| {size:,} | {megabytes:,.0f} MB | {append * 1000:.0f} µs | {opened:.1f} ms | {memory:.1f} MB "
                f"| {whole / 1000:.1f} s | {first / 1000:.1f} s | {following:.1f} ms |"
            )
            path.unlink()
            archive.rebuild()


if __name__ == "__main__":
    main()
