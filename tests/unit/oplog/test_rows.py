"""The stored oplog: numbers without gaps, segments that are dropped whole."""

import os
from pathlib import Path

import pytest

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.entries import OPLOG_IDENT
from mongottl.document.build import encode
from mongottl.document.types import Timestamp
from mongottl.oplog.rows import OplogRows
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from tests.changes import id_of, insert_entry

STATM = Path("/proc/self/statm")
STARTED = Timestamp(1, 1)


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest) -> StorageEngine:
    return open_engine(f"{request.param}:")


def opened(engine: StorageEngine, max_bytes: int = 1 << 20, retention_ms: int = 0) -> OplogRows:
    return OplogRows(Catalog(engine), STARTED, max_bytes, retention_ms)


def put(rows: OplogRows, engine: StorageEngine, number: int, size: int = 10, commits: bool = True) -> None:
    document = encode({"_id": number, "text": "x" * size})
    entry = insert_entry(100 + number, [document])
    with engine.unit_of_work() as work:
        rows.put(entry, work)
        if commits:
            work.commit()


def ids(rows: OplogRows) -> list[object]:
    return [id_of(rows.entry(number)) for number in range(rows.first, rows.end)]


def test_entries_are_numbered_without_gaps(engine: StorageEngine) -> None:
    rows = opened(engine)
    put(rows, engine, 0)
    put(rows, engine, 1, commits=False)
    put(rows, engine, 2)
    with engine.unit_of_work() as work:  # leaves an id out
        store = engine.record_store(f"{OPLOG_IDENT}0")
        store.delete_record((store.insert_record(b"\5\0\0\0\0", 0, -1), b"\5\0\0\0\0", 0, -1))
        work.commit()
    put(rows, engine, 3)
    put(rows, engine, 4)
    assert (rows.first, rows.end) == (0, 4)
    assert ids(rows) == [0, 2, 3, 4]
    assert ids(opened(engine)) == [0, 2, 3, 4]
    assert [rows.number_at((100 + second, 1)) for second in range(6)] == [0, 1, 1, 2, 3, 4]


def test_entries_are_read_backward(engine: StorageEngine) -> None:
    rows = opened(engine, 200_000)
    for number in range(400):
        put(rows, engine, number, 100)
    assert len([ident for ident in engine.idents() if ident.startswith(OPLOG_IDENT)]) > 2
    backward = [id_of(rows.entry(number)) for number in range(rows.end - 1, rows.first - 1, -1)]
    assert backward == list(range(399, -1, -1))
    assert [id_of(rows.entry(number)) for number in (7, 6, 300, 299, 0, 399)] == [7, 6, 300, 299, 0, 399]


def test_full_segments_are_dropped_beyond_the_bound(engine: StorageEngine) -> None:
    rows = opened(engine, 80_000)
    for number in range(100):
        put(rows, engine, number, 2_000)
    kept = list(range(rows.first, 100))
    assert 20 < len(kept) <= 45
    assert ids(rows) == kept
    assert rows.floor == (100 + rows.first - 1, 1)
    again = opened(engine, 80_000)
    assert (again.first, again.end, again.floor, again.uuid) == (rows.first, 100, rows.floor, rows.uuid)
    assert ids(again) == kept
    assert len([ident for ident in engine.idents() if ident.startswith(OPLOG_IDENT)]) <= 9


def test_a_rolled_back_segment_is_not_kept(engine: StorageEngine) -> None:
    rows = opened(engine, 80_000)
    for number in range(6):
        put(rows, engine, number, 2_000)
    floor = rows.floor
    for _ in range(3):
        put(rows, engine, 6, 2_000, commits=False)
    assert (ids(rows), rows.floor) == (list(range(6)), floor)
    put(rows, engine, 7, 2_000)
    assert ids(rows) == [*range(6), 7]
    assert ids(opened(engine, 80_000)) == [*range(6), 7]


def test_entries_that_others_have_dropped_are_lost(engine: StorageEngine) -> None:
    """A version of the server without a stored oplog drops what it does not know."""
    put(opened(engine), engine, 0)
    with engine.unit_of_work() as work:
        engine.drop_ident(f"{OPLOG_IDENT}0")
        work.commit()
    later = Timestamp(500, 1)
    rows = OplogRows(Catalog(engine), later, 1 << 20, 0)
    assert (rows.first, rows.end, rows.floor) == (0, 0, (500, 1))


@pytest.mark.skipif(not STATM.exists(), reason="/proc is Linux's")
def test_segments_of_the_past_take_no_memory(tmp_path: Path) -> None:
    """A prepared statement, of which each segment has its own, keeps what was bound last."""
    engine = open_engine(f"sqlite:{tmp_path}")
    rows = opened(engine, 1 << 20)
    for number in range(10):
        put(rows, engine, number, 1 << 20)
    before = resident_bytes()
    for number in range(10, 70):
        put(rows, engine, number, 1 << 20)
    assert resident_bytes() - before < 20 << 20
    engine.close()


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_young_segments_are_kept(engine: StorageEngine) -> None:
    rows = opened(engine, 80_000, retention_ms=60_000)
    for number in range(100):
        put(rows, engine, number, 2_000)
    assert 30 <= rows.first <= 40


def test_a_first_entry_that_is_rolled_back_leaves_a_usable_oplog(engine: StorageEngine) -> None:
    rows = opened(engine)
    put(rows, engine, 0, commits=False)
    put(rows, engine, 1, commits=False)
    put(rows, engine, 2)
    put(rows, engine, 3)
    assert (rows.first, ids(rows), ids(opened(engine))) == (0, [2, 3], [2, 3])
