"""Space that a stored database gives back: in steps, by being rewritten, beside copies, and after crashes."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from mongottl.storage.contract import ContractEngine
from mongottl.storage.errors import DiskFull, EngineUnavailable
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.sqlite import rewriting
from mongottl.storage.sqlite.engine import SqliteEngine
from mongottl.storage.stores import Record

PAGE = 4096
LARGE = bytes(range(256)) * 24  # a page, and one that it refers to


def fill(engine: StorageEngine, count: int = 60) -> None:
    """A record store in which large and small documents alternate, and sorted data with long keys."""
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        entries = engine.create_sorted_data("keys", unique=False)
        for number in range(count):
            rid = store.insert_record(LARGE if number % 2 else b"small %d" % number, number, 0)
            entries.insert_one(b"key %04d" % number * 300, rid)
        unit.commit()


def delete_most(engine: StorageEngine) -> None:
    """Deletes all but each seventh record, so that what is kept is spread over the file."""
    store, entries = engine.record_store("records"), engine.sorted_data("keys", unique=False)
    with engine.unit_of_work() as unit:
        for record in store.scan(0, 1000)[0]:
            if record[0] % 7:
                store.delete_records([record])
                entries.remove_one(b"key %04d" % (record[0] - 1) * 300, record[0])
        unit.commit()


def contents(engine: StorageEngine) -> tuple[list[Record], list[tuple[str, bytes]], list[str]]:
    records = engine.record_store("records").scan(0, 1000)[0]
    return records, engine.catalog_entries(), sorted(engine.idents())


def file_bytes(directory: Path) -> int:
    return (directory / "mongottl.sqlite3").stat().st_size


def check_database(directory: Path) -> None:
    raw = sqlite3.connect(directory / "mongottl.sqlite3")
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    raw.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def opened(data: Path) -> StorageEngine:
    return ContractEngine(open_engine(f"sqlite:{data}"))


def opened_old(data: Path) -> StorageEngine:
    """A new folder, as versions made it that could not give back space."""
    opened(data).close()
    raw = sqlite3.connect(data / "mongottl.sqlite3", isolation_level=None)
    raw.execute("PRAGMA auto_vacuum = NONE")
    raw.execute("VACUUM")
    raw.close()
    engine = opened(data)
    assert engine.must_rewrite
    return engine


@pytest.fixture
def asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rewrite` asks whether to go on for a small database, too."""
    monkeypatch.setattr(rewriting, "_INSTRUCTIONS", 10)
    monkeypatch.setattr(rewriting, "_PAGES", 5)


def test_space_of_deleted_records_is_reclaimed_in_steps(data: Path) -> None:
    engine = opened(data)
    fill(engine)
    delete_most(engine)
    before, unused = contents(engine), engine.unused_bytes
    assert unused > 30 * PAGE
    steps = 0
    while given := engine.reclaim_some(4):
        assert given <= 4 * PAGE
        assert contents(engine) == before
        steps += 1
    assert steps > 8
    assert engine.unused_bytes == 0
    due = engine.maintenance_due
    engine.maintain()
    assert (due, engine.maintenance_due) == (True, False)
    assert file_bytes(data) == engine.stored_bytes
    assert engine.statistics()["reclaimed_bytes"] == unused
    engine.close()
    check_database(data)
    engine = opened(data)
    assert contents(engine) == before
    engine.close()


def test_some_unused_space_can_be_kept(data: Path) -> None:
    engine = opened(data)
    fill(engine)
    delete_most(engine)
    engine.maintain()
    while engine.reclaim_some(7, keep_bytes=10 * PAGE + 5):
        assert not engine.maintenance_due or engine.unused_bytes < 12 * PAGE
    # A page of the tables of references is given back beside the page that it was for.
    assert 9 * PAGE <= engine.unused_bytes <= 11 * PAGE
    assert engine.maintenance_due
    engine.close()


