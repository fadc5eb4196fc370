"""Records of a data folder that are kept in memory: what is read is what is stored, whatever was written meanwhile; and
they take no more memory than they may."""

import random
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mongottl.offline.check import DataCheck
from mongottl.storage.errors import DamagedRecord, WriteConflict
from mongottl.storage.interface import StorageEngine, WriteUnitOfWork
from mongottl.storage.opening import open_engine
from mongottl.storage.sqlite.engine import SqliteEngine
from mongottl.storage.sqlite.records import SqliteRecordStore
from mongottl.storage.stores import MAX_RECORD_ID, NO_BYTE_LIMIT, KeyRange, Record

DATABASE = "mongottl.sqlite3"
KEY = ">Q"
# From none to more than all; a block may take an eighth.
BUDGETS = [0, 10_000, 40_000, 200_000, 1 << 26]


def opened(path: Path) -> SqliteEngine:
    engine = open_engine(f"sqlite:{path}")
    assert isinstance(engine, SqliteEngine)
    return engine


def store_of(engine: StorageEngine, ident: str = "records") -> SqliteRecordStore:
    store = engine.record_store(ident)
    assert isinstance(store, SqliteRecordStore)
    return store


def document(number: int, length: int = 60) -> bytes:
    """As BSON it begins with its own length."""
    return length.to_bytes(4, "little") + number.to_bytes(8, "little") + bytes(length - 12)


def made(path: Path, count: int, length: int = 60) -> SqliteEngine:
    """An engine with a store and an index, in which the id is the key."""
    engine = opened(path)
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        ids = store.insert_records([(document(n, length), 1000, n % 3) for n in range(count)])
        engine.create_sorted_data("keys", True).insert([(rid.to_bytes(8, "big"), rid) for rid in ids])
        unit.commit()
    engine.close()
    return opened(path)


def read_all(store: SqliteRecordStore, limit: int = 256, forward: bool = True) -> list[Record]:
    found: list[Record] = []
    more = True
    while more:
        position = found[-1][0] if found else 0 if forward else MAX_RECORD_ID
        records, more = store.scan(position, limit, forward)
        found += records
    return found


@contextmanager
def statements(engine: SqliteEngine) -> Iterator[list[str]]:
    """What SQLite executes."""
    executed: list[str] = []
    engine._connection.raw.set_trace_callback(executed.append)
    yield executed
    engine._connection.raw.set_trace_callback(None)


def check_blocks(engine: SqliteEngine) -> None:
    """Each block has what is stored, and the budget counts them."""
    budget = engine._connection.cache_budget
    size_bytes = 0
    for ident, store in engine._idents.records.items():
        cache = store.counters.cache
        if cache is None:
            continue
        end = 0
        count = 0
        assert cache._lows == [block.low for block in cache._blocks]
        for block in cache._blocks:
            assert end <= block.low < block.high and block.cache is cache
            end = block.high
            count += len(block.records)
            size_bytes += block.size_bytes()
            assert block.document_bytes == sum(len(row[1]) for row in cast("list[Record]", block.records))
            rows = engine._connection.read(
                f"SELECT rid, doc, ts, ttl FROM {store.table} WHERE rid > ? AND rid <= ? ORDER BY rid",
                (int(block.low), int(block.high)),
            )
            assert block.records == rows, ident
        assert cache.count == count
    assert budget.used_bytes == size_bytes <= budget.max_bytes
    assert [block.slot for block in budget._blocks] == list(range(len(budget._blocks)))


