"""Files of a session and settings: what is planted in their place is not followed, nor read for ever."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner

import selfcompact as sc
from selfcompact.cli import cli
from selfcompact.errors import SessionFileError, SettingsError
from selfcompact.log.fork import fork_session
from selfcompact.settings.load import load_settings

from .conftest import OpenSession

PNG_SHOWN = (
    "from IPython.display import Image, display\nimport os, zlib, struct\n"
    "c = lambda k, d: struct.pack('>I', len(d)) + k + d + struct.pack('>I', zlib.crc32(k + d))\n"
    "rows = b''.join(b'\\0' + os.urandom(3 * 200) for _ in range(200))\n"
    "png = b'\\x89PNG\\r\\n\\x1a\\n' + c(b'IHDR', struct.pack('>2I5B', 200, 200, 8, 2, 0, 0, 0))\n"
    "display(Image(data=png + c(b'IDAT', zlib.compress(rows)) + c(b'IEND', b'')))"
)


@pytest.fixture(params=[0o000, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.lstat().st_mode & 0o077 and not path.is_symlink()]


async def test_all_that_holds_conversation_is_its_owners_alone_under_every_umask(
    opened: OpenSession, tmp_path: Path, umask: int
) -> None:
    kept = tmp_path / "kept"
    log = kept / "deep" / "s.jsonl"
    steps = [sc.cell("x = 1"), sc.cell(PNG_SHOWN), *[sc.cell("print('word ' * 3000)")] * 4, sc.say("ok")]
    async with opened(steps, session_file=log) as session:
        await session.prompt("go")
    for arguments in (
        ["search", log, "word"],
        ["export", log, "--to", "openai", "-o", kept / "export.json"],
        ["inspect", log, "--html", kept / "page.html"],
        ["compact", log, "-o", kept / "compacted.jsonl", "--keep-recent", "300", "--offline"],
    ):
        texts = [str(argument) for argument in arguments]
        done = await anyio.to_thread.run_sync(CliRunner().invoke, cli, texts)  # on a thread, which has no loop yet
        assert done.exit_code == 0, (done.output, done.exception)
    leaf = json.loads(log.read_text().splitlines()[-1])["id"]
    fork_session(log, kept / "fork.jsonl", leaf)
    log.write_bytes(log.read_bytes() + b'{"type":"mess')
    async with opened([], session_file=log):
        pass
    names = {path.name for path in kept.rglob("*")}
    assert {
        "export.json",
        "page.html",
        "fork.jsonl",
        "s.jsonl.blobs",
        "compacted.jsonl",
        "compacted.jsonl.blobs",
    } <= names
    assert any(".torn-" in name for name in names)
    assert open_to_others(kept) == []
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


async def test_a_link_in_the_place_of_a_torn_part_is_not_written_through(opened: OpenSession, tmp_path: Path) -> None:
    log, victim = tmp_path / "s.jsonl", tmp_path / "victim"
    async with opened([sc.say("ok")], session_file=log) as session:
        await session.prompt("go")
    torn = b'{"type":"message","half'
    log.write_bytes(log.read_bytes() + torn)
    (tmp_path / f"s.jsonl.torn-{log.stat().st_size}").symlink_to(victim)
    async with opened([sc.say("ok")], session_file=log) as session:
        assert len(session.history) == 2
    assert not victim.exists()
    (aside,) = (name for name in os.listdir(tmp_path) if name.endswith("-1"))  # noqa: PTH208
    assert (tmp_path / aside).read_bytes() == torn


def test_a_link_in_the_place_of_a_page_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    victim, log = tmp_path / "victim", tmp_path / "s.jsonl"
    victim.write_text("mine")
    header = {"type": "session", "version": 3, "id": "a", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/"}
    log.write_text(json.dumps(header) + "\n")
    (tmp_path / "page.html").symlink_to(victim)
    done = CliRunner().invoke(cli, ["inspect", str(log), "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert victim.read_text() == "mine"
    assert "<html" in (tmp_path / "page.html").read_text()


def not_regular(kind: str, tmp_path: Path) -> Path:
    path = tmp_path / "odd"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a link to a device":
        path.symlink_to("/dev/zero")
    else:
        path = Path("/dev/null")
    return path


ODD = ["a pipe", "a folder", "a link to a device", "a device"]


@pytest.mark.parametrize("kind", ODD)
async def test_a_session_file_that_is_not_regular_is_refused_at_once_in_a_sentence(
    opened: OpenSession, tmp_path: Path, kind: str
) -> None:
    path = not_regular(kind, tmp_path)
    with pytest.raises(SessionFileError, match="it is not a regular file"):
        async with opened([], session_file=path):
            pass
    commands = (["inspect"], ["compact", "--dry-run"], ["export", "--to", "openai"], ["search"])
    for command in commands:
        done = CliRunner().invoke(cli, [*command, str(path), *(["word"] if command == ["search"] else [])])
        assert isinstance(done.exception, SessionFileError), (command, done.output)
        assert "not a regular file" in str(done.exception), command


@pytest.mark.parametrize("place", [".prime/agent/settings.json", ".selfcompact/settings.json"])
@pytest.mark.parametrize("kind", ODD)
def test_settings_that_are_not_a_regular_file_are_refused_at_once(tmp_path: Path, place: str, kind: str) -> None:
    workspace = tmp_path / "w"
    (workspace / place).parent.mkdir(parents=True)
    odd = not_regular(kind, tmp_path)
    (workspace / place).symlink_to(odd) if kind == "a device" else odd.rename(workspace / place)
    with pytest.raises(SettingsError, match=r"not a regular file|a symbolic link leads to it"):
        load_settings(workspace)


def test_settings_that_are_too_long_or_nested_too_deep_or_behind_a_link_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "w" / ".prime/agent/settings.json"
    place.parent.mkdir(parents=True)
    for content, said in (("[" * 200_000, "not JSON"), (" " * 2**20 + "{}", "more than")):
        place.write_text(content)
        with pytest.raises(SettingsError, match=said):
            load_settings(tmp_path / "w")
    place.unlink()
    place.parent.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "settings.json").write_text('{"compaction": {"reserveTokens": 5000}}')
    place.parent.symlink_to(elsewhere)
    assert load_settings(tmp_path / "w").settings.compaction.reserve_tokens != 5000


def test_settings_that_cells_could_write_set_limits_and_switch_off_and_nothing_else(tmp_path: Path) -> None:
    ours = {
        "reserveTokens": 5000,
        "keepRecentTokens": 400,
        "enabled": False,
        "agentCallable": False,
        "promptFile": "/etc/hostname",
        "styleFolders": ["/tmp"],
        "style": "kimi",
        "model": "openai:other",
        "hooks": {"beforeCompact": [{"argv": ["/bin/true"]}]},
        "remoteEndpoint": "https://example.org",
        "remoteTokenVariable": "HOME",
        "channel": "remote",
        "offlineFallback": False,
        "maxCompactions": 1,
    }
    place = tmp_path / "w" / ".prime/agent/settings.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"compaction": ours}))
    origins = load_settings(tmp_path / "w").origins
    assert set(origins) == {
        f"compaction.{name}" for name in ("reserve_tokens", "keep_recent_tokens", "enabled", "agent_callable")
    }
    place.write_text(json.dumps({"compaction": {"enabled": True, "agentCallable": True}}))
    assert load_settings(tmp_path / "w").origins == {}
