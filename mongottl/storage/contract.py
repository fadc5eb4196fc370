"""An engine that wraps another one, and asserts at every call that the caller and the wrapped engine keep the contract.

Tests run servers and the conformance suite on it. It checks types, ranges and order of the arguments, that writes
happen inside a unit of work, that results are complete, in order and within their limits, that counters are exact, and
that only the allowed errors are raised. A violation is an AssertionError that names the method. It stores nothing and
does not depend on the engine.

The checks make additional reads at each call, so it is for tests only.
"""

from collections.abc import Callable
from functools import partial
from types import TracebackType

from mongottl.storage.interface import (
    MAX_RECORD_ID,
    NO_BYTE_LIMIT,
    DuplicateKey,
    EngineUnavailable,
    FetchedEntry,
    IndexEntry,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
    StorageEngine,
    WriteConflict,
    WriteUnitOfWork,
)

# What `ttl` may be: 2^31 - 1 is Cosmos's largest, 0 stands for none, -1 for never.
_MAX_TTL_S = (1 << 31) - 1


class _Allowed:
    """A block from which only EngineUnavailable, and errors of the class `error`, may be raised."""

    def __init__(self, method: str, error: type[Exception] | None = None) -> None:
        self._method = method
        self._error = error

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, Exception) or issubclass(kind, EngineUnavailable):
            return
        allowed = self._error
        assert allowed is not None and issubclass(kind, allowed), f"{self._method} raised {kind.__name__}: {error}"


