"""Data directories that cannot be used are refused with a clear message and left as they were."""

import hashlib
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mongottl.storage.errors import DataDirectoryError, DiskFull, EngineUnavailable
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.sqlite.directory import open_data_directory
from mongottl.storage.sqlite.engine import SqliteEngine
from mongottl.storage.sqlite.stored_state import StoredState
from mongottl.storage.stores import MAX_RECORD_ID, ExpiryIndex, KeyRange, RecordStore
from tests.waiting import PATIENCE_S

DATABASE = "mongottl.sqlite3"


def open_directory(path: Path) -> StorageEngine:
    return open_engine(f"sqlite:{path}")


def picture(path: Path) -> dict[str, str]:
    """Every file's digest."""
    return {
        str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in path.rglob("*") if p.is_file()
    }


def refused(path: Path, message: str) -> None:
    before = picture(path)
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match=message):
            open_directory(path)
    after = picture(path)
    after.pop(DATABASE + "-shm", None)  # SQLite's index of the log holds nothing of its own
    before.pop(DATABASE + "-shm", None)
    assert after == before


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    engine = open_directory(path)
    with engine.unit_of_work() as unit:
        engine.create_record_store("records").insert_records([(b"x" * 500, 1, 0)] * 200)
        unit.commit()
    engine.close()
    return path


def crash(path: Path, target: Path) -> Path:
    """A copy as a killed server would leave it, with commits in the log only."""
    engine = open_directory(path)
    with engine.unit_of_work() as unit:
        engine.record_store("records").insert_records([(b"y" * 500, 1, 0)] * 50)
        unit.commit()
    target.mkdir()
    for name in (DATABASE, DATABASE + "-wal", "mongottl.lock"):
        (target / name).write_bytes((path / name).read_bytes())
    engine.close()
    assert (target / (DATABASE + "-wal")).stat().st_size > 0
    return target


def test_a_directory_is_created_with_its_parents(tmp_path: Path) -> None:
    open_directory(tmp_path / "a" / "b").close()
    assert (tmp_path / "a" / "b" / DATABASE).exists()


def test_a_closed_directory_holds_one_database_and_the_lock(filled: Path) -> None:
    assert sorted(os.listdir(filled)) == ["mongottl.lock", DATABASE]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    open_directory(tmp_path).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_interrupted_creation_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / (DATABASE + ".new")).write_bytes(b"half of a database")
    engine = open_directory(tmp_path)
    assert engine.idents() == []
    engine.close()
    assert not (tmp_path / (DATABASE + ".new")).exists()


def test_a_directory_in_use_is_refused(filled: Path) -> None:
    engine = open_directory(filled)
    with pytest.raises(DataDirectoryError, match=f"in use by another server \\(process {os.getpid()}\\)"):
        open_directory(filled)
    with engine.unit_of_work() as unit:
        engine.record_store("records").insert_record(b"still works", 1, 0)
        unit.commit()
    engine.close()
    again = open_directory(filled)
    assert again.record_store("records").count() == 201
    again.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not remove a file that is open")
