"""The note of what is on disk says too little at most.

A folder is opened as it is left at each step of a checkpoint, at which the log begins anew and may be cut, of a stop,
of an opening that fails, and after another program has copied the log to the database.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from mongottl.storage.data_folder import sync_file
from mongottl.storage.errors import DataDirectoryError
from mongottl.storage.opening import open_engine
from mongottl.storage.sqlite.directory import open_data_directory
from mongottl.storage.sqlite.disk_room import DiskRoom
from mongottl.storage.sqlite.durable_log import noted_state
from mongottl.storage.sqlite.engine import SqliteEngine

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no note is made there")

DATABASE, LOG, NOTE = "mongottl.sqlite3", "mongottl.sqlite3-wal", "mongottl.durable"


class Steps:
    """Copies of a folder: before and after each call of the system that a step ends with, as a killed process leaves
    them. present: how many units the copy must have at least."""

    def __init__(self, folder: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.copies = copies
        self.flushed = 0
        self.taken: list[tuple[str, Path, int]] = []
        unlink, pwrite = os.unlink, os.pwrite

        def copying_unlink(path: str) -> None:
            self.take("before a removal")
            unlink(path)
            self.take("after a removal")

        def copying_pwrite(descriptor: int, data: bytes, offset: int) -> int:
            self.take("before a note")
            written = pwrite(descriptor, data, offset)
            self.take("after a note")
            return written

        monkeypatch.setattr(os, "unlink", copying_unlink)
        monkeypatch.setattr(os, "pwrite", copying_pwrite)

    def take(self, name: str) -> None:
        copy = self.copies / str(len(self.taken))
        copy.mkdir(parents=True)
        for file in (DATABASE, LOG, NOTE):
            if (self.folder / file).exists():
                shutil.copy(self.folder / file, copy / file)
        self.taken.append((name, copy, self.flushed))

    def sync(self, descriptor: int) -> None:
        self.take("before waiting for the disk")
        sync_file(descriptor)
        self.take("after waiting for the disk")


def commit(engine: SqliteEngine, number: int) -> None:
    with engine.unit_of_work() as unit:
        if "rows" not in engine.idents():
            engine.create_record_store("rows", is_log=True)
        engine.put_catalog_entry(f"key{number:04d}", bytes(3000))
        engine.record_store("rows").insert_record(b"row", 1, 0)
        unit.commit()


def work(engine: SqliteEngine, steps: Steps) -> None:
    """Units of work, flushes and checkpoints, with a copy between any two of them."""
    for number in range(24):
        commit(engine, number)
        steps.take("a unit")
        if number % 3 == 0:
            engine.flush()
            steps.flushed = number + 1
            steps.take("a flush")
        if number % 4 == 3:
            engine.maintain()
            steps.take("a checkpoint")
            if number % 8 == 3:
                engine.flush()
                steps.flushed = number + 1
                steps.take("a flush behind a checkpoint")


def trace(engine: SqliteEngine, steps: Steps) -> None:
    """Copies before each statement of the connection of checkpoints."""
    commit(engine, 0)
    engine.maintain()
    assert engine._folder is not None and engine._folder.maintenance._checkpointer is not None
    engine._folder.maintenance._checkpointer.set_trace_callback(lambda sql: steps.take(sql))


def keys(folder: Path) -> int:
    engine = open_engine(f"sqlite:{folder}")
    try:
        return len(engine.catalog_entries())
    finally:
        engine.close()


@pytest.mark.parametrize("nearly_full", [False, True], ids=["room", "nearly full"])
def test_each_step_leaves_a_folder_that_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nearly_full: bool
) -> None:
    """nearly_full: the log's file is cut at each checkpoint."""
    if nearly_full:
        monkeypatch.setattr(DiskRoom, "is_nearly_full", property(lambda self: True))
    folder = tmp_path / "data"
    with monkeypatch.context() as patch:
        steps = Steps(folder, tmp_path / "copies", patch)
        engine = SqliteEngine(open_data_directory(str(folder)), checkpoint_bytes=0, sync=steps.sync)
        trace(engine, steps)
        work(engine, steps)
        engine.close()
        steps.take("the end")
    lengths = [(copy / LOG).stat().st_size for name, copy, _ in steps.taken if (copy / LOG).exists()]
    if nearly_full:
        assert any(later < earlier for earlier, later in pairwise(lengths))
    with_note = 0
    salts = set()
    for name, copy, flushed in steps.taken:
        noted = noted_state(str(copy / NOTE))
        if noted is not None:
            with_note += 1
            salts.add(noted.salts)
        assert keys(copy) >= flushed, name
    assert with_note > 10 and len(salts) > 3  # of several logs
    assert not (folder / NOTE).exists()