def test_an_engine_in_memory_has_nothing_to_give_back() -> None:
    for name in ("memory", "sqlite"):
        engine = open_engine(f"{name}:")
        fill(engine)
        delete_most(engine)
        assert (engine.stored_bytes, engine.unused_bytes, engine.must_rewrite) == (0, 0, False)
        assert engine.reclaim_some(10) == 0
        engine.close()


def test_each_moment_of_giving_back_survives_the_end_of_the_process(data: Path, tmp_path: Path) -> None:
    engine = opened(data)
    fill(engine, 24)
    delete_most(engine)
    before = contents(engine)
    step = 0
    while engine.reclaim_some(6):
        if step == 2:
            engine.maintain()
        crashed = tmp_path / f"crashed {step}"
        shutil.copytree(data, crashed)
        after = opened(crashed)
        assert contents(after) == before
        after.close()
        check_database(crashed)
        step += 1
    assert step > 4
    engine.close()


def test_nothing_is_given_back_while_a_copy_is_made(data: Path, tmp_path: Path) -> None:
    engine = opened(data)
    fill(engine)
    delete_most(engine)
    before = contents(engine)
    assert engine.reclaim_some(2) == 2 * PAGE
    given: list[int] = []
    engine.copy_to(str(tmp_path / "copy"), lambda: given.append(engine.reclaim_some(2)))
    assert given and set(given) == {0}
    assert engine.reclaim_some(2) == 2 * PAGE
    engine.close()
    (tmp_path / "restored").mkdir()
    shutil.copy(tmp_path / "copy", tmp_path / "restored" / "mongottl.sqlite3")
    restored = opened(tmp_path / "restored")
    assert contents(restored) == before
    assert restored.reclaim_some(2) == 2 * PAGE
    restored.close()


def test_a_folder_of_earlier_versions_is_rewritten_once(data: Path) -> None:
    engine = opened_old(data)
    fill(engine)
    delete_most(engine)
    before, length = contents(engine), engine.stored_bytes
    assert engine.reclaim_some(10) == 0
    given = engine.rewrite(lambda: None)
    assert given > 20 * PAGE
    assert contents(engine) == before
    assert engine.maintenance_due
    engine.maintain()
    assert file_bytes(data) == length - given == engine.stored_bytes
    assert os.listdir(data).count("mongottl.sqlite3") == 1
    assert not [name for name in os.listdir(data) if not name.startswith("mongottl")]
    fill_again = engine.record_store("records")
    with engine.unit_of_work() as unit:
        fill_again.insert_records([(LARGE, 1, 0)] * 20)
        unit.commit()
    with engine.unit_of_work() as unit:
        fill_again.delete_records(fill_again.scan(0, 1000)[0][-20:])
        unit.commit()
    assert engine.reclaim_some(10) == 10 * PAGE
    engine.close()
    check_database(data)
    engine = opened(data)
    assert not engine.must_rewrite
    assert contents(engine) == before
    engine.close()


@pytest.mark.usefixtures("asks_often")
def test_units_of_work_fail_while_the_database_is_rewritten_and_reads_do_not(data: Path) -> None:
    engine = opened_old(data)
    fill(engine, 100)
    before = contents(engine)
    refused: list[str] = []

    def proceed() -> None:
        if not refused:
            assert contents(engine) == before
            with pytest.raises(EngineUnavailable) as error, engine.unit_of_work():
                engine.put_catalog_entry("x", b"y")
            refused.append(str(error.value))

    engine.rewrite(proceed)
    assert refused == ["the database is being rewritten by compact"]
    with engine.unit_of_work() as unit:
        engine.put_catalog_entry("x", b"y")
        unit.commit()
    engine.close()
    check_database(data)


