"""When the disk has what was written, who may read it, and what is left when a step fails."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from selfcompact.entries import SessionHeader
from selfcompact.errors import SessionFileError
from selfcompact.log import SessionLog, read_header, read_live, read_session
from selfcompact.log.blobs import INLINE_BYTES, blob_folder
from selfcompact.log.fork import fork_session, write_new

from .test_blobs import with_image
from .test_reading import chain, say, write

Steps = list[tuple[str, str]]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """The durable steps that are made, in order, each with the file's name; a file that has no name yet is a `draft`.

    A file that gets its name must have been synced whole.
    """
    made: Steps = []
    synced: list[int] = []
    sync, write_, link, replace = os.fsync, os.write, os.link, Path.replace

    def named(kind: str, draft: Path, target: Path) -> None:
        assert draft.stat().st_size == synced[-1] > 0
        made.append((kind, target.name))

    def name_of(descriptor: int) -> str:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        return "draft" if name.startswith((".", "tmp")) else name

    def on_sync(descriptor: int) -> None:
        made.append(("sync", name_of(descriptor)))
        synced.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    def on_write(descriptor: int, data: bytes) -> int:
        made.append(("write", name_of(descriptor)))
        return write_(descriptor, data)

    def on_link(draft: Path, target: Path) -> None:
        named("link", draft, target)
        link(draft, target)

    def on_replace(draft: Path, target: Path) -> Path:
        named("replace", draft, target)
        return replace(draft, target)

    monkeypatch.setattr(os, "fsync", on_sync)
    monkeypatch.setattr(os, "write", on_write)
    monkeypatch.setattr(os, "link", on_link)
    monkeypatch.setattr(Path, "replace", on_replace)
    return made


def test_a_record_is_one_write_and_a_sync_stores_what_is_new_once(tmp_path: Path, steps: Steps) -> None:
    with SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path) as log:
        assert steps == [("write", "s.jsonl")]
        log.sync()
        log.append(say(0, None))
        log.append(say(1, "e0"))
        assert steps == [("write", "s.jsonl")] * 3
        log.sync()
        log.sync()
        assert steps[3:] == [("sync", "s.jsonl")]
        log.append(say(2, "e1"))
    assert steps[4:] == [("write", "s.jsonl"), ("sync", "s.jsonl")]


def test_without_fsync_nothing_waits_for_the_disk(tmp_path: Path, steps: Steps) -> None:
    with SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path, fsync=False) as log:
        log.append(say(0, None))
        log.sync()
    with SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path, fsync=False) as log:
        log.append(say(1, "e0"))
        log.sync()
    assert {kind for kind, _ in steps} == {"write"}


def test_a_session_that_is_opened_again_is_synced_too(tmp_path: Path, steps: Steps) -> None:
    write(tmp_path / "s.jsonl", chain(1))
    with SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path) as log:
        log.append(say(1, "e0"))
        log.sync()
        assert steps == [("write", "s.jsonl"), ("sync", "s.jsonl")]


def test_an_image_is_on_the_disk_under_its_name_before_its_record_is_written(tmp_path: Path, steps: Steps) -> None:
    path, raw = tmp_path / "s.jsonl", os.urandom(INLINE_BYTES)
    with SessionLog.open(path, cwd=tmp_path) as log:
        log.append(with_image("a", raw))
        log.append(with_image("b", raw, "a"))
    (image,) = blob_folder(path).iterdir()
    assert image.read_bytes() == raw
    record = ("write", "s.jsonl")
    assert steps[1:] == [("sync", "draft"), ("replace", image.name), record, record, ("sync", "s.jsonl")]


def test_a_copy_gets_its_name_when_all_of_it_is_on_the_disk(tmp_path: Path, steps: Steps) -> None:
    write(tmp_path / "a.jsonl", chain(3))
    fork_session(tmp_path / "a.jsonl", tmp_path / "deep/er/b.jsonl", "e2")
    assert steps == [("sync", "draft"), ("link", "b.jsonl")]
    assert [path.name for path in (tmp_path / "deep/er").iterdir()] == ["b.jsonl"]


def times_open(path: Path) -> int:
    """How many descriptors of this process lead to a file."""
    found = path.stat()
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists them is gone by now
            count += os.path.samestat(link.stat(), found)
    return count


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_but_the_owner_may_read_a_session_its_images_and_its_copies(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with SessionLog.open(path, cwd=tmp_path) as log:
        log.append(with_image("a", os.urandom(INLINE_BYTES * 2)))
    fork = fork_session(path, tmp_path / "fork.jsonl", "a")
    (image,) = blob_folder(path).iterdir()
    assert [oct(mode(each)) for each in (path, fork, image)] == [oct(0o600)] * 3
    assert oct(mode(blob_folder(path))) == oct(0o700)


def test_a_log_is_not_handed_on_to_programs_that_are_started(tmp_path: Path) -> None:
    with SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path):
        listing = ["ls", "-l", "/proc/self/fd"]
        done = subprocess.run(listing, capture_output=True, text=True, check=True, close_fds=False)
    assert "/proc/" in done.stdout
    assert "s.jsonl" not in done.stdout


def test_the_lock_is_let_go_at_the_end_and_also_when_opening_fails(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, chain(1))
    path.write_bytes(path.read_bytes().replace(b'"version":3', b'"version":9'))
    with pytest.raises(SessionFileError, match="format version 9"):
        SessionLog.open(path, cwd=tmp_path)
    assert times_open(path) == 0
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    write(path, chain(1))
    log = SessionLog.open(path, cwd=tmp_path)
    log.close()
    log.close()
    with SessionLog.open(path, cwd=tmp_path):
        assert times_open(path) == 1
    assert times_open(path) == 0


def test_another_process_that_has_the_log_open_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, chain(1))
    program = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'rb')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\nsys.stdin.read()"
    )
    locked = tmp_path / "before.jsonl", tmp_path / "after.jsonl"  # other locks, round the one that is looked for
    with (
        SessionLog.open(locked[0], cwd=tmp_path),
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with SessionLog.open(locked[1], cwd=tmp_path), pytest.raises(SessionFileError) as caught:
            SessionLog.open(path, cwd=tmp_path)
        assert holder.stdin is not None
        holder.stdin.close()
    said = str(caught.value)
    assert f"is open in process {holder.pid} ({sys.executable} -c import fcntl" in said
    assert said.endswith("; close that one, or choose another file")
    assert "\n" not in said


def test_nothing_can_be_appended_to_a_closed_log(tmp_path: Path) -> None:
    log = SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path)
    log.append(say(0, None))
    log.close()
    with pytest.raises(SessionFileError, match=r"s\.jsonl: is closed"):
        log.append(say(1, "e0"))
    log.sync()


def test_a_file_that_holds_a_header_alone_goes_and_one_with_entries_stays(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    SessionLog.open(path, cwd=tmp_path).close()
    assert not path.exists()
    with SessionLog.open(path, cwd=tmp_path) as log:
        log.append(say(0, None))
    SessionLog.open(path, cwd=tmp_path).close()
    assert path.exists()


def test_a_file_whose_every_entry_is_damaged_stays(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [])
    path.write_bytes(path.read_bytes() + b"\0\0\0\n")
    SessionLog.open(path, cwd=tmp_path).close()
    assert path.exists()


def test_a_new_file_says_when_where_and_from_what_it_was_begun(tmp_path: Path) -> None:
    path = tmp_path / "folder/s.jsonl"
    with SessionLog.open(path, cwd=tmp_path / "work", parent_session="/the/old.jsonl") as log:
        header = read_header(path)
        assert header == log.header
        log.append(say(0, None))
        assert log.path == path
    assert (
        header.to_json()
        == SessionHeader(
            version=3,
            id=header.id,
            timestamp=header.timestamp,
            cwd=str(tmp_path / "work"),
            parent_session="/the/old.jsonl",
        ).to_json()
    )
    assert len(header.id) == 36
    assert header.timestamp.endswith("Z")
    with SessionLog.open(tmp_path / "other.jsonl", cwd=tmp_path) as other:
        assert other.header.id != header.id
        assert other.header.parent_session is None


def test_a_folder_in_place_of_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError, match=r"cannot be opened .*choose another file"):
        SessionLog.open(tmp_path, cwd=tmp_path)
    with pytest.raises(SessionFileError, match=r"cannot be read .*name an existing file"):
        read_header(tmp_path / "none.jsonl")


def test_an_image_that_cannot_be_written_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with SessionLog.open(path, cwd=tmp_path) as log:
        log.append(say(0, None))
        before = path.read_bytes()
        blob_folder(path).write_text("a file where the folder should be")
        with pytest.raises(SessionFileError, match=r"s\.jsonl: an image cannot be written beside it"):
            log.append(with_image("a", os.urandom(INLINE_BYTES * 2), "e0"))
        assert path.read_bytes() == before
        log.append(say(1, "e0"))
    assert [entry.id for entry in read_live(path).entries] == ["e0", "e1"]


@pytest.mark.parametrize("fails", ["short", "full"])
def test_a_write_that_did_not_fit_is_taken_back_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path, real = tmp_path / "s.jsonl", os.write

    def fail(descriptor: int, data: bytes) -> int:
        written = real(descriptor, data[:10])
        if fails == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        return written

    with SessionLog.open(path, cwd=tmp_path) as log:
        log.append(say(0, None))
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fail)
            told = "No space left" if fails == "full" else "only 10 of"
            with pytest.raises(SessionFileError, match=f"s.jsonl: cannot be written .*{told}.*make room"):
                log.append(say(1, "e0"))
        assert path.read_bytes() == before
        log.append(say(2, "e0"))
    assert [entry.id for entry in read_live(path).entries] == ["e0", "e2"]


def test_a_header_whose_write_did_not_end_is_begun_again_and_kept_beside(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for torn in (b'{"type":"session","version":3,"id":"ab', b'{"ty'):
        path.write_bytes(torn)
        with SessionLog.open(path, cwd=tmp_path) as log:
            log.append(say(0, None))
        assert (tmp_path / f"s.jsonl.torn-{len(torn)}").read_bytes() == torn
        _, entries, damage = read_session(path)
        assert ([entry.id for entry in entries], damage) == (["e0"], [])


def test_a_header_without_its_newline_is_kept_and_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, [])
    header = read_header(path)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with SessionLog.open(path, cwd=tmp_path) as log:
        assert log.header == header
        log.append(say(0, None))
    assert [entry.id for entry in read_live(path).entries] == ["e0"]
    assert list(tmp_path.glob("*.torn-*")) == []


def test_a_torn_record_goes_aside_and_a_whole_one_without_its_newline_stays(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, chain(2))
    whole = path.read_bytes()
    long = b'{"type":"message","text":"' + b"".join(b"%07d " % number for number in range(80_000))
    for torn in (b'{"type":"message","id"', b"[1]", b'{"id":"x"}', long):
        path.write_bytes(whole + torn)
        with SessionLog.open(path, cwd=tmp_path) as log:
            assert log.damage == ()
        assert path.read_bytes() == whole
        assert (tmp_path / f"s.jsonl.torn-{len(whole) + len(torn)}").read_bytes() == torn
    path.write_bytes(whole[:-1])
    SessionLog.open(path, cwd=tmp_path).close()
    assert path.read_bytes() == whole


def test_a_copy_that_fails_midway_leaves_no_file(tmp_path: Path) -> None:
    def records() -> Any:
        yield {"type": "session"}
        raise KeyError("midway")

    with pytest.raises(KeyError):
        write_new(tmp_path / "b.jsonl", records())
    assert list(tmp_path.iterdir()) == []


def test_a_copy_never_takes_the_place_of_a_file_that_appeared_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "b.jsonl"

    def records() -> Any:
        target.write_text("somebody else's")
        yield {"type": "session"}

    with pytest.raises(SessionFileError, match=r"b\.jsonl: already exists"):
        write_new(target, records())
    assert target.read_text() == "somebody else's"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_a_copy_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionFileError, match=r"file/b\.jsonl: cannot be written"):
        write_new(tmp_path / "file/b.jsonl", [])


def test_a_copy_on_a_disk_that_is_full_is_told_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SessionFileError, match=r"b\.jsonl: cannot be written .No space left"):
        write_new(tmp_path / "b.jsonl", [{"type": "session"}])
    assert list(tmp_path.iterdir()) == []