def test_a_directory_in_use_is_refused_when_its_lock_file_was_removed(filled: Path) -> None:
    engine = open_directory(filled)
    (filled / "mongottl.lock").unlink()
    with pytest.raises(DataDirectoryError, match="in use by another server"):
        open_directory(filled)
    with pytest.raises(DataDirectoryError, match="in use by another server"):
        StoredState(str(filled))
    assert not (filled / "mongottl.lock").exists()
    engine.close()
    open_directory(filled).close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_files_and_folders_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        engine = open_directory(tmp_path / "data")
        with engine.unit_of_work() as unit:
            engine.put_catalog_entry("key", b"value")
            unit.commit()
        engine.flush()
        engine.copy_to(str(tmp_path / "data" / "copy"), lambda: None)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").iterdir()}
        engine.close()
    finally:
        os.umask(before)
    assert {DATABASE, DATABASE + "-wal", DATABASE + "-shm", "mongottl.lock", "copy"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def remove_folder(path: Path) -> None:
    shutil.rmtree(path)


def replace_folder(path: Path) -> None:
    shutil.copytree(path, path.with_name("copy"))
    shutil.rmtree(path)
    path.with_name("copy").rename(path)


def remove_log(path: Path) -> None:
    (path / (DATABASE + "-wal")).unlink()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not remove a file that is open")
@pytest.mark.parametrize("act", [remove_folder, replace_folder, remove_log])
def test_nothing_is_durable_in_files_that_were_removed(filled: Path, act: Callable[[Path], None]) -> None:
    engine = open_directory(filled)
    with engine.unit_of_work() as unit:
        engine.put_catalog_entry("key", b"value")
        unit.commit()
    act(filled)
    with pytest.raises(EngineUnavailable, match=r"cannot be made durable: .* was (removed|replaced)"):
        engine.flush()
    assert engine.failed
    assert engine.durable_number < engine.committed_number
    with pytest.raises(EngineUnavailable, match="an earlier flush failed"), engine.unit_of_work():
        pass
    assert len(engine.record_store("records").scan(0, 1000)[0]) == 200  # reads go on
    engine.close()


def test_a_file_that_cannot_be_opened_is_not_said_to_be_damaged(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse_log(path: str, *arguments: int) -> int:
        if path.endswith("-wal"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse_log)
        with pytest.raises(DataDirectoryError, match="-wal cannot be used: Permission denied"):
            open_directory(filled)
    (filled / (DATABASE + "-wal")).mkdir()
    with pytest.raises(DataDirectoryError, match="sqlite3 cannot be opened: unable to open database file"):
        open_directory(filled)
    (filled / (DATABASE + "-wal")).rmdir()
    open_directory(filled).close()


def test_a_killed_process_leaves_a_directory_that_opens(filled: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from mongottl.storage.opening import open_engine\n"
        "engine = open_engine('sqlite:' + sys.argv[1])\n"
        "with engine.unit_of_work() as unit:\n"
        "    engine.record_store('records').insert_record(b'last', 1, 0)\n"
        "    unit.commit()\n"
        "with engine.unit_of_work() as unit:\n"
        "    engine.record_store('records').insert_record(b'never', 1, 0)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    result = subprocess.run([sys.executable, "-c", program, str(filled)], env=environment, check=False)
    assert result.returncode == -signal.SIGKILL
    engine = open_directory(filled)
    store = engine.record_store("records")
    assert (store.count(), store.size_bytes()) == (201, 200 * 500 + 4)
    assert store.scan(200, 5)[0] == [(201, b"last", 1, 0)]
    engine.close()


def test_a_newer_format_is_refused(filled: Path) -> None:
    raw = sqlite3.connect(filled / DATABASE)
    raw.execute("PRAGMA user_version = 4")
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    refused(filled, "has format 4, written by a newer mongottl; this one reads formats 1 to 3")


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / DATABASE)
    raw.execute("CREATE TABLE theirs (x)")
    raw.commit()
    raw.close()
    refused(tmp_path, "is a database, but not mongottl's")
    assert os.listdir(tmp_path) == [DATABASE]


@pytest.mark.parametrize("content", [b"", b"short", b"garbage " * 4096])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / DATABASE).write_bytes(content)
    refused(tmp_path, "damaged or not a database")


def test_a_truncated_database_is_refused(filled: Path) -> None:
    content = (filled / DATABASE).read_bytes()
    (filled / DATABASE).write_bytes(content[: len(content) - 4096])
    refused(filled, "is damaged: .* bytes are left of .* pages of 4096")


def test_a_database_without_its_tables_is_refused(filled: Path) -> None:
    content = bytearray((filled / DATABASE).read_bytes())
    content[100:4096] = bytes(3996)
    (filled / DATABASE).write_bytes(content)
    refused(filled, "damaged")


def test_a_store_without_its_table_is_refused(filled: Path) -> None:
    raw = sqlite3.connect(filled / DATABASE)
    raw.execute("DROP TABLE r1")
    raw.close()
    refused(filled, "damaged: .*the table of records is missing")


def test_damage_beside_a_log_leaves_the_log_where_it_is(filled: Path, tmp_path: Path) -> None:
    crashed = crash(filled, tmp_path / "crashed")
    content = bytearray((crashed / DATABASE).read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)  # all but the schema's page
    (crashed / DATABASE).write_bytes(content)
    wal = bytearray((crashed / (DATABASE + "-wal")).read_bytes())
    # Only the log's first frame stays whole, so that the damage is not covered by it.
    (crashed / (DATABASE + "-wal")).write_bytes(wal[: 32 + 24 + 4096])
    refused(crashed, "cannot be opened|damaged")


def test_a_log_without_its_database_is_refused(filled: Path, tmp_path: Path) -> None:
    crashed = crash(filled, tmp_path / "crashed")
    (crashed / DATABASE).unlink()
    refused(crashed, "damaged: mongottl.sqlite3-wal is there without mongottl.sqlite3")


def test_a_mongods_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "WiredTiger").write_text("WiredTiger")
    refused(tmp_path, "holds a mongod's files")
    assert os.listdir(tmp_path) == ["WiredTiger"]


