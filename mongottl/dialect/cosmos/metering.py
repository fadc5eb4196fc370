"""An operation's access to stored data through a meter of request units (`request_meter`), in the dialect `cosmos`.

MeteringRecoveryUnit ──► the operation's recovery unit
      records, index: views that count what is loaded        write: a unit of work that counts what is committed
"""

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.dialect.cosmos.request_meter import RequestMeter
from mongottl.exec.operation.recovery_unit import RecoveryUnit
from mongottl.exec.operation.service import ServiceContext
from mongottl.exec.operation.write_unit import WriteUnit
from mongottl.storage.interface import (
    NO_BYTE_LIMIT,
    DueEntry,
    FetchedEntry,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
)
from mongottl.storage.interface import IndexEntry as Entry


class MeteringRecoveryUnit(RecoveryUnit):
    """All reads and writes of an operation, counted by its meter."""

    def __init__(self, service: ServiceContext, inner: RecoveryUnit, meter: RequestMeter) -> None:
        super().__init__(service)
        self._inner = inner
        self._meter = meter
        self.retryable_write = inner.retryable_write

    def records(self, collection: Collection) -> RecordStore:
        return MeteredRecords(self._inner.records(collection), collection, self._meter)

    def known_records(self, collection: Collection) -> RecordStore:
        return self._inner.records(collection)

    def index(self, entry: IndexEntry) -> SortedDataInterface:
        return MeteredEntries(self._inner.index(entry), entry, self._meter)

    def write(self, collection: Collection) -> WriteUnit:
        unit = self._inner.write(collection)
        unit.meter = self._meter
        return unit


class MeteredRecords(RecordStore):
    """A record store for reads, which are counted. A record that is read by its id alone was counted before."""

    def __init__(self, store: RecordStore, collection: Collection, meter: RequestMeter) -> None:
        self.ident = store.ident
        self.inner_records = store
        self.collection = collection
        self._meter = meter

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        self._meter.search()
        found, looked_up = self.inner_records.find_records(record_ids, max_bytes)
        self._meter.load(self.collection, found)
        return found, looked_up

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        self._meter.search()
        found, more = self.inner_records.scan(after, limit, forward, max_bytes)
        self._meter.load(self.collection, found)
        return found, more

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        return self.inner_records.insert_records(records)

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        return self.inner_records.insert_record(document, ts, ttl)

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self.inner_records.update_records(old, new)

    def update_record(self, old: Record, new: Record) -> None:
        self.inner_records.update_record(old, new)

    def delete_records(self, records: list[Record]) -> None:
        self.inner_records.delete_records(records)

    def delete_record(self, record: Record) -> None:
        self.inner_records.delete_record(record)

    def find_record(self, record_id: int) -> Record | None:
        return self.inner_records.find_record(record_id)

    def count(self) -> int:
        return self.inner_records.count()

    def size_bytes(self) -> int:
        return self.inner_records.size_bytes()

    def due_by_default(self, max_ts: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        return self.inner_records.due_by_default(max_ts, limit, max_bytes)

    def due_by_own(self, now_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        return self.inner_records.due_by_own(now_s, limit, max_bytes)

    def count_due_by_default(self, max_ts: int) -> int:
        return self.inner_records.count_due_by_default(max_ts)

    def count_due_by_own(self, now_s: int) -> int:
        return self.inner_records.count_due_by_own(now_s)

    def default_seconds(self, after_ts: int, limit: int) -> list[int]:
        return self.inner_records.default_seconds(after_ts, limit)

    def own_seconds(self, after_due: int, limit: int) -> list[int]:
        return self.inner_records.own_seconds(after_due, limit)

    def count_default_behind(self, after: DueEntry, max_ts: int, limit: int) -> tuple[int, DueEntry | None]:
        return self.inner_records.count_default_behind(after, max_ts, limit)

    def count_own_behind(self, after: DueEntry, max_due: int, limit: int) -> tuple[int, DueEntry | None]:
        return self.inner_records.count_own_behind(after, max_due, limit)


class MeteredEntries(SortedDataInterface):
    """A sorted data for reads; the records that are fetched through it are counted."""

    def __init__(self, data: SortedDataInterface, index: IndexEntry, meter: RequestMeter) -> None:
        self.ident = data.ident
        self.unique = data.unique
        self._data = data
        self._index = index
        self._meter = meter

    def scan_fetch(
        self,
        records: RecordStore,
        low: bytes,
        high: bytes,
        after: Entry | None,
        limit: int,
        forward: bool = True,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        assert isinstance(records, MeteredRecords)
        self._meter.search(self.ident)
        rows, more = self._data.scan_fetch(records.inner_records, low, high, after, limit, forward, max_bytes)
        self._meter.load(records.collection, [row[1:] for row in rows])
        return rows, more

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        assert isinstance(records, MeteredRecords)
        record = self._data.fetch_exact(records.inner_records, key)
        collection = records.collection
        if self._index is collection.id_index or self._index is collection.partition_index:
            if record is not None:
                self._meter.point_read(collection, record)
            return record
        # An equality on another path is a query there, whether or not its index is unique.
        self._meter.search(self.ident)
        if record is not None:
            self._meter.load(collection, [record])
        return record

    def insert(self, entries: list[Entry]) -> None:
        self._data.insert(entries)

    def insert_one(self, key: bytes, record_id: int) -> None:
        self._data.insert_one(key, record_id)

    def remove(self, entries: list[Entry]) -> None:
        self._data.remove(entries)

    def remove_one(self, key: bytes, record_id: int) -> None:
        self._data.remove_one(key, record_id)

    def scan(
        self,
        low: bytes,
        high: bytes,
        after: Entry | None,
        limit: int,
        forward: bool = True,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[Entry], bool]:
        self._meter.search(self.ident)
        return self._data.scan(low, high, after, limit, forward, max_bytes)

    def find_exact(self, keys: list[bytes]) -> list[Entry]:
        self._meter.search(self.ident)
        return self._data.find_exact(keys)

    def count_range(self, low: bytes, high: bytes) -> int:
        self._meter.search(self.ident)
        return self._data.count_range(low, high)

    def entry_behind(self, low: bytes, high: bytes, after: Entry | None, entries: int) -> Entry | None:
        self._meter.search(self.ident)
        return self._data.entry_behind(low, high, after, entries)