@pytest.mark.parametrize("nearly_full", [False, True], ids=["room", "nearly full"])
def test_an_older_note_refuses_no_later_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nearly_full: bool) -> None:
    """As after a power failure: the removal of a note, or a later one, was not on the disk yet."""
    if nearly_full:
        monkeypatch.setattr(DiskRoom, "is_nearly_full", property(lambda self: True))
    folder = tmp_path / "data"
    with monkeypatch.context() as patch:
        steps = Steps(folder, tmp_path / "copies", patch)
        engine = SqliteEngine(open_data_directory(str(folder)), checkpoint_bytes=0)
        trace(engine, steps)
        work(engine, steps)
        later = len(steps.taken)
        engine.close()
    notes: dict[bytes, int] = {}
    for position, (_, copy, _) in enumerate(steps.taken[:later]):
        if (copy / NOTE).exists():
            notes.setdefault((copy / NOTE).read_bytes(), position)
    assert len(notes) > 5
    for position in range(0, later, 5):
        name, copy, flushed = steps.taken[position]
        for note, since in notes.items():
            if since <= position:
                mixed = tmp_path / "mixed"
                shutil.copytree(copy, mixed)
                (mixed / NOTE).write_bytes(note)
                assert keys(mixed) >= flushed, name
                shutil.rmtree(mixed)


def crashed(tmp_path: Path, unflushed: int = 0) -> Path:
    """A folder whose log has all units, the first five in a note, as a killed process leaves it."""
    folder = tmp_path / "data"
    engine = SqliteEngine(open_data_directory(str(folder)))
    for number in range(5):
        commit(engine, number)
    engine.flush()
    for number in range(5, 5 + unflushed):
        commit(engine, number)
    copy = tmp_path / "crashed"
    copy.mkdir()
    for file in (DATABASE, LOG, NOTE):
        shutil.copy(folder / file, copy / file)
    engine.close()
    return copy


def cut(folder: Path) -> None:
    os.truncate(folder / LOG, (folder / LOG).stat().st_size // 2)


def remove(folder: Path) -> None:
    (folder / LOG).unlink()


def empty(folder: Path) -> None:
    os.truncate(folder / LOG, 0)


def change_header(folder: Path) -> None:
    with (folder / LOG).open("r+b") as log:
        log.seek(17)
        log.write(b"\xee")


def replace(folder: Path) -> None:
    """By the log of another program, which has found the database without its own."""
    (folder / LOG).unlink()
    raw = sqlite3.connect(folder / DATABASE, isolation_level=None)
    raw.execute("CREATE TABLE strange (x)")
    content = (folder / LOG).read_bytes()
    raw.close()
    (folder / LOG).write_bytes(content)


LOSSES: list[tuple[Callable[[Path], None], str]] = [
    (cut, "pages are missing"),
    (remove, "it was removed or emptied"),
    (empty, "it was removed or emptied"),
    (change_header, "its header is damaged"),
    (replace, "it was replaced by another"),
]


@pytest.mark.parametrize(("lose", "told"), LOSSES)
def test_a_loss_is_refused_until_the_note_is_removed(tmp_path: Path, lose: Callable[[Path], None], told: str) -> None:
    folder = crashed(tmp_path)
    lose(folder)
    before = {name: (folder / name).read_bytes() for name in (DATABASE, LOG) if (folder / name).exists()}
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match=f"as durable cannot be read: .*{told}.* remove .*{NOTE}"):
            open_engine(f"sqlite:{folder}")
    assert {name: (folder / name).read_bytes() for name in (DATABASE, LOG) if (folder / name).exists()} == before
    (folder / NOTE).unlink()
    assert keys(folder) < 5