class ContractEngine(StorageEngine):
    """Wraps an engine, and each record store and sorted data that it returns."""

    def __init__(self, inner: StorageEngine) -> None:
        self.name = inner.name
        self.inner = inner
        # The open unit of work of the wrapped engine.
        self.unit: WriteUnitOfWork | None = None
        self.closed = False
        # The record that the open unit of work has added last to a log: the commit checks that it is there.
        self.logged: tuple[ContractRecordStore, Record] | None = None
        self._records: dict[str, ContractRecordStore] = {}
        self._sorted: dict[str, ContractSortedData] = {}

    def require_open(self, method: str) -> None:
        assert not self.closed, f"{method} after close"

    def batch_bytes(self, max_bytes: int) -> int:
        """The `max_bytes` that the engine within is given, for a test that wants batches shorter than asked for."""
        return max_bytes

    def require_unit(self, method: str) -> None:
        assert not self.closed, f"{method} after close"
        assert self.unit is not None, f"{method} outside a unit of work"

    def forget(self, ident: str) -> None:
        """Asserts from now on that the objects of a dropped ident are not used, unless the unit is rolled back."""
        assert self.unit is not None
        store = self._records.pop(ident, None)
        if store is not None:
            _set_dropped(store, True)
            self.unit.on_rollback(partial(_set_dropped, store, False))
            self.unit.on_rollback(partial(self._records.__setitem__, ident, store))
        data = self._sorted.pop(ident, None)
        if data is not None:
            _set_dropped(data, True)
            self.unit.on_rollback(partial(_set_dropped, data, False))
            self.unit.on_rollback(partial(self._sorted.__setitem__, ident, data))

    def unit_of_work(self) -> WriteUnitOfWork:
        self.require_open("unit_of_work")
        assert self.unit is None, "units of work do not nest"
        return ContractUnitOfWork(self, self.inner.unit_of_work())

    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        self.require_open("set_commit_listener")
        self.inner.set_commit_listener(listener)

    def idents(self) -> list[str]:
        self.require_open("idents")
        found = self.inner.idents()
        assert len(set(found)) == len(found), "idents: one is there twice"
        return found

    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        self.require_unit("create_record_store")
        _check_name(ident)
        assert ident not in self.inner.idents(), f"create_record_store: {ident} exists"
        with _Allowed("create_record_store"):
            inner = self.inner.create_record_store(ident, is_log)
        assert inner.ident == ident and inner.count() == 0 and inner.size_bytes() == 0
        assert inner.scan(0, 1) == ([], False)
        assert self.inner.record_store(ident) is inner, "record_store: another object than was created"
        store = self.record_store(ident)
        assert self.unit is not None and isinstance(store, ContractRecordStore)
        self.unit.on_rollback(partial(_set_dropped, store, True))
        return store

    def record_store(self, ident: str) -> RecordStore:
        self.require_open("record_store")
        assert ident in self.inner.idents(), f"record_store: there is no {ident}"
        inner = self.inner.record_store(ident)
        store = self._records.get(ident)
        if store is None or store.inner is not inner:
            store = ContractRecordStore(self, inner)
            self._records[ident] = store
        return store

    def create_sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        self.require_unit("create_sorted_data")
        _check_name(ident)
        assert ident not in self.inner.idents(), f"create_sorted_data: {ident} exists"
        with _Allowed("create_sorted_data"):
            inner = self.inner.create_sorted_data(ident, unique)
        assert inner.ident == ident and inner.unique == unique
        assert self.inner.sorted_data(ident, unique) is inner, "sorted_data: another object than was created"
        data = self.sorted_data(ident, unique)
        assert self.unit is not None and isinstance(data, ContractSortedData)
        self.unit.on_rollback(partial(_set_dropped, data, True))
        return data

    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        self.require_open("sorted_data")
        assert ident in self.inner.idents(), f"sorted_data: there is no {ident}"
        inner = self.inner.sorted_data(ident, unique)
        assert inner.unique == unique
        data = self._sorted.get(ident)
        if data is None or data.inner is not inner:
            data = ContractSortedData(self, inner)
            self._sorted[ident] = data
        return data

    def drop_ident(self, ident: str) -> None:
        self.require_unit("drop_ident")
        assert ident in self.inner.idents(), f"drop_ident: there is no {ident}"
        with _Allowed("drop_ident"):
            self.inner.drop_ident(ident)
        assert ident not in self.inner.idents(), f"drop_ident: {ident} is still there"
        self.forget(ident)

    def drop_some(self, limit: int) -> bool:
        self.require_open("drop_some")
        assert self.unit is None, "drop_some inside a unit of work"
        assert limit > 0
        before = sorted(self.inner.idents())
        with _Allowed("drop_some"):
            more = self.inner.drop_some(limit)
        assert sorted(self.inner.idents()) == before, "drop_some changed the idents"
        return more

    def clear(self) -> None:
        self.require_unit("clear")
        gone = self.inner.idents()
        with _Allowed("clear"):
            self.inner.clear()
        assert not self.inner.idents() and not self.inner.catalog_entries(), "clear left something"
        for ident in gone:
            self.forget(ident)

    def catalog_entries(self) -> list[tuple[str, bytes]]:
        self.require_open("catalog_entries")
        entries = self.inner.catalog_entries()
        keys = [key.encode() for key, _ in entries]
        assert all(keys[i] < keys[i + 1] for i in range(len(keys) - 1)), "catalog_entries: out of order"
        assert all(type(value) is bytes for _, value in entries), "catalog_entries: values are bytes"
        return entries

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        self.require_unit("put_catalog_entry")
        _check_name(key)
        assert type(value) is bytes
        with _Allowed("put_catalog_entry"):
            self.inner.put_catalog_entry(key, value)

    def delete_catalog_entry(self, key: str) -> None:
        self.require_unit("delete_catalog_entry")
        with _Allowed("delete_catalog_entry"):
            self.inner.delete_catalog_entry(key)

    @property
    def committed_number(self) -> int:
        return self.inner.committed_number

    @property
    def durable_number(self) -> int:
        durable = self.inner.durable_number
        assert durable <= self.inner.committed_number, "durable_number: of a commit that has not been made"
        return durable

    @property
    def failed(self) -> bool:
        return self.inner.failed

    def flush(self) -> None:
        before = self.inner.committed_number
        with _Allowed("flush"):
            self.inner.flush()
        assert self.closed or self.inner.durable_number >= before, "flush: a commit is not durable"

    @property
    def maintenance_due(self) -> bool:
        return self.inner.maintenance_due

    @property
    def writers_should_wait(self) -> bool:
        return self.inner.writers_should_wait

    def maintain(self) -> None:
        with _Allowed("maintain"):
            self.inner.maintain()

    def statistics(self) -> dict[str, int]:
        self.require_open("statistics")
        return self.inner.statistics()

    def close(self) -> None:
        assert self.unit is None, "close inside a unit of work"
        with _Allowed("close"):
            self.inner.close()
        self.closed = True


