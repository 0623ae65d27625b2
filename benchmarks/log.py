"""The session log: appending, opening, and searching over 1,000 to 300,000 entries of about 1 kB."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path

from benchmarks.measure import median, options, spread, table
from selfcompact.entries import CompactionEntry, MessageEntry, SessionHeader, now_iso
from selfcompact.log import SessionLog, read_session
from selfcompact.log.lines import encode_line
from selfcompact.log.search import Archive
from selfcompact.messages import user

SIZES = (1_000, 10_000, 100_000, 300_000)
LIVE = 600
"""Messages that the newest compaction kept."""

TEXT = "The reader sees about one kilobyte of ordinary words in every record. " * 13
REPEATS = 20
LONG = 300_000
"""From here on, what reads the whole file is measured once: it takes most of a minute."""

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


def open_once(path: Path) -> None:
    """Open and close, as a session does."""
    with SessionLog.open(path, cwd=Path("/")):
        pass


def append_s(path: Path) -> float:
    """The median time of appending one record, without waiting for the disk."""
    with SessionLog.open(path, cwd=Path("/"), fsync=False) as log:
        return median(lambda: log.append(entry(1)), 200)


def peak_mb(path: Path) -> float:
    """What opening allocates at most, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", OPEN, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1e6


def measured(path: Path, *, whole: bool) -> dict[str, float]:
    """One run over one log. What reads all of it is left out when it is not `whole`."""
    found = {"open": median(partial(open_once, path), REPEATS), "memory": peak_mb(path)}
    archive = Archive(path)
    if whole:
        found["read whole"] = median(partial(read_session, path), 1)
        archive.rebuild()
        found["first search"] = median(partial(archive.search, "needle7"), 1)
    found["next search"] = median(partial(archive.search, "needle7"), REPEATS)
    size = path.stat().st_size
    found["append"] = append_s(path)
    os.truncate(path, size)  # the next run shall find what this one found
    return found


def main() -> None:
    """Print the table."""
    chosen = options("log", most=SIZES[-1])
    print(f"Medians of {chosen.runs} runs, lowest and highest in brackets; without brackets: one run.\n")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in [size for size in SIZES if size <= chosen.most]:
            path = Path(folder) / f"{size}.jsonl"
            write(path, size)
            megabytes = path.stat().st_size / 1e6
            found: dict[str, list[float]] = defaultdict(list)
            for run in range(chosen.runs):
                for name, value in measured(path, whole=run == 0 or size < LONG).items():
                    found[name].append(value)
            rows.append(
                (
                    f"{size:,}",
                    f"{megabytes:,.0f} MB",
                    spread(found["append"], 0, 1e6),
                    spread(found["open"], 1, 1e3),
                    spread(found["memory"], 1),
                    spread(found["read whole"], 2),
                    spread(found["first search"], 2),
                    spread(found["next search"], 1, 1e3),
                )
            )
            Archive(path).rebuild()
            path.unlink()
    figures = ("append, µs", "open, ms", "memory, MB", "read whole, s", "first search, s", "next search, ms")
    table(("entries", "file", *figures), rows)