def checkpoint(mode: str) -> Callable[[sqlite3.Connection], None]:
    def act(raw: sqlite3.Connection) -> None:
        raw.execute(f"PRAGMA wal_checkpoint({mode})")

    return act


def checkpoint_and_write(raw: sqlite3.Connection) -> None:
    raw.execute("PRAGMA wal_checkpoint(RESTART)")
    raw.execute("CREATE TABLE strange (x)")


OTHERS = [
    checkpoint("PASSIVE"),
    checkpoint("FULL"),
    checkpoint("RESTART"),
    checkpoint("TRUNCATE"),
    checkpoint_and_write,
]


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("unflushed", [0, 3])
@pytest.mark.parametrize("act", OTHERS)
def test_another_program_that_copies_the_log_loses_nothing(
    tmp_path: Path, act: Callable[[sqlite3.Connection], None], unflushed: int, killed: bool
) -> None:
    """Such as SQLite's shell, which copies the log when it is closed, and removes it."""
    folder = crashed(tmp_path, unflushed)
    raw = sqlite3.connect(folder / DATABASE, isolation_level=None)
    act(raw)
    if killed:
        content = (folder / LOG).read_bytes()
    raw.close()
    if killed:
        (folder / LOG).write_bytes(content)
    else:
        assert not (folder / LOG).exists()
    engine = SqliteEngine(open_data_directory(str(folder)))
    assert len(engine.catalog_entries()) == engine.record_store("rows").count() == 5 + unflushed
    commit(engine, 100)
    engine.flush()
    assert noted_state(str(folder / NOTE)) is not None
    engine.close()
    assert keys(folder) == 6 + unflushed


def test_a_log_that_was_copied_in_part_and_removed_is_refused(tmp_path: Path) -> None:
    folder = crashed(tmp_path)
    log = (folder / LOG).read_bytes()
    os.truncate(folder / LOG, len(log) - 4120)
    sqlite3.connect(folder / DATABASE).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    with pytest.raises(DataDirectoryError, match="it was removed or emptied"):
        open_engine(f"sqlite:{folder}")


def test_a_row_that_was_rolled_back_is_not_noted(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    engine = SqliteEngine(open_data_directory(str(folder)))
    commit(engine, 0)
    with engine.unit_of_work():
        engine.record_store("rows").insert_record(b"row", 1, 0)
    engine.flush()
    noted = noted_state(str(folder / NOTE))
    assert noted is not None and noted.place == (1, 1)
    commit(engine, 1)  # skips the record id
    assert noted_state(str(folder / NOTE)) == noted
    engine.flush()
    noted = noted_state(str(folder / NOTE))
    assert noted is not None and noted.place == (1, 3)
    engine.close()


def test_an_opening_that_fails_is_repeated_without_refusal(tmp_path: Path) -> None:
    folder = crashed(tmp_path)

    def failing(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    directory = open_data_directory(str(folder))
    with pytest.raises(DataDirectoryError, match="Input/output error"):
        SqliteEngine(directory, sync=failing)
    directory.release()
    assert keys(folder) == 5


def test_an_opening_notes_what_it_has_made_durable(tmp_path: Path) -> None:
    folder = crashed(tmp_path)
    (folder / NOTE).unlink()
    engine = SqliteEngine(open_data_directory(str(folder)))
    noted = noted_state(str(folder / NOTE))
    assert noted is not None and noted.frames > 0
    engine.close()
    assert not (folder / NOTE).exists()


def test_a_stop_waits_until_the_note_is_removed_before_the_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SqliteEngine(open_data_directory(str(tmp_path / "data")))
    commit(engine, 0)
    engine.flush()
    seen: list[tuple[bool, bool]] = []
    module = "mongottl.storage.sqlite.durable_log.sync_directory"
    data = tmp_path / "data"
    monkeypatch.setattr(module, lambda path: seen.append(((data / NOTE).exists(), (data / LOG).exists())))
    engine.close()
    assert seen == [(False, True)] and not (data / LOG).exists()