def test_a_file_in_the_directorys_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(DataDirectoryError, match="is not a directory"):
        open_directory(tmp_path / "data")
    with pytest.raises(DataDirectoryError, match="cannot be created"):
        open_directory(tmp_path / "data" / "below")


def sqlite_engine(path: Path) -> tuple[SqliteEngine, sqlite3.Connection]:
    engine = open_directory(path)
    assert isinstance(engine, SqliteEngine)
    return engine, engine._connection.raw


def test_a_full_disk_makes_the_engine_unavailable_and_changes_nothing(filled: Path) -> None:
    engine, raw = sqlite_engine(filled)
    pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.execute(f"PRAGMA max_page_count = {pages + 5}")
    store = engine.record_store("records")
    with engine.unit_of_work() as unit:
        store.insert_record(b"fits", 1, 0)
        with pytest.raises(DiskFull, match="database or disk is full"):
            store.insert_records([(b"x" * 4000, 1, 0)] * 100)
        # SQLite may have rolled back by itself: later writes of the unit must not be committed on their own.
        with pytest.raises(EngineUnavailable, match="has failed"):
            store.insert_record(b"x", 1, 0)
        with pytest.raises(EngineUnavailable, match="has failed"):
            unit.commit()
    assert (store.count(), store.size_bytes()) == (200, 100_000)
    assert len(store.scan(0, 1000)[0]) == 200
    raw.execute("PRAGMA max_page_count = 100000")
    with engine.unit_of_work() as unit:
        store.insert_records([(b"x" * 4000, 1, 0)] * 100)
        unit.commit()
    assert store.count() == 300
    engine.close()


def test_a_full_disk_does_not_keep_the_engine_from_closing(filled: Path) -> None:
    engine, raw = sqlite_engine(filled)
    with engine.unit_of_work() as unit:
        log = engine.create_record_store("log", is_log=True)
        unit.commit()
    with engine.unit_of_work() as unit:
        engine.record_store("records").insert_record(b"only the log has its counters", 1, 0)
        log.insert_record(b"entry", 1, 0)
        unit.commit()
    assert engine._connection.has_unsettled
    raw.execute("PRAGMA query_only = 1")  # nothing more can be written
    engine.close()
    again = open_directory(filled)
    assert again.record_store("records").count() == 201
    assert len(again.record_store("records").scan(0, 1000)[0]) == 201
    again.close()


