"""Sorted data whose calls are checked."""

from mongottl.storage.contract.calls import Allowed, ContractCalls
from mongottl.storage.contract.checks import (
    check_bytes,
    check_entry,
    check_range,
    check_record,
)
from mongottl.storage.contract.records import ContractRecordStore
from mongottl.storage.errors import DuplicateKey
from mongottl.storage.stores import (
    NO_BYTE_LIMIT,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    Record,
    RecordStore,
    SortedDataInterface,
)


class ContractSortedData(SortedDataInterface):
    def __init__(self, engine: ContractCalls, inner: SortedDataInterface) -> None:
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

    def insert(self, entries: list[KeyEntry]) -> None:
        self._require("insert", True)
        for key, record_id in entries:
            check_entry(key, record_id)
        keys = list(dict.fromkeys([key for key, _ in entries]))
        before = self.inner.find_exact(keys)
        try:
            with Allowed("insert", DuplicateKey):
                self.inner.insert(entries)
        except DuplicateKey as error:
            self._check_duplicate(error, entries, before)
            assert self.inner.find_exact(keys) == before, "insert: something of a failed call remains"
            raise
        after = self.inner.find_exact(keys)
        assert set(after) == set(before) | {(key, record_id) for key, record_id in entries}
        self._check_unique(after)

    def _check_duplicate(self, error: DuplicateKey, entries: list[KeyEntry], before: list[KeyEntry]) -> None:
        assert self.unique, "insert: DuplicateKey from sorted data that is not unique"
        key, record_id = entries[error.position]
        assert error.key == key and error.existing_record_id != record_id
        holders = before + entries[: error.position]
        assert (key, error.existing_record_id) in holders, "insert: no such holder"

    def _check_unique(self, entries: list[KeyEntry]) -> None:
        if self.unique:
            keys = [key for key, _ in entries]
            assert len(set(keys)) == len(keys), "a unique key is there twice"

    def insert_one(self, key: bytes, record_id: int) -> None:
        self._require("insert_one", True)
        check_entry(key, record_id)
        before = self.inner.find_exact([key])
        try:
            with Allowed("insert_one", DuplicateKey):
                self.inner.insert_one(key, record_id)
        except DuplicateKey as error:
            self._check_duplicate(error, [(key, record_id)], before)
            assert self.inner.find_exact([key]) == before, "insert_one: something of a failed call remains"
            raise
        after = self.inner.find_exact([key])
        assert set(after) == {*before, (key, record_id)}
        self._check_unique(after)

    def remove(self, entries: list[KeyEntry]) -> None:
        self._require("remove", True)
        for key, record_id in entries:
            check_entry(key, record_id)
        keys = list(dict.fromkeys([key for key, _ in entries]))
        before = self.inner.find_exact(keys)
        with Allowed("remove"):
            self.inner.remove(entries)
        gone = {(key, record_id) for key, record_id in entries}
        assert self.inner.find_exact(keys) == [entry for entry in before if entry not in gone]

    def remove_one(self, key: bytes, record_id: int) -> None:
        self._require("remove_one", True)
        check_entry(key, record_id)
        before = self.inner.find_exact([key])
        with Allowed("remove_one"):
            self.inner.remove_one(key, record_id)
        assert self.inner.find_exact([key]) == [entry for entry in before if entry != (key, record_id)]

    def scan(
        self, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[KeyEntry], bool]:
        max_bytes = self._bytes_of_range("scan", key_range, after, limit, max_bytes)
        with Allowed("scan"):
            entries, more = self.inner.scan(key_range, after, limit, max_bytes)
        self._check_scan("scan", entries, key_range, after, limit)
        reached = check_bytes("scan", [key for key, _ in entries], max_bytes)
        assert not more or (entries and (reached or len(entries) == limit)), "scan: no limit was reached"
        last = entries[-1] if entries else after
        assert more or not self.inner.scan(key_range, last, 1)[0], "scan: not the end"
        return entries, more

    def _bytes_of_range(
        self, method: str, key_range: KeyRange, after: KeyEntry | None, limit: int, max_bytes: int
    ) -> int:
        """Checks what a range is asked for with; the bytes that the engine within is given."""
        self._require(method, False)
        check_range(method, key_range, after, limit)
        assert max_bytes > 0
        return self.engine.batch_bytes(max_bytes)

    def _check_scan(
        self, method: str, entries: list[KeyEntry], key_range: KeyRange, after: KeyEntry | None, limit: int
    ) -> None:
        assert len(entries) <= limit
        last = after
        for entry in entries:
            check_entry(*entry)
            assert key_range.low <= entry[0] < key_range.high, f"{method}: outside the range"
            if last is not None:
                assert entry > last if key_range.forward else entry < last, f"{method}: out of order"
            last = entry
        self._check_unique(entries)

    def scan_fetch(
        self,
        records: RecordStore,
        key_range: KeyRange,
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], bool]:
        max_bytes = self._bytes_of_range("scan_fetch", key_range, after, limit, max_bytes)
        store = self._own_store("scan_fetch", records)
        with Allowed("scan_fetch"):
            fetched, more = self.inner.scan_fetch(store, key_range, after, limit, max_bytes)
        entries = [(key, record_id) for key, record_id, _, _, _ in fetched]
        self._check_scan("scan_fetch", entries, key_range, after, limit)
        reached = check_bytes("scan_fetch", [row[2] for row in fetched], max_bytes)
        assert fetched or not more, "scan_fetch: no record, but more to come"
        assert not more or reached or len(fetched) == limit, "scan_fetch: no limit was reached"
        expected, _ = self.inner.scan(key_range, after, len(entries) + (0 if more else 1))
        assert entries == expected, "scan_fetch: an entry has no record, or the end was not reached"
        for _, record_id, document, ts, ttl in fetched:
            assert store.find_record(record_id) == (record_id, document, ts, ttl)
        return fetched, more

    @property
    def ranges_at_once(self) -> int:
        return self.inner.ranges_at_once

    def scan_fetch_ranges(
        self,
        records: RecordStore,
        key_ranges: list[KeyRange],
        after: KeyEntry | None,
        limit: int,
        max_bytes: int = NO_BYTE_LIMIT,
    ) -> tuple[list[FetchedEntry], int, bool]:
        method = "scan_fetch_ranges"
        assert 1 <= len(key_ranges) <= self.ranges_at_once, f"{method}: too many ranges, or none"
        assert len({key_range.forward for key_range in key_ranges}) == 1, f"{method}: two directions"
        for number, key_range in enumerate(key_ranges):
            given = self._bytes_of_range(method, key_range, None if number else after, limit, max_bytes)
        max_bytes = given
        store = self._own_store(method, records)
        with Allowed(method):
            fetched, done, more = self.inner.scan_fetch_ranges(store, key_ranges, after, limit, max_bytes)
        reached = check_bytes(method, [row[2] for row in fetched], max_bytes) or len(fetched) == limit
        assert 0 <= done <= len(key_ranges) - (1 if more else 0), f"{method}: more ranges than there are"
        assert fetched or not more, f"{method}: no record, but more to come"
        assert reached or done == len(key_ranges), f"{method}: no limit was reached"
        expected: list[FetchedEntry] = []
        for number, key_range in enumerate(key_ranges[: done + (1 if more else 0)]):
            left = len(fetched) - len(expected) if number == done else limit + 1
            begin = None if number else after
            expected += self.inner.scan_fetch(store, key_range, begin, left)[0]
        assert fetched == expected, f"{method}: other entries than those of the ranges"
        return fetched, done, more

    def first_with_entries(self, key_ranges: list[KeyRange]) -> int:
        self._require("first_with_entries", False)
        for key_range in key_ranges:
            check_range("first_with_entries", key_range, None, 1)
        with Allowed("first_with_entries"):
            place = self.inner.first_with_entries(key_ranges)
        filled = [bool(self.inner.scan(key_range, None, 1)[0]) for key_range in key_ranges]
        assert place == (filled.index(True) if True in filled else -1)
        return place

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
        with Allowed("fetch_exact"):
            record = self.inner.fetch_exact(store, key)
        entries = self.inner.find_exact([key])
        if record is None:
            assert not entries, "fetch_exact: the entry is there, but not its record"
        else:
            check_record(record)
            assert entries == [(key, record[0])] and store.find_record(record[0]) == record
        return record

    def find_exact(self, keys: list[bytes]) -> list[KeyEntry]:
        self._require("find_exact", False)
        assert len(set(keys)) == len(keys), "find_exact: a key is given twice"
        with Allowed("find_exact"):
            entries = self.inner.find_exact(keys)
        place = {key: number for number, key in enumerate(keys)}
        order = [(place[key], record_id) for key, record_id in entries]
        assert order == sorted(set(order)), "find_exact: out of order"
        self._check_unique(entries)
        return entries

    def count_range(self, key_range: KeyRange) -> int:
        self._require("count_range", False)
        check_range("count_range", key_range, None, 1)
        with Allowed("count_range"):
            found = self.inner.count_range(key_range)
        assert (found > 0) == bool(self.inner.scan(key_range, None, 1)[0])
        return found

    def entry_at(self, key_range: KeyRange, after: KeyEntry | None, offset: int) -> KeyEntry | None:
        self._require("entry_at", False)
        assert key_range.forward, "entry_at: a backward range"
        check_range("entry_at", key_range, after, max(offset, 1))
        with Allowed("entry_at"):
            found = self.inner.entry_at(key_range, after, offset)
        assert ([] if found is None else [found]) == self.inner.scan(key_range, after, offset + 1)[0][offset:]
        return found
