"""Rows that SQLite gives joined, as one value: what a scan returns is what it returns row by row."""

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from mongottl.storage.checksums import MOST_JOINED_BYTES, record_sum
from mongottl.storage.errors import DamagedRecord
from mongottl.storage.opening import open_engine
from mongottl.storage.sqlite.engine import SqliteEngine
from mongottl.storage.sqlite.records import SqliteRecordStore
from mongottl.storage.stores import MAX_RECORD_ID, NO_BYTE_LIMIT, Record

DATABASE = "mongottl.sqlite3"
COUNT = 700


def document_of(length: int, chance: random.Random) -> bytes:
    """Bytes that begin with their own length, as BSON does; of all values, zeros and no UTF-8 among them."""
    return length.to_bytes(4, "little") + chance.randbytes(length - 5) + b"\0" * min(1, length - 4)


def opened(path: Path) -> SqliteEngine:
    engine = open_engine(f"sqlite:{path}")
    assert isinstance(engine, SqliteEngine)
    engine.set_cache_bytes(0)  # what is kept in memory is not read again
    return engine


def store_of(engine: SqliteEngine) -> SqliteRecordStore:
    store = engine.record_store("records")
    assert isinstance(store, SqliteRecordStore)
    return store


def made(path: Path, lengths: list[int], kept: float = 1.0) -> list[Record]:
    """A store with documents of these lengths, each one of many, of which a part is deleted again; its records."""
    chance = random.Random(len(lengths))
    engine = opened(path)
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        store.insert_records([(document_of(chance.choice(lengths), chance), 1000 + n, n % 3 - 1) for n in range(COUNT)])
        unit.commit()
    with engine.unit_of_work() as unit:
        store.delete_records([record for record in store.scan(0, COUNT)[0] if chance.random() >= kept])
        unit.commit()
    records = store.scan(0, COUNT)[0]
    engine.close()
    return records


def change(path: Path, assignment: str, record_id: int = 300) -> None:
    raw = sqlite3.connect(path / DATABASE, isolation_level=None)
    raw.execute(f"UPDATE r1 NOT INDEXED SET {assignment} WHERE rid = {record_id}")
    raw.close()


def expected(records: list[Record], after: int, limit: int, forward: bool, max_bytes: int) -> list[Record]:
    rest = [r for r in records if r[0] > after] if forward else [r for r in reversed(records) if r[0] < after]
    left = max_bytes
    for i, record in enumerate(rest[:limit]):
        left -= len(record[1])
        if left <= 0:
            return rest[: i + 1]
    return rest[:limit]