def test_damage_found_while_running_makes_the_engine_unavailable(filled: Path) -> None:
    content = bytearray((filled / DATABASE).read_bytes())
    content[40960:] = b"\x5a" * (len(content) - 40960)
    (filled / DATABASE).write_bytes(content)
    engine = open_directory(filled)
    with pytest.raises(EngineUnavailable, match="malformed"):
        engine.record_store("records").scan(0, 1000)[0]
    engine.close()


def test_a_closed_engine_is_unavailable(filled: Path) -> None:
    engine = open_directory(filled)
    store = engine.record_store("records")
    engine.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        store.scan(0, 1)[0]
    with pytest.raises(EngineUnavailable, match="closed"), engine.unit_of_work():
        pass
    engine.flush()
    engine.maintain()


def test_a_failed_flush_fails_for_good(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = sqlite_engine(filled)
    with engine.unit_of_work() as unit:
        engine.put_catalog_entry("key", b"value")
        unit.commit()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(EngineUnavailable, match="cannot be made durable"):
            engine.flush()
    assert engine.failed
    assert engine.durable_number < engine.committed_number
    with pytest.raises(EngineUnavailable, match="an earlier flush failed"):
        engine.flush()
    with pytest.raises(EngineUnavailable, match="an earlier flush failed"), engine.unit_of_work():
        pass
    assert dict(engine.catalog_entries())["key"] == b"value"  # reads go on
    engine.close()


def test_a_unit_of_work_that_meets_a_failed_flush_is_rolled_back(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = sqlite_engine(filled)
    before = engine.catalog_entries()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(EngineUnavailable, match="an earlier flush failed"), engine.unit_of_work() as unit:
            engine.put_catalog_entry("key", b"value")
            with pytest.raises(EngineUnavailable, match="cannot be made durable"):
                engine.flush()
            unit.commit()
    assert engine.catalog_entries() == before
    engine.maintain()
    engine.close()


def engine_with_long_log(directory: Path) -> tuple[SqliteEngine, RecordStore]:
    engine = SqliteEngine(open_data_directory(str(directory)), checkpoint_bytes=100_000, long_log_bytes=400_000)
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        unit.commit()
    while not engine.writers_should_wait:
        write_some(engine, store)
    return engine, store


def write_some(engine: SqliteEngine, store: RecordStore) -> None:
    with engine.unit_of_work() as unit:
        store.insert_records([(b"x" * 1000, 1, 0)] * 20)
        unit.commit()


def test_a_long_log_is_ended_while_no_unit_of_work_begins(tmp_path: Path) -> None:
    engine, store = engine_with_long_log(tmp_path)
    longest = engine.statistics()["log_bytes"]
    engine.maintain()
    assert engine.statistics()["long_logs_ended"] == 1
    # The commit after the end of a log begins it anew.
    write_some(engine, store)
    assert engine.statistics()["log_bytes"] < longest / 2
    count = store.count()
    engine.close()
    again = open_directory(tmp_path)
    assert again.record_store("records").count() == count
    again.close()


def test_maintenance_restarts_a_log_that_is_copied_so_that_no_commit_waits_for_the_disk(tmp_path: Path) -> None:
    engine, store = engine_with_long_log(tmp_path)
    engine.maintain()
    frame_bytes = 4096 + 24
    assert engine.statistics()["log_bytes"] == frame_bytes
    engine.maintain()  # there is nothing to do
    assert engine.statistics()["log_bytes"] == frame_bytes
    records, _ = store.scan(0, 10)
    assert [record[1] for record in records] == [b"x" * 1000] * 10
    with engine.unit_of_work() as unit:
        store.delete_records(records)
        unit.commit()
    assert engine.statistics()["log_bytes"] > frame_bytes
    left = store.scan(0, 10_000)[0]
    engine.close()
    again = open_directory(tmp_path)
    assert again.record_store("records").scan(0, 10_000)[0] == left
    again.close()


def test_maintenance_does_not_restart_the_log_under_an_open_unit_of_work(tmp_path: Path) -> None:
    engine, store = engine_with_long_log(tmp_path)
    length = engine.statistics()["log_bytes"]
    with engine.unit_of_work() as unit:
        store.insert_records([(b"y", 1, 0)])
        thread = threading.Thread(target=engine.maintain)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert engine.statistics()["log_bytes"] == length
        unit.commit()
    assert store.scan(MAX_RECORD_ID, 1, False)[0][0][1] == b"y"
    engine.close()


def test_units_of_work_wait_for_no_maintenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, store = engine_with_long_log(tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def slow_sync(descriptor: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    # A reader that keeps the log from being copied to its end, so that it cannot be ended yet.
    reader = sqlite3.connect(tmp_path / "mongottl.sqlite3", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM stores").fetchone()
    write_some(engine, store)
    count = store.count()
    thread = threading.Thread(target=engine.maintain)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", slow_sync)
        thread.start()
        assert begun.wait(PATIENCE_S)
        write_some(engine, store)
        assert thread.is_alive()
        go_on.set()
        thread.join()
    assert store.count() == count + 20
    assert engine.statistics()["long_logs_ended"] == 0
    reader.close()
    engine.maintain()
    assert engine.statistics()["long_logs_ended"] == 1
    engine.close()


def test_every_index_query_uses_its_index(filled: Path) -> None:
    """A planner that walks the whole table would give the same answers, slowly."""
    engine, raw = sqlite_engine(filled)
    with engine.unit_of_work() as unit:
        unique = engine.create_sorted_data("unique", True)
        plain = engine.create_sorted_data("plain", False)
        unit.commit()
    store = engine.record_store("records")
    statements: list[str] = []
    raw.set_trace_callback(statements.append)
    (
        store.due(ExpiryIndex.BY_DEFAULT, 5, 5),
        store.due(ExpiryIndex.BY_OWN, 5, 5),
        store.due_seconds(ExpiryIndex.BY_DEFAULT, 0, 5),
        store.due_seconds(ExpiryIndex.BY_OWN, 0, 5),
    )
    (
        store.count_due(ExpiryIndex.BY_DEFAULT, 5),
        store.count_due(ExpiryIndex.BY_OWN, 5),
        store.find_records([1, 2, 3, 4, 5])[0],
        store.scan(3, 5)[0],
    )
    for data in (unique, plain):
        for forward in (True, False):
            (
                data.scan(KeyRange(b"a", b"b", forward), None, 5),
                data.scan_fetch(store, KeyRange(b"a", b"b", forward), None, 5)[0],
            )
        data.fetch_exact(store, b"a"), data.find_exact([b"a"]), data.find_exact([b"a", b"b", b"c", b"d", b"e"])
        data.count_range(KeyRange(b"a", b"b"))
    raw.set_trace_callback(None)
    assert len(statements) >= 20
    for statement in statements:
        plan = [row[3] for row in raw.execute("EXPLAIN QUERY PLAN " + statement)]
        allowed = ("SCAN v", "SCAN seconds", "SCAN 64 CONSTANT ROWS")
        walks = [step for step in plan if step.startswith("SCAN") and not step.startswith(allowed)]
        assert not walks and not any("TEMP B-TREE" in step for step in plan), (statement, plan)
    engine.close()


def test_opening_waits_for_the_disk_before_earlier_commits_count_as_durable(filled: Path, tmp_path: Path) -> None:
    """Commits are numbered anew after opening, so nobody waits for those of a process that was killed."""
    crashed = crash(filled, tmp_path / "crashed")
    waited_for: list[os.stat_result] = []
    engine = SqliteEngine(open_data_directory(str(crashed)), sync=lambda file: waited_for.append(os.fstat(file)))
    assert [os.path.samestat(found, os.stat(crashed / (DATABASE + "-wal"))) for found in waited_for] == [True]
    assert engine.record_store("records").count() == 250
    assert engine.durable_number == engine.committed_number == 0
    engine.close()
