"""Records whose bytes the disk has changed: each way of reading finds them; when records are checked; the counters."""

import os
import sqlite3
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mongottl.storage.errors import DamagedRecord, DataDirectoryError, EngineUnavailable
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.sqlite.database import connect
from mongottl.storage.sqlite.directory import FORMAT_VERSION, OLDEST_FORMAT
from mongottl.storage.sqlite.durable_log import noted_state
from mongottl.storage.sqlite.engine import SqliteEngine
from mongottl.storage.sqlite.records import SqliteRecordStore
from mongottl.storage.stores import MAX_RECORD_ID, ExpiryIndex, KeyRange, RecordStore, SortedDataInterface

DATABASE = "mongottl.sqlite3"
COUNT = 200


def opened(path: Path) -> SqliteEngine:
    engine = open_engine(f"sqlite:{path}")
    assert isinstance(engine, SqliteEngine)
    engine.set_cache_bytes(0)  # what is kept in memory is not read again
    return engine


def document_at(path: Path, n: int) -> bytes:
    """The document of record n + 1: 13 bytes, or with their length, as in BSON, before them."""
    text = b"document %04d" % n
    return text if path.name == "numbers" else b"\x11\0\0\0" + text


@pytest.fixture(params=["numbers", "tails"])
def filled(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder whose records have checksums of this kind (`storage.checksums`)."""
    path = tmp_path / str(request.param)
    engine = opened(path)
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        ids = store.insert_records([(document_at(path, n), 1000 + n, n % 3) for n in range(COUNT)])
        for name, unique in (("unique", True), ("plain", False)):
            engine.create_sorted_data(name, unique).insert([(b"%04d" % record_id, record_id) for record_id in ids])
        unit.commit()
    engine.close()
    return path


def change(path: Path, assignment: str, record_id: int = 100) -> None:
    raw = sqlite3.connect(path / DATABASE, isolation_level=None)
    raw.execute(f"UPDATE r1 NOT INDEXED SET {assignment} WHERE rid = {record_id}")
    raw.close()


def checks(store: RecordStore) -> bool:
    """Whether a reading of all records looks at their checksums."""
    assert isinstance(store, SqliteRecordStore)
    return store.must_check


Read = Callable[[RecordStore, SortedDataInterface, SortedDataInterface], object]
READS: dict[str, Read] = {
    "find_record": lambda store, unique, plain: store.find_record(100),
    "few ids": lambda store, unique, plain: store.find_records([99, 100]),
    "many ids": lambda store, unique, plain: store.find_records(list(range(90, 110))),
    "many ids, few bytes": lambda store, unique, plain: store.find_records(list(range(90, 110)), 300),
    "forward": lambda store, unique, plain: store.scan(0, 1000),
    "forward in part": lambda store, unique, plain: store.scan(95, 10),
    "forward, few bytes": lambda store, unique, plain: store.scan(95, 10, True, 200),
    "backward": lambda store, unique, plain: store.scan(MAX_RECORD_ID, 1000, False),
    "unique key": lambda store, unique, plain: unique.fetch_exact(store, b"0100"),
    "keys": lambda store, unique, plain: plain.scan_fetch(store, KeyRange(b"0", b"9"), None, 1000),
    "keys backward": lambda store, unique, plain: unique.scan_fetch(store, KeyRange(b"0", b"9", False), None, 1000),
    "keys, few bytes": lambda store, unique, plain: plain.scan_fetch(store, KeyRange(b"0095", b"9"), None, 20, 200),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_each_way_of_reading_finds_a_changed_record(filled: Path, read: Read) -> None:
    engine = opened(filled)
    store = engine.record_store("records")
    unique, plain = engine.sorted_data("unique", True), engine.sorted_data("plain", False)
    read(store, unique, plain)
    engine.close()
    change(filled, "doc = CAST(replace(doc, 'document', 'Document') AS BLOB)")
    engine = opened(filled)
    store = engine.record_store("records")
    unique, plain = engine.sorted_data("unique", True), engine.sorted_data("plain", False)
    with pytest.raises(DamagedRecord, match="record 100 of records is damaged: its checksum is wrong"):
        read(store, unique, plain)
    assert store.find_record(99) == (99, document_at(filled, 98), 1098, 2)
    engine.close()


@pytest.mark.parametrize("max_bytes", [10_000, 1400])
def test_due_skips_damaged_records(filled: Path, max_bytes: int) -> None:
    damaged = [rid for rid in range(1, COUNT + 1) if (rid % 3 == 1 and rid > 7) or rid == 101]
    for record_id in damaged:
        change(filled, "sum = sum + 1", record_id)
    engine = opened(filled)
    store = engine.record_store("records")
    assert [record[0] for record in store.due(ExpiryIndex.BY_DEFAULT, 10_000, 1000, max_bytes)] == [1, 4, 7]
    assert 98 in [record[0] for record in store.due(ExpiryIndex.BY_OWN, 1099, 1000, max_bytes)]
    with engine.unit_of_work() as unit:
        store.delete_records(store.due(ExpiryIndex.BY_DEFAULT, 10_000, 1000, max_bytes))
        unit.commit()
    for limit in (1, 1000):  # not empty, which would say that none are due
        with pytest.raises(DamagedRecord, match="of records is damaged: its checksum is wrong"):
            store.due(ExpiryIndex.BY_DEFAULT, 10_000, limit, max_bytes)
    engine.close()


@pytest.mark.parametrize(
    "assignment",
    ["ts = ts + 1", "ttl = 5", "doc = x''", "doc = 'text'", "sum = sum + 1", "sum = 'text'", "ts = 1.5", "ttl = -1"],
)
def test_each_column_is_checked(filled: Path, assignment: str) -> None:
    change(filled, assignment)
    engine = opened(filled)
    store = engine.record_store("records")
    reads: list[Callable[[], object]] = [
        lambda: store.find_record(100),
        lambda: store.find_records(list(range(90, 110))),
    ]
    if filled.name == "tails" and assignment.startswith("t"):
        # Rows that are read joined give what their tails say, which was not changed.
        assert store.scan(99, 100)[0][0] == (100, document_at(filled, 99), 1099, 0)
    else:
        reads.append(lambda: store.scan(0, 1000))
    for read in reads:
        with pytest.raises(DamagedRecord, match="record 100 of records"):
            read()
    engine.close()


def test_checksums_match_every_kind_of_write(filled: Path) -> None:
    engine = opened(filled)
    store = engine.record_store("records")
    with engine.unit_of_work() as unit:
        old = store.scan(0, 10)[0]
        store.update_records(old, [(rid, b"new" + document, ts + 1, ttl) for rid, document, ts, ttl in old])
        (single,) = store.scan(50, 1)[0]
        store.update_record(single, (single[0], b"long" * 50_000, 1, -1))
        store.insert_record(b"x" * 100_000, 5, 0)
        store.insert_record(b"short", 5, 0)
        store.insert_records([(b"a", 1, 2)])
        store.insert_records([(b"b", 1, 2), (b"c", 1, 2)])
        log = engine.create_record_store("log", is_log=True)
        log.insert_record(b"entry", 1, 0)
        log.insert_record(b"e" * 100_000, 1, 0)
        unit.commit()
    expected = store.scan(0, 1000)[0]
    entries = log.scan(0, 10)[0]
    engine.close()
    raw = sqlite3.connect(filled / DATABASE)
    for table in ("r1", "r4"):
        assert raw.execute(f"SELECT count(*) FROM {table} WHERE sum IS NULL").fetchone() == (0,)
    raw.close()
    engine = opened(filled)
    assert engine.record_store("records").scan(0, 1000)[0] == expected
    assert engine.record_store("log").scan(0, 1000)[0] == entries
    engine.close()


def test_a_store_that_was_read_to_its_end_is_not_checked_at_each_reading(filled: Path) -> None:
    engine = opened(filled)
    store = engine.record_store("records")
    assert checks(store)
    store.scan(100, 1000)  # not from the beginning
    assert checks(store)
    store.scan(0, 100)
    store.scan(100, 99)
    assert checks(store)
    store.scan(199, 1)
    assert not checks(store)
    every = list(range(1, COUNT + 1))
    for _ in range(1000):
        store.find_records(every)
        if checks(store):
            break
    assert checks(store)  # after many readings they are checked again
    engine.close()


def test_a_new_store_is_not_checked_until_it_was_read_often(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        store.insert_records([(b"x", 1, 0)] * 100)
        unit.commit()
    assert not checks(store)
    engine.close()


def test_rows_without_checksum_are_read_as_they_are(filled: Path) -> None:
    change(filled, "sum = NULL, doc = x'00'")
    engine = opened(filled)
    assert engine.record_store("records").scan(99, 1)[0] == [(100, b"\x00", 1099, 0)]
    engine.close()


@pytest.mark.skipif(sys.platform == "win32", reason="copies files that are open")
def test_damaged_counters_of_a_log_are_counted_anew(filled: Path, tmp_path: Path) -> None:
    engine = opened(filled)
    with engine.unit_of_work() as unit:
        log = engine.create_record_store("log", is_log=True)
        unit.commit()
    store = engine.record_store("records")
    with engine.unit_of_work() as unit:
        store.insert_record(b"one more", 1, 0)
        log.insert_record(b"entry", 1, 0)
        unit.commit()
    # As a killed process leaves it: only the log has the counters.
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in (DATABASE, DATABASE + "-wal"):
        (crashed / name).write_bytes((filled / name).read_bytes())
    engine.close()
    raw = sqlite3.connect(crashed / DATABASE, isolation_level=None)
    (packed,) = raw.execute("SELECT counters FROM r4 WHERE counters IS NOT NULL").fetchone()
    wrong = packed[:8] + struct.pack("<q", 999_999) + packed[16:]
    raw.execute("UPDATE r4 SET counters = ?", (wrong,))
    raw.close()
    engine = opened(crashed)
    store = engine.record_store("records")
    assert (store.count(), store.size_bytes()) == (COUNT + 1, len(document_at(filled, 0)) * COUNT + 8)
    with engine.unit_of_work() as unit:
        assert store.insert_record(b"", 1, 0) == COUNT + 2
        unit.commit()
    assert engine.record_store("log").count() == 1
    engine.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no note is made there")
def test_a_flush_notes_how_much_of_the_log_is_on_disk(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = filled / "mongottl.durable"
    engine = opened(filled)
    assert not note.exists()

    def commit() -> None:
        with engine.unit_of_work() as unit:
            engine.put_catalog_entry("key", b"value")
            unit.commit()

    commit()
    assert not note.exists()
    engine.flush()
    first = noted_state(str(note))
    assert first is not None and 0 < first.frames <= (filled / (DATABASE + "-wal")).stat().st_size // 4120
    commit()
    assert noted_state(str(note)) == first
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        engine.flush()  # the note says less than it could
    assert noted_state(str(note)) == first
    commit()
    engine.flush()
    second = noted_state(str(note))
    assert second is not None and second.frames > first.frames and second.salts == first.salts
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        commit()
        with pytest.raises(EngineUnavailable):
            engine.flush()
    assert noted_state(str(note)) == second
    engine.close()
    assert not note.exists()


@pytest.mark.parametrize("content", [b"", b"short", b"mttldur1" + bytes(32), bytes(41)])
def test_a_note_that_cannot_be_read_says_nothing(filled: Path, content: bytes) -> None:
    (filled / "mongottl.durable").write_bytes(content)
    assert noted_state(str(filled / "mongottl.durable")) is None
    opened(filled).close()


def test_an_engine_in_memory_has_no_checksums() -> None:
    engine: StorageEngine = open_engine("sqlite:")
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        store.insert_records([(b"x", 1, 0), (b"y", 2, 0)])
        unit.commit()
    assert not checks(store)
    assert store.scan(0, 5)[0] == [(1, b"x", 1, 0), (2, b"y", 2, 0)]
    engine.close()


FOLDERS = Path(__file__).parent / "folders"
FORMAT_1 = FOLDERS / "format_1.zip"


def format_in_file(path: Path) -> int:
    """Where an older server looks."""
    return int.from_bytes((path / DATABASE).read_bytes()[60:64], "big")


@pytest.mark.skipif(sys.platform == "win32", reason="copies files that are open")
@pytest.mark.parametrize("number", range(OLDEST_FORMAT, FORMAT_VERSION))
def test_the_raise_of_a_format_is_finished_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The number is in the log alone, as when a process is killed before its checkpoint."""
    path = tmp_path / "old"
    with zipfile.ZipFile(FOLDERS / f"format_{number}.zip") as archive:
        archive.extractall(path)
    assert format_in_file(path) == number
    killed = tmp_path / "killed"
    killed.mkdir()
    module = "mongottl.storage.sqlite.database.connect"

    def copying(statement: str) -> None:
        if "wal_checkpoint" in statement and not (killed / DATABASE).exists():
            for name in (DATABASE, DATABASE + "-wal"):
                (killed / name).write_bytes((path / name).read_bytes())

    def traced(database: str, uri: bool = False) -> sqlite3.Connection:
        raw = connect(database, uri)
        raw.set_trace_callback(copying)
        return raw

    with monkeypatch.context() as patch:
        patch.setattr(module, traced)
        opened(path).close()
    assert format_in_file(path) == FORMAT_VERSION and format_in_file(killed) == number
    engine = opened(killed)
    assert format_in_file(killed) == FORMAT_VERSION
    engine.close()
    raw = sqlite3.connect(killed / DATABASE)
    definitions = raw.execute("SELECT sql FROM sqlite_schema WHERE name GLOB 'r[0-9]*' AND type = 'table'").fetchall()
    raw.close()
    assert definitions and all(sql.count("sum INTEGER") == 1 for (sql,) in definitions)


@pytest.mark.skipif(sys.platform == "win32", reason="reads a database that is open")
def test_a_format_is_not_raised_beside_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stay in the log, where an older server does not see it."""
    with zipfile.ZipFile(FORMAT_1) as archive:
        archive.extractall(tmp_path)
    other = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM stores").fetchone()
    monkeypatch.setattr("mongottl.storage.sqlite.database._BUSY_S", 0.01)
    with pytest.raises(DataDirectoryError, match="in use by another program"):
        opened(tmp_path)
    other.execute("ROLLBACK")
    other.close()
    opened(tmp_path).close()
    assert format_in_file(tmp_path) == FORMAT_VERSION