@pytest.mark.usefixtures("asks_often")
def test_a_rewriting_that_is_ended_changes_nothing(data: Path) -> None:
    engine = opened_old(data)
    fill(engine, 50)
    delete_most(engine)
    before, length = contents(engine), engine.stored_bytes

    def end() -> None:
        raise EngineUnavailable("ended")

    with pytest.raises(EngineUnavailable, match="ended"):
        engine.rewrite(end)
    assert engine.must_rewrite
    assert (contents(engine), engine.stored_bytes) == (before, length)
    with engine.unit_of_work() as unit:
        engine.put_catalog_entry("x", b"y")
        unit.commit()
    engine.close()
    check_database(data)


@pytest.mark.usefixtures("asks_often")
@pytest.mark.parametrize("pages", [1, 40])
def test_a_rewriting_that_is_ended_while_it_writes_its_copy_back_changes_nothing(data: Path, pages: int) -> None:
    engine = opened_old(data)
    fill(engine, 1000)
    records, entries, idents = contents(engine)
    length = engine.stored_bytes
    asked = {False: 0, True: 0}

    def end() -> None:
        is_made = rewriting_copy(data) is None  # then the copy has no name any more, or is not there yet
        asked[is_made] += 1
        if is_made and asked[True] == pages:
            raise EngineUnavailable("ended")

    with pytest.raises(EngineUnavailable, match="ended"):
        engine.rewrite(end)
    assert asked[False] > 10
    assert engine.must_rewrite
    assert (contents(engine), engine.stored_bytes) == ((records, entries, idents), length)
    with engine.unit_of_work() as unit:
        engine.put_catalog_entry("x", b"y")
        unit.commit()
    crashed = data.with_name("crashed")
    shutil.copytree(data, crashed)
    for folder in (crashed, data):
        if folder == data:
            engine.close()
        after = opened(folder)
        assert after.must_rewrite
        assert contents(after) == (records, [("x", b"y")], idents)
        after.close()
        check_database(folder)


@pytest.mark.usefixtures("asks_often")
def test_a_kill_while_the_copy_is_written_back_changes_nothing(data: Path, tmp_path: Path) -> None:
    engine = opened_old(data)
    fill(engine, 200)
    before = contents(engine)
    copied = 0

    def copy() -> None:
        nonlocal copied
        copied += 1
        if copied % 20 == 0:
            shutil.copytree(data, tmp_path / f"crashed {copied}")

    engine.rewrite(copy)
    engine.close()
    folders = sorted(tmp_path.glob("crashed *"))
    assert len(folders) > 5
    assert any(rewriting_copy(folder) for folder in folders)
    for folder in folders:
        after = opened(folder)
        assert after.must_rewrite
        assert contents(after) == before
        assert rewriting_copy(folder) is None
        after.close()
        check_database(folder)


def rewriting_copy(folder: Path) -> str | None:
    """The name of the copy that a rewriting makes, while it has one."""
    return next((name for name in os.listdir(folder) if name.startswith("mongottl-copy-")), None)


def test_a_disk_without_room_for_two_copies_refuses_to_rewrite(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened_old(data)
    fill(engine)
    before = contents(engine)
    size = engine.stored_bytes
    found = os.statvfs(data)
    free_blocks = (2 * size + (32 << 20)) // found.f_frsize
    values = list(found)
    values[4] = free_blocks
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))
    with pytest.raises(DiskFull, match=r"to rewrite the database takes .* MiB of the disk for a time, and"):
        engine.rewrite(lambda: None)
    assert engine.must_rewrite
    assert not engine.disk_full
    assert contents(engine) == before
    engine.close()


def test_a_full_disk_gives_nothing_back_until_there_is_room(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = open_engine(f"sqlite:{data}")
    assert isinstance(inner, SqliteEngine)
    engine = ContractEngine(inner)
    fill(engine)
    delete_most(engine)
    inner._connection.disk_full = True
    assert engine.reclaim_some(5) == 0
    inner._connection.disk_full = False
    assert engine.reclaim_some(5) == 5 * PAGE
    engine.close()
