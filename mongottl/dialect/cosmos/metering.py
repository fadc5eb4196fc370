"""An operation's access to stored data through a meter of request units (`request_meter`), in the dialect `cosmos`.

MeteringRecoveryUnit ──► the operation's recovery unit
      records, index: views that count what is loaded        write: a unit of work that counts what is committed
"""

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.dialect.cosmos.request_meter import RequestMeter
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.unit.write_unit import WriteUnit
from mongottl.storage.forwarding import ForwardingEntries, ForwardingRecords
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    Record,
    RecordStore,
    SortedDataInterface,
)


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

    def index(self, entry: CollectionIndex) -> SortedDataInterface:
        return MeteredEntries(self._inner.index(entry), entry, self._meter)

    def write(self, collection: Collection) -> WriteUnit:
        unit = self._inner.write(collection)
        unit.meter = self._meter
        return unit


class MeteredRecords(ForwardingRecords):
    """A record store for reads, which are counted. A record that is read by its id alone was counted before."""

    def __init__(self, store: RecordStore, collection: Collection, meter: RequestMeter) -> None:
        super().__init__(store)
        self.collection = collection
        self._meter = meter

    def of_partition(self, key: bytes) -> RecordStore:
        return MeteredRecords(self.inner.of_partition(key), self.collection, self._meter)

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        self._meter.search()
        found, looked_up = self.inner.find_records(record_ids, max_bytes)
        self._meter.load(self.collection, found)
        return found, looked_up

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        self._meter.search()
        found, more = self.inner.scan(after, limit, forward, max_bytes)
        self._meter.load(self.collection, found)
        return found, more


class MeteredEntries(ForwardingEntries):
    """A sorted data for reads; the records that are fetched through it are counted."""

    def __init__(self, data: SortedDataInterface, index: CollectionIndex, meter: RequestMeter) -> None:
        super().__init__(data)
        self._index = index
        self._meter = meter

    def of_partition(self, key: bytes) -> SortedDataInterface:
        return MeteredEntries(self.inner.of_partition(key), self._index, self._meter)

    def scan_fetch(
        self,
        records: RecordStore,
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        assert isinstance(records, MeteredRecords)
        self._meter.search(self.ident)
        rows, more = self.inner.scan_fetch(records.inner, key_range, after, limit, max_bytes)
        self._meter.load(records.collection, [row[1:] for row in rows])
        return rows, more

    def scan_fetch_ranges(
        self,
        records: RecordStore,
        key_ranges: list[KeyRange],
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], int, bool]:
        assert isinstance(records, MeteredRecords)
        rows, done, more = self.inner.scan_fetch_ranges(records.inner, key_ranges, after, limit, max_bytes)
        self._search(done + 1 if more else done)
        self._meter.load(records.collection, [row[1:] for row in rows])
        return rows, done, more

    def first_with_entries(self, key_ranges: list[KeyRange]) -> int:
        place = self.inner.first_with_entries(key_ranges)
        self._search(place + 1 if place >= 0 else len(key_ranges))
        return place

    def _search(self, times: int) -> None:
        for _ in range(times):
            self._meter.search(self.ident)

    def fetch_exact(self, records: RecordStore, key: bytes) -> Record | None:
        assert isinstance(records, MeteredRecords)
        record = self.inner.fetch_exact(records.inner, key)
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

    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        self._meter.search(self.ident)
        return self.inner.scan(key_range, after, limit, max_bytes)

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        self._meter.search(self.ident)
        return self.inner.find_exact(keys)

    def count_range(self, key_range: KeyRange) -> int:
        self._meter.search(self.ident)
        return self.inner.count_range(key_range)

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        self._meter.search(self.ident)
        return self.inner.entry_at(key_range, after, offset)