LENGTHS = {
    "least": [5],
    "short": [5, 6, 7, 100, 300],
    "some long ones": [300] * 60 + [MOST_JOINED_BYTES, MOST_JOINED_BYTES + 1, 20_000],
    "long": [4000, 20_000],
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kept", [1.0, 0.9, 0.05])
@pytest.mark.parametrize("forward", [True, False])
def test_a_scan_gives_the_records(tmp_path: Path, lengths: list[int], kept: float, forward: bool) -> None:
    records = made(tmp_path / "data", lengths, kept)
    for limit, max_bytes in ((256, 16 << 20), (1000, NO_BYTE_LIMIT), (100, 5000), (16, 200), (33, 10_000), (256, 1)):
        engine = opened(tmp_path / "data")
        store = store_of(engine)
        for _ in range(2):  # what a store is like is known at the second time
            position = 0 if forward else MAX_RECORD_ID
            found: list[Record] = []
            more = True
            while more:
                batch, more = store.scan(position, limit, forward, max_bytes)
                assert batch == expected(records, position, limit, forward, max_bytes)
                found += batch
                if batch:
                    position = batch[-1][0]
            assert found == (records if forward else records[::-1])
        assert store.scan(position, limit, forward, max_bytes) == ([], False)
        engine.close()


def statements(store: SqliteRecordStore, engine: SqliteEngine) -> list[str]:
    """What SQLite executes for two scans of a whole store."""
    executed: list[str] = []
    engine._connection.raw.set_trace_callback(executed.append)
    for _ in range(2):
        position, more = 0, True
        while more:
            records, more = store.scan(position, 256, True, 16 << 20)
            position = records[-1][0]
    engine._connection.raw.set_trace_callback(None)
    return executed


def test_rows_are_read_joined_from_the_first_scan_on(tmp_path: Path) -> None:
    made(tmp_path / "data", [300])
    engine = opened(tmp_path / "data")
    executed = statements(store_of(engine), engine)
    assert len(executed) == 6 and all("group_concat" in sql for sql in executed)
    # The ids have no gaps, and at the second scan it is known that no document is long.
    assert [("LIMIT" in sql, "length(doc)" in sql) for sql in executed] == [
        *[(True, True), (False, True), (True, True)],
        *[(False, False), (False, False), (True, False)],
    ]
    engine.close()


def test_rows_with_numbers_are_read_row_by_row_and_tried_seldom(tmp_path: Path) -> None:
    """As in a folder of format 2."""
    path = tmp_path / "data"
    records = made(path, [300])
    raw = sqlite3.connect(path / DATABASE, isolation_level=None)
    raw.executemany("UPDATE r1 SET sum = ? WHERE rid = ?", [(record_sum(*record), record[0]) for record in records])
    raw.close()
    engine = opened(path)
    store = store_of(engine)
    executed = statements(store, engine)
    assert ["group_concat" in sql for sql in executed] == [True, *[False] * 6]
    with engine.unit_of_work() as unit:
        store.update_records(records, records)
        unit.commit()
    for _ in range(40):
        assert store.scan(0, COUNT) == (records, True)
    assert all("group_concat" in sql for sql in statements(store, engine))
    engine.close()


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    "assignment", ["doc = CAST(doc || x'00' AS BLOB)", "rid = 5000", "sum = NULL, doc = x'00'", "sum = x''"]
)
def test_a_damaged_row_among_joined_ones_is_found_at_every_scan(tmp_path: Path, dense: bool, assignment: str) -> None:
    path = tmp_path / "data"
    records = made(path, [300])
    engine = opened(path)
    store = store_of(engine)
    store.scan(0, 256)
    store.scan(256, 1000)  # to the end: its records are taken to be checked
    assert not store.must_check
    store.counters.is_dense = dense
    change(path, assignment)
    for forward in (True, False):
        store.counters.joins_left_out = 0
        if assignment.startswith("sum = NULL"):
            found = store.scan(256 if forward else 400, 256, forward)[0]
            assert (300, b"\0", *records[299][2:]) in found  # as in a folder without checksums
            continue
        with pytest.raises(DamagedRecord, match=f"record {5000 if 'rid' in assignment else 300} of records"):
            store.scan(256 if forward else 6000, 1000, forward)
    engine.close()


@pytest.mark.parametrize("assignment", ["ts = ts + 1", "ttl = 5", "rid = 701"])
def test_columns_that_are_damaged_are_not_read_by_a_scan_and_no_endless_conflict(
    tmp_path: Path, assignment: str
) -> None:
    path = tmp_path / "data"
    records = made(path, [300])
    change(path, assignment, 700)
    engine = opened(path)
    store = store_of(engine)
    assert store.scan(0, 1000)[0] == records
    damaged = records[-1]
    store.find_records([1, 2, 3, 4])  # what was read last
    writes: list[Callable[[], object]] = [
        lambda: store.update_record(damaged, damaged),
        lambda: store.update_records([records[0], damaged], [records[0], damaged]),
        lambda: store.delete_record(damaged),
        lambda: store.delete_records([records[0], damaged]),
    ]
    for write in writes:
        with engine.unit_of_work(), pytest.raises(DamagedRecord):
            write()
    assert store.find_record(1) == records[0]
    with pytest.raises(DamagedRecord):
        store.find_record(701 if "rid" in assignment else 700)
    engine.close()


def test_scans_see_writes_of_the_open_unit_until_it_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "data"
    records = made(path, [300])
    chance = random.Random(1)
    engine = opened(path)
    store = store_of(engine)
    with engine.unit_of_work() as unit:
        changed = [(rid, document_of(200, chance), ts + 1, 0) for rid, _, ts, _ in records[:100]]
        store.update_records(records[:100], changed)
        store.delete_records(records[100:200])
        added = store.insert_records([(document_of(50, chance), 1, 0)] * 10)
        found = store.scan(0, 1000)[0]
        assert found[:-10] == changed + records[200:]
        assert [record[0] for record in found[-10:]] == added
        del unit
    assert store.scan(0, 1000)[0] == records
    engine.close()