class ContractUnitOfWork(WriteUnitOfWork):
    def __init__(self, engine: ContractEngine, inner: WriteUnitOfWork) -> None:
        self._engine = engine
        self._inner = inner
        self._entered = False

    def __enter__(self) -> WriteUnitOfWork:
        assert not self._entered, "a unit of work is entered once"
        assert self._engine.unit is None, "units of work do not nest"
        self._engine.logged = None
        with _Allowed("unit of work"):
            self._inner.__enter__()
        self._entered = True
        self._engine.unit = self._inner
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._entered, "a unit of work was left before it was entered"
        self._engine.unit = None
        with _Allowed("unit of work"):
            self._inner.__exit__(kind, error, trace)

    def commit(self) -> None:
        self._engine.require_unit("commit")
        try:
            with _Allowed("commit", WriteConflict):
                self._inner.commit()
        finally:
            self._engine.unit = None
        if self._engine.logged is not None:
            store, record = self._engine.logged
            if not store.dropped:
                assert store.inner.find_record(record[0]) == record, "commit: what was added to a log is not there"

    def on_commit(self, action: Callable[[], None]) -> None:
        self._engine.require_unit("on_commit")
        self._inner.on_commit(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._engine.require_unit("on_rollback")
        self._inner.on_rollback(action)


class ContractRecordStore(RecordStore):
    def __init__(self, engine: ContractEngine, inner: RecordStore) -> None:
        self.ident = inner.ident
        self.is_log = inner.is_log
        self.inner = inner
        self.engine = engine
        self.dropped = False
        last, _ = inner.scan(MAX_RECORD_ID, 1, False)
        self._highest_id = last[0][0] if last else 0

    def _require(self, method: str, writes: bool) -> None:
        assert not self.dropped, f"{method}: {self.ident} was dropped"
        if writes:
            self.engine.require_unit(method)
        else:
            self.engine.require_open(method)

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        self._require("insert_records", True)
        for document, ts, ttl in records:
            _check_facts(document, ts, ttl)
        count, size = self.inner.count(), self.inner.size_bytes()
        with _Allowed("insert_records"):
            ids = self.inner.insert_records(records)
        assert len(ids) == len(records)
        for record_id in ids:
            assert record_id > self._highest_id, "insert_records: ids ascend and are never given twice"
            self._highest_id = record_id
        assert self.inner.count() == count + len(records)
        assert self.inner.size_bytes() == size + sum([len(record[0]) for record in records])
        stored, _ = self.inner.find_records(ids)
        assert [record[1:] for record in stored] == [tuple(record) for record in records]
        return ids

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        self._require("insert_record", True)
        _check_facts(document, ts, ttl)
        count, size = self.inner.count(), self.inner.size_bytes()
        with _Allowed("insert_record"):
            record_id = self.inner.insert_record(document, ts, ttl)
        assert record_id > self._highest_id, "insert_record: ids ascend and are never given twice"
        self._highest_id = record_id
        assert (self.inner.count(), self.inner.size_bytes()) == (count + 1, size + len(document))
        record = (record_id, document, ts, ttl)
        if self.is_log:
            # A read would have the engine write the record before the commit, which is what is to be tested.
            self.engine.logged = (self, record)
        else:
            assert self.inner.find_record(record_id) == record
        return record_id

    def _check_update(self, method: str, old: list[Record], new: list[Record]) -> bool:
        """Whether the records are stored as `old` says."""
        self._require(method, True)
        assert [record[0] for record in old] == [record[0] for record in new], f"{method}: old and new differ in ids"
        for _, document, ts, ttl in new:
            _check_facts(document, ts, ttl)
        return self._is_current(method, old)

    def _is_current(self, method: str, old: list[Record]) -> bool:
        """Whether all records are stored as given; where they are not, the engine must raise WriteConflict."""
        ids = [record[0] for record in old]
        assert len(set(ids)) == len(ids), f"{method}: a record is there twice"
        return self.inner.find_records(ids)[0] == old

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        current = self._check_update("update_records", old, new)
        count, size = self.inner.count(), self.inner.size_bytes()
        with _Allowed("update_records", WriteConflict):
            self.inner.update_records(old, new)
        assert current, "update_records: no WriteConflict for a record that is not stored as given"
        growth = sum([len(record[1]) for record in new]) - sum([len(record[1]) for record in old])
        assert (self.inner.count(), self.inner.size_bytes()) == (count, size + growth)
        assert self.inner.find_records([record[0] for record in new])[0] == new

    def update_record(self, old: Record, new: Record) -> None:
        current = self._check_update("update_record", [old], [new])
        count, size = self.inner.count(), self.inner.size_bytes()
        with _Allowed("update_record", WriteConflict):
            self.inner.update_record(old, new)
        assert current, "update_record: no WriteConflict for a record that is not stored as given"
        assert (self.inner.count(), self.inner.size_bytes()) == (count, size + len(new[1]) - len(old[1]))
        assert self.inner.find_record(new[0]) == new

    def delete_records(self, records: list[Record]) -> None:
        self._require("delete_records", True)
        if self.is_log:
            self.engine.logged = None
        current = self._is_current("delete_records", records)
        count, size = self.inner.count(), self.inner.size_bytes()
        with _Allowed("delete_records", WriteConflict):
            self.inner.delete_records(records)
        assert current, "delete_records: no WriteConflict for a record that is not stored as given"
        assert self.inner.count() == count - len(records)
        assert self.inner.size_bytes() == size - sum([len(record[1]) for record in records])
        assert not self.inner.find_records([record[0] for record in records])[0]

    def delete_record(self, record: Record) -> None:
        self._require("delete_record", True)
        if self.is_log:
            self.engine.logged = None
        current = self._is_current("delete_record", [record])
        count, size = self.inner.count(), self.inner.size_bytes()
        with _Allowed("delete_record", WriteConflict):
            self.inner.delete_record(record)
        assert current, "delete_record: no WriteConflict for a record that is not stored as given"
        assert (self.inner.count(), self.inner.size_bytes()) == (count - 1, size - len(record[1]))
        assert self.inner.find_record(record[0]) is None

    def find_record(self, record_id: int) -> Record | None:
        self._require("find_record", False)
        with _Allowed("find_record"):
            record = self.inner.find_record(record_id)
        if record is not None:
            _check_record(record)
            assert record[0] == record_id
        return record

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        self._require("find_records", False)
        assert max_bytes > 0
        max_bytes = self.engine.batch_bytes(max_bytes)
        with _Allowed("find_records"):
            records, taken = self.inner.find_records(record_ids, max_bytes)
        reached = _check_bytes("find_records", [record[1] for record in records], max_bytes)
        assert taken == len(record_ids) or (reached and taken < len(record_ids)), "find_records: ids are left out"
        place = 0
        for record in records:
            _check_record(record)
            while place < len(record_ids) and record_ids[place] != record[0]:
                place += 1
            assert place < len(record_ids), "find_records: not the order of the ids"
            place += 1
        assert place == taken if reached else place <= taken
        return records, taken

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        self._require("scan", False)
        assert 0 <= after <= MAX_RECORD_ID and limit > 0 and max_bytes > 0
        max_bytes = self.engine.batch_bytes(max_bytes)
        with _Allowed("scan"):
            records, more = self.inner.scan(after, limit, forward, max_bytes)
        assert len(records) <= limit
        reached = _check_bytes("scan", [record[1] for record in records], max_bytes)
        assert more or not self.inner.scan(records[-1][0] if records else after, 1, forward)[0], "scan: not the end"
        assert not more or (records and (reached or len(records) == limit)), "scan: no limit was reached"
        last = after
        for record in records:
            _check_record(record)
            assert record[0] > last if forward else record[0] < last, "scan: out of order"
            last = record[0]
        return records, more

    def count(self) -> int:
        self._require("count", False)
        found = self.inner.count()
        assert found >= 0
        return found

    def size_bytes(self) -> int:
        self._require("size_bytes", False)
        found = self.inner.size_bytes()
        assert found >= 0
        return found

    def due_by_default(self, max_ts: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        self._require("due_by_default", False)
        assert limit > 0 and max_bytes > 0
        max_bytes = self.engine.batch_bytes(max_bytes)
        with _Allowed("due_by_default"):
            records = self.inner.due_by_default(max_ts, limit, max_bytes)
        assert records or self.inner.count_due_by_default(max_ts) == 0, "due_by_default: records are left out"
        for record in records:
            assert record[3] == 0 and record[2] <= max_ts, "due_by_default: a record is not due"
        _check_due("due_by_default", records, [(record[2], record[0]) for record in records], limit, max_bytes)
        return records

    def due_by_own(self, now_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        self._require("due_by_own", False)
        assert limit > 0 and max_bytes > 0
        max_bytes = self.engine.batch_bytes(max_bytes)
        with _Allowed("due_by_own"):
            records = self.inner.due_by_own(now_s, limit, max_bytes)
        assert records or self.inner.count_due_by_own(now_s) == 0, "due_by_own: records are left out"
        for record in records:
            assert record[3] > 0 and record[2] + record[3] <= now_s, "due_by_own: a record is not due"
        _check_due("due_by_own", records, [(record[2] + record[3], record[0]) for record in records], limit, max_bytes)
        return records

    def count_due_by_default(self, max_ts: int) -> int:
        self._require("count_due_by_default", False)
        with _Allowed("count_due_by_default"):
            found = self.inner.count_due_by_default(max_ts)
        assert 0 <= found <= self.inner.count()
        assert (found > 0) == bool(self.inner.due_by_default(max_ts, 1))
        return found

    def count_due_by_own(self, now_s: int) -> int:
        self._require("count_due_by_own", False)
        with _Allowed("count_due_by_own"):
            found = self.inner.count_due_by_own(now_s)
        assert 0 <= found <= self.inner.count()
        assert (found > 0) == bool(self.inner.due_by_own(now_s, 1))
        return found

    def default_seconds(self, after_ts: int, limit: int) -> list[int]:
        self._require("default_seconds", False)
        assert limit > 0
        with _Allowed("default_seconds"):
            seconds = self.inner.default_seconds(after_ts, limit)
        _check_seconds("default_seconds", seconds, after_ts, limit)
        return seconds

    def own_seconds(self, after_due: int, limit: int) -> list[int]:
        self._require("own_seconds", False)
        assert limit > 0
        with _Allowed("own_seconds"):
            seconds = self.inner.own_seconds(after_due, limit)
        _check_seconds("own_seconds", seconds, after_due, limit)
        return seconds


class ContractSortedData(SortedDataInterface):
    def __init__(self, engine: ContractEngine, inner: SortedDataInterface) -> None:
        self.ident = inner.ident
        self.unique = inner.unique
        self.inner = inner
        self.engine = engine
        self.dropped = False

    def _require(self, method: str, writes: bool) -> None:
        assert not self.dropped, f"{method}: {self.ident} was dropped"
        if writes:
            self.engine.require_unit(method)
        else:
            self.engine.require_open(method)

    def insert(self, entries: list[IndexEntry]) -> None:
        self._require("insert", True)
        for key, record_id in entries:
            _check_entry(key, record_id)
        keys = list(dict.fromkeys([key for key, _ in entries]))
        before = self.inner.find_exact(keys)
        try:
            with _Allowed("insert", DuplicateKey):
                self.inner.insert(entries)
        except DuplicateKey as error:
            self._check_duplicate(error, entries, before)
            assert self.inner.find_exact(keys) == before, "insert: something of a failed call remains"
            raise
        after = self.inner.find_exact(keys)
        assert set(after) == set(before) | {(key, record_id) for key, record_id in entries}
        self._check_unique(after)

    def _check_duplicate(self, error: DuplicateKey, entries: list[IndexEntry], before: list[IndexEntry]) -> None:
        assert self.unique, "insert: DuplicateKey from sorted data that is not unique"
        key, record_id = entries[error.position]
        assert error.key == key and error.existing_record_id != record_id
        holders = before + entries[: error.position]
        assert (key, error.existing_record_id) in holders, "insert: no such holder"

    def _check_unique(self, entries: list[IndexEntry]) -> None:
        if self.unique:
            keys = [key for key, _ in entries]
            assert len(set(keys)) == len(keys), "a unique key is there twice"

    def insert_one(self, key: bytes, record_id: int) -> None:
        self._require("insert_one", True)
        _check_entry(key, record_id)
        before = self.inner.find_exact([key])
        try:
            with _Allowed("insert_one", DuplicateKey):
                self.inner.insert_one(key, record_id)
        except DuplicateKey as error:
            self._check_duplicate(error, [(key, record_id)], before)
            assert self.inner.find_exact([key]) == before, "insert_one: something of a failed call remains"
            raise
        after = self.inner.find_exact([key])
        assert set(after) == {*before, (key, record_id)}
        self._check_unique(after)

    def remove(self, entries: list[IndexEntry]) -> None:
        self._require("remove", True)
        for key, record_id in entries:
            _check_entry(key, record_id)
        keys = list(dict.fromkeys([key for key, _ in entries]))
        before = self.inner.find_exact(keys)
        with _Allowed("remove"):
            self.inner.remove(entries)
        gone = {(key, record_id) for key, record_id in entries}
        assert self.inner.find_exact(keys) == [entry for entry in before if entry not in gone]

    def remove_one(self, key: bytes, record_id: int) -> None:
        self._require("remove_one", True)
        _check_entry(key, record_id)
        before = self.inner.find_exact([key])
        with _Allowed("remove_one"):
            self.inner.remove_one(key, record_id)
        assert self.inner.find_exact([key]) == [entry for entry in before if entry != (key, record_id)]

    def scan(
        self,
        low: bytes,
        high: bytes,
        after: IndexEntry | None,
        limit: int,
        forward: bool = True,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[IndexEntry], bool]:
        self._require("scan", False)
        _check_range("scan", low, high, after, limit)
        assert max_bytes > 0
        max_bytes = self.engine.batch_bytes(max_bytes)
        with _Allowed("scan"):
            entries, more = self.inner.scan(low, high, after, limit, forward, max_bytes)
        self._check_scan("scan", entries, low, high, after, limit, forward)
        reached = _check_bytes("scan", [key for key, _ in entries], max_bytes)
        assert not more or (entries and (reached or len(entries) == limit)), "scan: no limit was reached"
        last = entries[-1] if entries else after
        assert more or not self.inner.scan(low, high, last, 1, forward)[0], "scan: not the end"
        return entries, more

    def _check_scan(
        self,
        method: str,
        entries: list[IndexEntry],
        low: bytes,
        high: bytes,
        after: IndexEntry | None,
        limit: int,
        forward: bool,
    ) -> None:
        assert len(entries) <= limit
        last = after
        for key, record_id in entries:
            _check_entry(key, record_id)
            assert low <= key < high, f"{method}: outside the range"
            if last is not None:
                assert (key, record_id) > last if forward else (key, record_id) < last, f"{method}: out of order"
            last = (key, record_id)
        self._check_unique(entries)

    def scan_fetch(
        self,
        records: RecordStore,
        low: bytes,
        high: bytes,
        after: IndexEntry | None,
        limit: int,
        forward: bool = True,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        self._require("scan_fetch", False)
        _check_range("scan_fetch", low, high, after, limit)
        assert max_bytes > 0
        max_bytes = self.engine.batch_bytes(max_bytes)
        store = self._own_store("scan_fetch", records)
        with _Allowed("scan_fetch"):
            fetched, more = self.inner.scan_fetch(store, low, high, after, limit, forward, max_bytes)
        entries = [(key, record_id) for key, record_id, _, _, _ in fetched]
        self._check_scan("scan_fetch", entries, low, high, after, limit, forward)
        reached = _check_bytes("scan_fetch", [row[2] for row in fetched], max_bytes)
        assert fetched or not more, "scan_fetch: no record, but more to come"
        assert not more or reached or len(fetched) == limit, "scan_fetch: no limit was reached"
        expected, _ = self.inner.scan(low, high, after, len(entries) + (0 if more else 1), forward)
        assert entries == expected, "scan_fetch: an entry has no record, or the end was not reached"
        for _, record_id, document, ts, ttl in fetched:
            assert store.find_record(record_id) == (record_id, document, ts, ttl)
        return fetched, more

    def _own_store(self, method: str, records: RecordStore) -> RecordStore:
        assert isinstance(records, ContractRecordStore), f"{method}: a record store of another engine"
        assert records.engine is self.engine, f"{method}: a record store of another engine"
        assert not records.dropped, f"{method}: {records.ident} was dropped"
        return records.inner

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        self._require("fetch_exact", False)
        assert self.unique, "fetch_exact is for unique sorted data"
        assert type(key) is bytes
        store = self._own_store("fetch_exact", records)
        with _Allowed("fetch_exact"):
            record = self.inner.fetch_exact(store, key)
        entries = self.inner.find_exact([key])
        if record is None:
            assert not entries, "fetch_exact: the entry is there, but not its record"
        else:
            _check_record(record)
            assert entries == [(key, record[0])] and store.find_record(record[0]) == record
        return record

    def find_exact(self, keys: list[bytes]) -> list[IndexEntry]:
        self._require("find_exact", False)
        assert len(set(keys)) == len(keys), "find_exact: a key is given twice"
        with _Allowed("find_exact"):
            entries = self.inner.find_exact(keys)
        place = {key: number for number, key in enumerate(keys)}
        order = [(place[key], record_id) for key, record_id in entries]
        assert order == sorted(set(order)), "find_exact: out of order"
        self._check_unique(entries)
        return entries

    def count_range(self, low: bytes, high: bytes) -> int:
        self._require("count_range", False)
        _check_range("count_range", low, high, None, 1)
        with _Allowed("count_range"):
            found = self.inner.count_range(low, high)
        assert (found > 0) == bool(self.inner.scan(low, high, None, 1)[0])
        return found

    def entry_behind(self, low: bytes, high: bytes, after: IndexEntry | None, entries: int) -> IndexEntry | None:
        self._require("entry_behind", False)
        _check_range("entry_behind", low, high, after, max(entries, 1))
        with _Allowed("entry_behind"):
            found = self.inner.entry_behind(low, high, after, entries)
        assert ([] if found is None else [found]) == self.inner.scan(low, high, after, entries + 1)[0][entries:]
        return found


def _set_dropped(wrapper: ContractRecordStore | ContractSortedData, dropped: bool) -> None:
    wrapper.dropped = dropped


def _check_name(name: str) -> None:
    assert type(name) is str and name, "names are strings, not empty"


def _check_facts(document: bytes, ts: int, ttl: int) -> None:
    assert type(document) is bytes, f"a document is bytes, not {type(document).__name__}"
    assert type(ts) is int, "_ts is whole seconds"
    assert type(ttl) is int and -1 <= ttl <= _MAX_TTL_S, f"ttl {ttl} has no meaning"


def _check_record(record: Record) -> None:
    record_id, document, ts, ttl = record
    assert type(record_id) is int and record_id > 0
    _check_facts(document, ts, ttl)


def _check_bytes(method: str, documents: list[bytes], max_bytes: int) -> bool:
    """Whether the documents together reach `max_bytes`. Asserts that those before the last one do not."""
    size = sum([len(document) for document in documents])
    assert not documents or size - len(documents[-1]) < max_bytes, f"{method}: beyond max_bytes"
    return size >= max_bytes


def _check_due(method: str, records: list[Record], order: list[tuple[int, int]], limit: int, max_bytes: int) -> None:
    """Asserts what holds for due records by either index. order: instant and record id of each record."""
    assert len(records) <= limit
    _check_bytes(method, [record[1] for record in records], max_bytes)
    for record in records:
        _check_record(record)
    assert order == sorted(set(order)), f"{method}: out of order"


def _check_entry(key: bytes, record_id: int) -> None:
    assert type(key) is bytes, f"a key is bytes, not {type(key).__name__}"
    assert type(record_id) is int and 0 < record_id < MAX_RECORD_ID


def _check_range(method: str, low: bytes, high: bytes, after: IndexEntry | None, limit: int) -> None:
    assert type(low) is bytes and type(high) is bytes
    assert limit > 0
    assert after is None or low <= after[0] < high, f"{method}: the position is outside the range"


def _check_seconds(method: str, seconds: list[int], after: int, limit: int) -> None:
    assert len(seconds) <= limit
    last = after
    for second in seconds:
        assert type(second) is int and second > last, f"{method}: out of order"
        last = second