class CacheMachine(RuleBasedStateMachine):
    """Random writes and reads of a folder, beside the engine in memory. Sometimes the second of two stores is dropped
    and made again."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.engine = opened(self.directory / "data")
        self.memory = open_engine("memory:")
        self.units: list[WriteUnitOfWork] = []
        self.chance = random.Random(1)

    @initialize(budget=st.sampled_from(BUDGETS))
    def create(self, budget: int) -> None:
        self.engine.set_cache_bytes(budget)
        with self.writing():
            for engine in self.both:
                for ident in ("records", "others"):
                    engine.create_record_store(ident)
                    engine.create_sorted_data(f"{ident} keys", True)

    def teardown(self) -> None:
        if self.units:
            self.leave(commit=False)
        self.engine.close()
        shutil.rmtree(self.directory)

    @property
    def both(self) -> list[StorageEngine]:
        return [self.engine, self.memory]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """In the open units of work, or in some of their own."""
        if self.units:
            yield
        else:
            with self.engine.unit_of_work() as unit, self.memory.unit_of_work() as other:
                yield
                unit.commit()
                other.commit()

    @precondition(lambda self: not self.units)
    @rule()
    def enter(self) -> None:
        self.units = [engine.unit_of_work() for engine in self.both]
        for unit in self.units:
            unit.__enter__()

    @precondition(lambda self: self.units)
    @rule(commit=st.booleans())
    def leave(self, commit: bool) -> None:
        for unit in self.units:
            if commit:
                unit.commit()
            unit.__exit__(None, None, None)
        self.units = []

    @rule(budget=st.sampled_from(BUDGETS))
    def resize(self, budget: int) -> None:
        self.engine.set_cache_bytes(budget)

    @rule(ident=st.sampled_from(["records", "others"]), count=st.sampled_from([0, 1, 3, 40, 300, 700]))
    def insert(self, ident: str, count: int) -> None:
        with self.writing():
            rows = [(document(self.chance.randrange(1000)), self.chance.randrange(9), count % 3) for _ in range(count)]
            for engine in self.both:
                store = engine.record_store(ident)
                ids = [store.insert_record(*rows[0])] if count == 1 else store.insert_records(rows)
                engine.sorted_data(f"{ident} keys", True).insert([(rid.to_bytes(8, "big"), rid) for rid in ids])

    def some(self, ident: str, part: float) -> list[Record]:
        found = self.memory.record_store(ident).scan(0, 5000)[0]
        return [record for record in found if self.chance.random() < part]

    @rule(ident=st.sampled_from(["records", "others"]), part=st.sampled_from([0.01, 0.2, 1.0]), one=st.booleans())
    def update(self, ident: str, part: float, one: bool) -> None:
        old = self.some(ident, part)[: 1 if one else 5000]
        new = [(rid, doc[:4] + b"new" + doc[7:], ts + 1, ttl) for rid, doc, ts, ttl in old]
        if old and self.chance.random() < 0.3:
            length = self.chance.choice([20, 500, 20_000])
            new[0] = (old[0][0], document(5, length), 1, -1)
        with self.writing():
            for engine in self.both:
                store = engine.record_store(ident)
                if one and old:
                    store.update_record(old[0], new[0])
                else:
                    store.update_records(old, new)

    @rule(ident=st.sampled_from(["records", "others"]), part=st.sampled_from([0.01, 0.3, 1.0]), one=st.booleans())
    def delete(self, ident: str, part: float, one: bool) -> None:
        gone = self.some(ident, part)[: 1 if one else 5000]
        if part == 0.3 and gone:  # neighbours
            first = gone[0][0]
            gone = [record for record in self.some(ident, 1.0) if first <= record[0] < first + 400]
        with self.writing():
            for engine in self.both:
                store = engine.record_store(ident)
                if one and gone:
                    gone = gone[:1]
                    store.delete_record(gone[0])
                else:
                    store.delete_records(gone)
                engine.sorted_data(f"{ident} keys", True).remove([(r[0].to_bytes(8, "big"), r[0]) for r in gone])

    @precondition(lambda self: not self.units)
    @rule(ident=st.sampled_from(["records", "others"]), deletes=st.booleans())
    def conflict(self, ident: str, deletes: bool) -> None:
        """Some of the records are not as they were read."""
        old = self.some(ident, 0.5)
        if not old:
            return
        old[-1] = (old[-1][0], document(2000), 1, 1)
        with self.engine.unit_of_work(), pytest.raises(WriteConflict):
            store = self.engine.record_store(ident)
            if deletes:
                store.delete_records(old)
            else:
                store.update_records(old, old)

    @rule(commit=st.booleans())
    def drop(self, commit: bool) -> None:
        if not self.units:
            self.enter()
        for engine in self.both:
            for ident in ("others", "others keys"):
                engine.drop_ident(ident)
            engine.create_record_store("others")
            engine.create_sorted_data("others keys", True)
        self.leave(commit)

    @precondition(lambda self: not self.units)
    @rule()
    def drop_some(self) -> None:
        self.engine.drop_some(100)

    @precondition(lambda self: not self.units)
    @rule()
    def reclaim(self) -> None:
        self.engine.reclaim_some(20)
        self.engine.maintain()

    @rule(
        ident=st.sampled_from(["records", "others"]),
        limit=st.sampled_from([1, 7, 100, 256, 2000]),
        forward=st.booleans(),
        max_bytes=st.sampled_from([1, 1000, 20_000, NO_BYTE_LIMIT]),
        start=st.floats(0, 1),
        steps=st.integers(1, 30),
    )
    def scan(self, ident: str, limit: int, forward: bool, max_bytes: int, start: float, steps: int) -> None:
        position = 0 if forward else MAX_RECORD_ID
        if start > 0.3:
            position = int(start * self.engine._idents.records[ident].counters.next_record_id)
        for _ in range(steps):
            found, expected = (
                engine.record_store(ident).scan(position, limit, forward, max_bytes) for engine in self.both
            )
            assert found[0] == expected[0]
            if not found[0]:
                assert not found[1]
                break
            position = found[0][-1][0]

    @rule(ident=st.sampled_from(["records", "others"]), max_bytes=st.sampled_from([1, 1000, NO_BYTE_LIMIT]))
    def look_up(self, ident: str, max_bytes: int) -> None:
        last_id = self.engine._idents.records[ident].counters.next_record_id
        ids = [self.chance.randrange(1, last_id + 2) for _ in range(self.chance.choice([1, 3, 100]))]
        store, other = (engine.record_store(ident) for engine in self.both)
        keys, other_keys = (engine.sorted_data(f"{ident} keys", True) for engine in self.both)
        assert store.find_records(ids, max_bytes) == other.find_records(ids, max_bytes)
        for record_id in ids[:3]:
            key = record_id.to_bytes(8, "big")
            assert store.find_record(record_id) == other.find_record(record_id)
            assert keys.fetch_exact(store, key) == other_keys.fetch_exact(other, key)
            for forward in (True, False):
                found = keys.scan_fetch(store, KeyRange(key, b"\xff", forward), None, 50, max_bytes)
                assert found[0] == other_keys.scan_fetch(other, KeyRange(key, b"\xff", forward), None, 50, max_bytes)[0]

    @invariant()
    def blocks_are_right(self) -> None:
        check_blocks(self.engine)
        for ident in ("records", "others"):
            if ident in self.engine._idents.records:
                store, other = (engine.record_store(ident) for engine in self.both)
                assert (store.count(), store.size_bytes()) == (other.count(), other.size_bytes())


def test_a_folder_with_its_cache_is_like_the_engine_in_memory() -> None:
    run_state_machine_as_test(
        CacheMachine,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("forward", [True, False])
def test_a_second_scan_reads_nothing(tmp_path: Path, forward: bool) -> None:
    engine = made(tmp_path, 3000)
    store = store_of(engine)
    records = read_all(store, 256, forward)
    assert len(records) == 3000
    with statements(engine) as executed:
        for limit in (256, 17, 5000):
            assert read_all(store, limit, forward) == records
            assert read_all(store, limit, not forward) == records[::-1]
    assert executed == []
    check_blocks(engine)
    engine.close()


def test_look_ups_read_no_documents_if_all_are_kept(tmp_path: Path) -> None:
    engine = made(tmp_path, 1000)
    store = store_of(engine)
    keys = engine.sorted_data("keys", True)
    records = read_all(store)
    with statements(engine) as executed:
        assert store.find_record(5) == records[4]
        assert store.find_records([9, 500, 5, 5]) == ([records[8], records[499], records[4], records[4]], 4)
        assert executed == []
        assert keys.fetch_exact(store, (77).to_bytes(8, "big")) == records[76]
        assert keys.fetch_exact(store, (7777).to_bytes(8, "big")) is None
        found, more = keys.scan_fetch(store, KeyRange(b"", b"\xff"), None, 300)
        assert [entry[1:] for entry in found] == records[:300] and more
    assert executed and not any("doc" in sql for sql in executed)
    # As many are deleted as were read before, or one is inserted that is not kept: the entries decide.
    with engine.unit_of_work() as unit:
        store.delete_record(records[0])
        keys.remove([((1).to_bytes(8, "big"), 1)])
        unit.commit()
    assert keys.scan_fetch(store, KeyRange(b"", b"\xff"), None, 1)[0][0][1:] == records[1]
    engine.close()


def test_an_insert_adds_to_what_is_kept_and_a_rollback_takes_it_back(tmp_path: Path) -> None:
    engine = made(tmp_path, 700)
    store = store_of(engine)
    before = read_all(store)
    with engine.unit_of_work() as unit:
        ids = store.insert_records([(document(n), 5, 0) for n in range(600)])
        store.insert_record(document(7), 5, 0)
        unit.commit()
    check_blocks(engine)
    with statements(engine) as executed:
        records = read_all(store)
    assert executed == [] and records[:700] == before and [record[0] for record in records[700:1300]] == ids
    with engine.unit_of_work():
        store.insert_records([(document(n), 5, 0) for n in range(600)])
        store.delete_records(records[600:900])
        assert len(read_all(store)) == 1601
    check_blocks(engine)
    assert read_all(store) == records
    engine.close()


def test_cache_forgets_reads_of_a_unit_that_is_rolled_back(tmp_path: Path) -> None:
    engine = made(tmp_path, 700)
    store = store_of(engine)
    (first,) = store.scan(0, 1)[0]
    with engine.unit_of_work():
        store.update_record(first, (1, document(5), 5, 0))
        assert read_all(store)[0] == (1, document(5), 5, 0)
    check_blocks(engine)
    assert read_all(store)[0] == first
    engine.close()


@pytest.mark.parametrize("part", [0.3, 0.7])
def test_a_collection_larger_than_the_cache_stays_in_part(tmp_path: Path, part: float) -> None:
    engine = made(tmp_path, 20_000)
    store = store_of(engine)
    read_all(store)
    budget = engine._connection.cache_budget
    engine.set_cache_bytes(int(part * int(budget.used_bytes)))
    records = read_all(store)
    found = budget.found
    for _ in range(3):
        assert read_all(store) == records
        check_blocks(engine)
    assert (budget.found - found) / (3 * 20_000) > (part - 0.15 if part > 0.5 else -1)
    engine.close()


def test_cache_evicts_the_least_recently_used_blocks(tmp_path: Path) -> None:
    engine = made(tmp_path, 20_000)
    with engine.unit_of_work() as unit:
        engine.create_record_store("others").insert_records([(document(n), 5, 0) for n in range(20_000)])
        unit.commit()
    store, others = store_of(engine), store_of(engine, "others")
    read_all(store)
    budget = engine._connection.cache_budget
    engine.set_cache_bytes(int(budget.used_bytes))
    for _ in range(5):
        read_all(others)
    check_blocks(engine)
    found = budget.found
    read_all(others)
    assert budget.found - found > 18_000
    engine.close()


def test_an_insert_whose_room_is_made_by_giving_up_its_own_block_is_not_kept(tmp_path: Path) -> None:
    engine = made(tmp_path, 10, 500)
    with engine.unit_of_work() as unit:
        engine.create_record_store("others").insert_records([(document(n, 500), 5, 0) for n in range(5_000)])
        unit.commit()
    store, others = store_of(engine), store_of(engine, "others")
    budget = engine._connection.cache_budget
    engine.set_cache_bytes(1_000_000)
    read_all(store)
    # Until all is used, and only the block of the first store was not read for long.
    read_all(others)
    engine.set_cache_bytes(int(budget.used_bytes))
    for _ in range(20):
        others.scan(0, 1_000)
    cache = store.counters.cache
    assert cache is not None and len(cache._blocks) == 1
    budget._hand = cache._blocks[0].slot  # the next one that is given up
    with engine.unit_of_work() as unit:
        store.insert_record(document(11, 10_000), 5, 0)
        unit.commit()
    check_blocks(engine)
    assert len(read_all(store)) == 11
    check_blocks(engine)
    engine.close()


def test_a_dropped_store_takes_no_memory(tmp_path: Path) -> None:
    engine = made(tmp_path, 3000)
    read_all(store_of(engine))
    budget = engine._connection.cache_budget
    assert engine.statistics()["cache_bytes"] == budget.used_bytes > 3000 * 60
    with engine.unit_of_work():
        engine.drop_ident("records")
    with statements(engine) as executed:
        read_all(store_of(engine))
    assert not executed
    with engine.unit_of_work() as unit:
        engine.drop_ident("records")
        unit.commit()
    sizes = [budget.used_bytes]
    while engine.drop_some(1000):  # in steps, as its rows
        sizes.append(budget.used_bytes)
    assert len(sizes) > 3 and sizes == sorted(sizes, reverse=True) and sizes[1] > 0
    assert engine.statistics()["cache_bytes"] == 0 and not budget._blocks
    engine.close()


def test_a_small_store_that_is_dropped_takes_no_memory_at_once(tmp_path: Path) -> None:
    engine = made(tmp_path, 500)
    read_all(store_of(engine))
    with engine.unit_of_work() as unit:
        engine.drop_ident("records")
        unit.commit()
    assert engine.statistics()["cache_bytes"] == 0
    engine.close()


def test_a_long_document_is_not_kept_in_a_small_cache(tmp_path: Path) -> None:
    engine = made(tmp_path, 30, 100_000)
    store = store_of(engine)
    engine.set_cache_bytes(500_000)
    for _ in range(2):
        assert [len(record[1]) for record in read_all(store)] == [100_000] * 30
        check_blocks(engine)
    # It grows where it is kept.
    engine.set_cache_bytes(5_000_000)
    records = read_all(store)
    for length in (300_000, 4_000_000, 6_000_000):
        with engine.unit_of_work() as unit:
            records[5] = (6, document(6, length), 1, 1)
            store.update_record(store.find_record(6), records[5])  # type: ignore[arg-type]
            unit.commit()
        check_blocks(engine)
        assert read_all(store) == records
    engine.close()


def test_logs_and_stores_in_memory_keep_nothing(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    with engine.unit_of_work() as unit:
        log = engine.create_record_store("log", is_log=True)
        log.insert_records([(document(n), 5, 0) for n in range(300)])
        unit.commit()
    assert len(log.scan(0, 1000)[0]) == 300 and engine.statistics()["cache_bytes"] == 0
    engine.close()
    memory = open_engine("sqlite:")
    with memory.unit_of_work() as unit:
        store = memory.create_record_store("records")
        store.insert_records([(document(n), 5, 0) for n in range(300)])
        unit.commit()
    assert len(store.scan(0, 1000)[0]) == 300 and memory.statistics()["cache_bytes"] == 0


def flip(path: Path, record: Record) -> None:
    """Changes a bit of a document in the database file."""
    content = bytearray((path / DATABASE).read_bytes())
    place = content.index(record[1][:12])
    content[place + 8] ^= 1
    (path / DATABASE).write_bytes(content)


@pytest.mark.skipif(sys.platform == "win32", reason="writes to a database that is open")
def test_a_changed_bit_is_found_when_it_is_read(tmp_path: Path) -> None:
    """By a scan of an engine that has not kept the record, by one that has been told to forget it, and by `check`."""
    engine = made(tmp_path, 2000)
    records = read_all(store_of(engine))
    engine.close()
    flip(tmp_path, records[1500])
    (fault,) = DataCheck(str(tmp_path)).faults()
    assert "record 1501 is not as it was written: its checksum is wrong" in fault
    engine = opened(tmp_path)
    store = store_of(engine)
    for _ in range(2):  # what was read before is kept, what is damaged is not
        with pytest.raises(DamagedRecord, match="record 1501 of records is damaged: its checksum is wrong"):
            read_all(store)
        check_blocks(engine)
    engine.close()


def change(path: Path, assignment: str, record_id: int) -> None:
    raw = sqlite3.connect(path / DATABASE, isolation_level=None)
    raw.execute(f"UPDATE r1 NOT INDEXED SET {assignment} WHERE rid = {record_id}")
    raw.close()


@pytest.mark.skipif(sys.platform == "win32", reason="writes to a database that is open")
def test_forget_cached_makes_scans_read_the_file_again(tmp_path: Path) -> None:
    engine = made(tmp_path, 2000)
    store = store_of(engine)
    records = read_all(store)
    change(tmp_path, "doc = CAST(doc || x'00' AS BLOB)", 900)
    engine.forget_cached("records", 0, 256)
    engine.forget_cached("records", 1024, 256)
    assert read_all(store) == records
    engine.forget_cached("records", 899, 1)
    with pytest.raises(DamagedRecord, match="record 900 of records"):
        read_all(store)
    # As `validate` does: before each step.
    change(tmp_path, "doc = substr(doc, 1, length(doc) - 1)", 900)
    change(tmp_path, "doc = CAST(doc || x'00' AS BLOB)", 1500)
    read_all(store)
    position = 0
    with pytest.raises(DamagedRecord, match="record 1500 of records"):
        while True:
            engine.forget_cached("records", position, 256)
            position = store.scan(position, 256)[0][-1][0]
    assert position == 1280
    engine.close()


WRITES: dict[str, Callable[[SqliteRecordStore, Record], object]] = {
    "update": lambda store, record: store.update_record(record, (*record[:3], 5)),
    "updates": lambda store, record: store.update_records([record] * 1, [(*record[:3], 5)]),
    "delete": lambda store, record: store.delete_record(record),
    "deletes": lambda store, record: store.delete_records([record]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_record_that_is_kept_otherwise_is_a_conflict(
    tmp_path: Path, write: Callable[[SqliteRecordStore, Record], object]
) -> None:
    engine = made(tmp_path, 100)
    store = store_of(engine)
    records = read_all(store)
    for stale in ((50, records[49][1], 7, records[49][3]), (50, document(999), *records[49][2:]), (101, b"", 1, 0)):
        with engine.unit_of_work(), pytest.raises(WriteConflict):
            write(store, stale)
    with engine.unit_of_work() as unit:
        write(store, records[49])
        unit.commit()
    check_blocks(engine)
    assert read_all(store) != records
    engine.close()
