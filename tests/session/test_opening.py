"""Where sessions are kept, what is told of their kernels, and what a conversation is begun with."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

import selfcompact as sc
from selfcompact.entries import CustomMessageEntry, Entry, MessageEntry, ModelChangeEntry
from selfcompact.kernel.snapshot import Skipped, SnapshotReport
from selfcompact.log import SessionLog, read_live
from selfcompact.messages import text_of
from selfcompact.session.conversation import Conversation
from selfcompact.session.kernel_state import NEW_KERNEL, opening_note, save_state, snapshot_file
from selfcompact.settings.kernel_state import KernelStateSettings
from selfcompact.workspace import new_session_file, sessions_folder
from tests.compaction.build import answered, called, logged, said
from tests.log.test_reading import chain, write

# Places


def test_a_workspaces_sessions_are_in_a_folder_named_for_its_whole_path(tmp_path: Path) -> None:
    root = sessions_folder()
    assert (root.name, root.parent.name) == ("sessions", "selfcompact")
    assert sessions_folder(Path("/a/b c/d")) == root / "a-b c-d"
    assert sessions_folder(Path("/")) == root / "root"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert sessions_folder(tmp_path / "link") == sessions_folder(tmp_path / "real/../real")
    assert sessions_folder(tmp_path / "real").name.endswith("-real")
    long = sessions_folder(Path("/", *(["part"] * 60), "end"))
    assert len(long.name) == 100
    assert long.name.endswith("part-part-end")


def test_names_of_new_session_files_sort_by_their_time(tmp_path: Path) -> None:
    files = [new_session_file(tmp_path) for _ in range(20)]
    assert {file.parent for file in files} == {sessions_folder(tmp_path)}
    assert files == sorted(files)
    assert {file.suffix for file in files} == {".jsonl"}
    begun = datetime.strptime(files[0].stem, "%Y-%m-%dT%H-%M-%S-%f").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - begun) < timedelta(minutes=1)


# Variables that are kept


@dataclass
class Variables:
    """A kernel as far as its variables go."""

    report: SnapshotReport = SnapshotReport()
    asked: list[tuple[str, Path]] = field(default_factory=list)
    hangs: bool = False

    async def snapshot(self, path: Path) -> SnapshotReport:
        return await self._answer("snapshot", path)

    async def restore(self, path: Path) -> SnapshotReport:
        return await self._answer("restore", path)

    async def _answer(self, what: str, path: Path) -> SnapshotReport:
        self.asked.append((what, path))
        if self.hangs:
            await anyio.sleep_forever()
        return self.report


KEEP = KernelStateSettings(keep=True, timeout_s=0.05)


async def test_variables_are_restored_from_beside_the_log_when_they_were_kept(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    assert snapshot_file(log) == tmp_path / "s.jsonl.variables"
    kernel = Variables(SnapshotReport(names=("treasure",)))
    assert await opening_note(kernel, log, KEEP) == NEW_KERNEL
    snapshot_file(log).touch()
    assert await opening_note(kernel, log, KernelStateSettings(keep=False)) == NEW_KERNEL
    assert kernel.asked == []
    note = await opening_note(kernel, log, KEEP)
    assert kernel.asked == [("restore", snapshot_file(log))]
    assert "opened again with a new kernel" in note
    assert "Restored variables: treasure" in note
    assert "gone" in NEW_KERNEL


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (Variables(SnapshotReport(names=("x",))), None),
        (Variables(SnapshotReport(problem="no dill")), "the variables were not saved: no dill"),
        (
            Variables(SnapshotReport(skipped=(Skipped("a", "too large"), Skipped("b", "a stream")))),
            "some variables were not saved: a (too large); b (a stream)",
        ),
        (Variables(hangs=True), "the variables were not saved: it took longer than 0.05 s"),
    ],
)
async def test_saving_variables_says_what_went_wrong(tmp_path: Path, kernel: Variables, said: str | None) -> None:
    assert await save_state(kernel, tmp_path / "s.jsonl", KEEP) == said
    assert kernel.asked == [("snapshot", tmp_path / "s.jsonl.variables")]


# The conversation


def conversation(log: SessionLog) -> Conversation:
    return Conversation(log, overhead_tokens=100)


def test_what_is_appended_is_in_the_log_and_in_every_account_and_points_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with SessionLog.open(path, cwd=tmp_path) as log:
        begun = conversation(log)
        assert (begun.leaf_id, begun.newest_response, list(begun.entries), begun.history()) == (None, None, [], ())
        assert begun.ledger.estimated_tokens == 100
        begun.say(said("question"))
        tokens = begun.ledger.estimated_tokens
        assert tokens > 100
        begun.add_context("note", "a word of the host")
        assert begun.ledger.estimated_tokens > tokens
        begun.note("record", {"x": 1})
        begun.say(answered("answer"))
        begun.say(answered("broken", stop_reason="error"))
        begun.label("e", "here")
        entries = list(begun.entries)
        assert begun.newest_response == answered("broken", stop_reason="error")
        assert begun.leaf_id == entries[-1].id
        assert [text_of(m) for m in begun.history()] == ["question", "a word of the host", "answer", *text_between()]
    live = read_live(path)
    assert list(live.entries) == entries
    assert [entry.parent_id for entry in entries] == [None, *(entry.id for entry in entries[:-1])]
    assert len({entry.id for entry in entries}) == len(entries)
    context = entries[1]
    assert isinstance(context, CustomMessageEntry)
    assert (context.custom_type, context.display) == ("note", True)
    with SessionLog.open(path, cwd=tmp_path) as log:
        again = conversation(log)
        assert again.leaf_id == entries[-1].id
        assert again.newest_response == answered("broken", stop_reason="error")
        assert again.history() == begun.history()
        assert again.ledger.estimated_tokens == begun.ledger.estimated_tokens


def text_between() -> list[str]:
    """What stands between two responses, and the one that broke off."""
    return ["(The previous response ended here; the session went on without a new request.)", "broken"]


def test_a_record_that_cannot_be_written_is_in_no_account(tmp_path: Path) -> None:
    log = SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path)
    begun = conversation(log)
    begun.say(said("question"))
    before = (begun.leaf_id, list(begun.entries), begun.ledger.estimated_tokens, begun.newest_response)
    log.close()
    with pytest.raises(sc.SessionFileError):
        begun.say(answered("answer"))
    assert (begun.leaf_id, list(begun.entries), begun.ledger.estimated_tokens, begun.newest_response) == before


def test_a_model_is_recorded_when_another_one_answered_before(tmp_path: Path) -> None:
    with SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path) as log:
        begun = conversation(log)
        for name in ("a", "a", "b", "a"):
            begun.change_model("p", name)
        begun.change_model("q", "a")
    changes = [e for e in read_live(tmp_path / "s.jsonl").entries if isinstance(e, ModelChangeEntry)]
    assert [f"{change.provider}:{change.model_id}" for change in changes] == ["p:a", "p:b", "p:a", "q:a"]
    assert [change.parent_id for change in changes] == [None, *(change.id for change in changes[:-1])]


def test_after_going_back_the_accounts_are_those_of_the_earlier_view(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    entries: list[Entry] = logged([said("one"), answered("", called("used")), said("two"), answered("three")])
    write(path, entries)
    with SessionLog.open(path, cwd=tmp_path) as log:
        begun = conversation(log)
        assert begun.claim_call_id("used") != "used"
        begun.go_back(read_live(path, leaf_id=entries[0].id))
        assert begun.leaf_id == entries[0].id
        assert begun.newest_response is None
        assert list(begun.entries) == entries[:1]
        assert begun.claim_call_id("used") == "used"
        begun.summarise_branch(entries[3].id, "went nowhere")
        told = begun.history()
    branch = read_live(path).entries[-1].to_json()
    assert (branch["parentId"], branch["fromId"], branch["summary"]) == (entries[0].id, entries[3].id, "went nowhere")
    assert "went nowhere" in text_of(told[-1])


def test_ids_of_live_entries_are_not_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.jsonl"
    write(path, chain(1))
    ids = iter(["e0", "first", "first", "second"])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(ids))
    with SessionLog.open(path, cwd=tmp_path) as log:
        begun = conversation(log)
        assert [begun.say(said(text)).id for text in ("one", "two")] == ["first", "second"]


def test_messages_are_entries_with_a_time(tmp_path: Path) -> None:
    with SessionLog.open(tmp_path / "s.jsonl", cwd=tmp_path) as log:
        entry = conversation(log).say(said("one"))
    assert isinstance(entry, MessageEntry)
    assert abs(datetime.fromisoformat(entry.timestamp) - datetime.now(UTC)) < timedelta(minutes=1)
