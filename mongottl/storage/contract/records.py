"""Record stores whose calls are checked."""

from functools import partial

from mongottl.storage.contract.calls import Allowed, ContractCalls
from mongottl.storage.contract.checks import check_bytes, check_facts, check_record
from mongottl.storage.errors import WriteConflict
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.stores import (
    MAX_RECORD_ID,
    NO_BYTE_LIMIT,
    DueEntry,
    ExpiryIndex,
    NewRecord,
    Record,
    RecordStore,
    due_second,
)


class ContractRecordStore(RecordStore):
    def __init__(self, engine: ContractCalls, inner: RecordStore) -> None:
        self.ident = inner.ident
        self.is_log = inner.is_log
        self.on_pages = inner.on_pages
        self.takes_due = inner.takes_due
        self.inner = inner
        self.engine = engine
        self.dropped = False
        self._highest_id = 0
        # The unit that was open when an id was given last, which keeps it from being another one at the same place.
        self._noted_unit: WriteUnitOfWork | None = None
        self.forget_ids()

    def forget_ids(self) -> None:
        """Ids above those of the records may be given again."""
        last, _ = self.inner.scan(MAX_RECORD_ID, 1, False)
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
            check_facts(document, ts, ttl)
        count, size = self.inner.count(), self.inner.size_bytes()
        with Allowed("insert_records"):
            ids = self.inner.insert_records(records)
        assert len(ids) == len(records)
        for record_id in ids:
            self._note_id("insert_records", record_id)
        assert self.inner.count() == count + len(records)
        assert self.inner.size_bytes() == size + sum([len(record[0]) for record in records])
        stored, _ = self.inner.find_records(ids)
        assert [record[1:] for record in stored] == [tuple(record) for record in records]
        return ids

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        self._require("insert_record", True)
        check_facts(document, ts, ttl)
        count, size = self.inner.count(), self.inner.size_bytes()
        with Allowed("insert_record"):
            record_id = self.inner.insert_record(document, ts, ttl)
        self._note_id("insert_record", record_id)
        assert (self.inner.count(), self.inner.size_bytes()) == (count + 1, size + len(document))
        record = (record_id, document, ts, ttl)
        if self.is_log:
            # A read would have the engine write the record before the commit, which is what is to be tested.
            self.engine.check_logged = partial(self._check_logged, record)
        else:
            assert self.inner.find_record(record_id) == record
        return record_id

    def _note_id(self, method: str, record_id: int) -> None:
        """Asserts that a new id is above all that were given before, but for those whose unit was rolled back."""
        assert record_id > self._highest_id, f"{method}: ids ascend and are never given twice"
        unit = self.engine.unit
        if unit is not self._noted_unit:
            assert unit is not None
            self._noted_unit = unit
            unit.on_rollback(partial(self._set_highest, self._highest_id))
        self._highest_id = record_id

    def _set_highest(self, record_id: int) -> None:
        self._highest_id = record_id

    def _check_logged(self, record: Record) -> None:
        """Asserts after the commit that a record that was added to a log is there."""
        if not self.dropped:
            assert self.inner.find_record(record[0]) == record, "commit: what was added to a log is not there"

    def _check_update(self, method: str, old: list[Record], new: list[Record]) -> bool:
        """Whether the records are stored as `old` says."""
        self._require(method, True)
        assert [record[0] for record in old] == [record[0] for record in new], f"{method}: old and new differ in ids"
        for _, document, ts, ttl in new:
            check_facts(document, ts, ttl)
        return self._is_current(method, old)

    def _is_current(self, method: str, old: list[Record]) -> bool:
        """Whether all records are stored as given; where they are not, the engine must raise WriteConflict."""
        ids = [record[0] for record in old]
        assert len(set(ids)) == len(ids), f"{method}: a record is there twice"
        return self.inner.find_records(ids)[0] == old

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        current = self._check_update("update_records", old, new)
        count, size = self.inner.count(), self.inner.size_bytes()
        with Allowed("update_records", WriteConflict):
            self.inner.update_records(old, new)
        assert current, "update_records: no WriteConflict for a record that is not stored as given"
        growth = sum([len(record[1]) for record in new]) - sum([len(record[1]) for record in old])
        assert (self.inner.count(), self.inner.size_bytes()) == (count, size + growth)
        assert self.inner.find_records([record[0] for record in new])[0] == new

    def update_record(self, old: Record, new: Record) -> None:
        current = self._check_update("update_record", [old], [new])
        count, size = self.inner.count(), self.inner.size_bytes()
        with Allowed("update_record", WriteConflict):
            self.inner.update_record(old, new)
        assert current, "update_record: no WriteConflict for a record that is not stored as given"
        assert (self.inner.count(), self.inner.size_bytes()) == (count, size + len(new[1]) - len(old[1]))
        assert self.inner.find_record(new[0]) == new

    def delete_records(self, records: list[Record]) -> None:
        self._require("delete_records", True)
        if self.is_log:
            self.engine.check_logged = None
        current = self._is_current("delete_records", records)
        count, size = self.inner.count(), self.inner.size_bytes()
        with Allowed("delete_records", WriteConflict):
            self.inner.delete_records(records)
        assert current, "delete_records: no WriteConflict for a record that is not stored as given"
        assert self.inner.count() == count - len(records)
        assert self.inner.size_bytes() == size - sum([len(record[1]) for record in records])
        assert not self.inner.find_records([record[0] for record in records])[0]

    def delete_record(self, record: Record) -> None:
        self._require("delete_record", True)
        if self.is_log:
            self.engine.check_logged = None
        current = self._is_current("delete_record", [record])
        count, size = self.inner.count(), self.inner.size_bytes()
        with Allowed("delete_record", WriteConflict):
            self.inner.delete_record(record)
        assert current, "delete_record: no WriteConflict for a record that is not stored as given"
        assert (self.inner.count(), self.inner.size_bytes()) == (count - 1, size - len(record[1]))
        assert self.inner.find_record(record[0]) is None

    def find_record(self, record_id: int) -> Record | None:
        self._require("find_record", False)
        with Allowed("find_record"):
            record = self.inner.find_record(record_id)
        if record is not None:
            check_record(record)
            assert record[0] == record_id
        return record

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        self._require("find_records", False)
        assert max_bytes > 0
        max_bytes = self.engine.batch_bytes(max_bytes)
        with Allowed("find_records"):
            records, taken = self.inner.find_records(record_ids, max_bytes)
        reached = check_bytes("find_records", [record[1] for record in records], max_bytes)
        assert taken == len(record_ids) or (reached and taken < len(record_ids)), "find_records: ids are left out"
        place = 0
        for record in records:
            check_record(record)
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
        with Allowed("scan"):
            records, more = self.inner.scan(after, limit, forward, max_bytes)
        assert len(records) <= limit
        reached = check_bytes("scan", [record[1] for record in records], max_bytes)
        assert more or not self.inner.scan(records[-1][0] if records else after, 1, forward)[0], "scan: not the end"
        assert not more or (records and (reached or len(records) == limit)), "scan: no limit was reached"
        last = after
        for record in records:
            check_record(record)
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

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        self._require("due_entries", False)
        assert limit > 0
        with Allowed("due_entries"):
            entries = self.inner.due_entries(index, after, until_s, limit)
        assert len(entries) <= limit, "due_entries: too many"
        assert all(second <= until_s for second, _ in entries), "due_entries: a record is not due"
        assert [after, *entries] == sorted({after, *entries}), "due_entries: out of order"
        if len(entries) < limit:
            last = entries[-1] if entries else after
            assert not self.inner.due_entries(index, last, until_s, 1), "due_entries: not the end"
        return entries

    def due(self, index: ExpiryIndex, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        self._require("due", False)
        assert limit > 0 and max_bytes > 0
        max_bytes = self.engine.batch_bytes(max_bytes)
        with Allowed("due"):
            records = self.inner.due(index, until_s, limit, max_bytes)
        assert records or self.inner.count_due(index, until_s) == 0, "due: records are left out"
        assert len(records) <= limit
        check_bytes("due", [record[1] for record in records], max_bytes)
        for record in records:
            check_record(record)
            assert index.holds(record) and due_second(record) <= until_s, "due: a record is not due"
        order = [(due_second(record), record[0]) for record in records]
        assert order == sorted(set(order)), "due: out of order"
        return records

    def take_due(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT
    ) -> list[Record]:
        self._require("take_due", True)
        assert limit > 0 and max_bytes > 0
        max_bytes = self.engine.batch_bytes(max_bytes)
        entries = self.inner.due_entries(index, after, until_s, limit)
        expected, _ = self.inner.find_records([record_id for _, record_id in entries], max_bytes)
        count, size = self.inner.count(), self.inner.size_bytes()
        with Allowed("take_due"):
            records = self.inner.take_due(index, after, until_s, limit, max_bytes)
        check_bytes("take_due", [record[1] for record in records], max_bytes)
        assert records == expected, "take_due: not the first ones that are due"
        taken = sum([len(record[1]) for record in records])
        assert (self.inner.count(), self.inner.size_bytes()) == (count - len(records), size - taken)
        assert not self.inner.find_records([record[0] for record in records])[0], "take_due: a record is still there"
        return records

    def count_due(self, index: ExpiryIndex, until_s: int) -> int:
        self._require("count_due", False)
        with Allowed("count_due"):
            found = self.inner.count_due(index, until_s)
        assert 0 <= found <= self.inner.count()
        assert (found > 0) == bool(self.inner.due(index, until_s, 1))
        return found

    def count_without_due(self, until_s: dict[ExpiryIndex, int]) -> int:
        self._require("count_without_due", False)
        with Allowed("count_without_due"):
            found = self.inner.count_without_due(until_s)
        due = [self.inner.count_due(index, second) for index, second in until_s.items()]
        assert found == self.inner.count() - sum(due), "count_without_due: not the others"
        return found

    def count_due_after(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int
    ) -> tuple[int, DueEntry | None]:
        self._require("count_due_after", False)
        assert limit > 0
        with Allowed("count_due_after"):
            count, last = self.inner.count_due_after(index, after, until_s, limit)
        assert 0 <= count <= limit, "count_due_after: more than the limit"
        if last is not None:
            assert count == limit, "count_due_after: it ends before the limit and before the end"
            assert after < last and last[0] <= until_s, "count_due_after: the last one counted is outside the range"
        assert count <= self.inner.count_due(index, until_s), "count_due_after: counted records are not due"
        return count, last

    def due_seconds(self, index: ExpiryIndex, after_s: int, limit: int) -> list[int]:
        self._require("due_seconds", False)
        assert limit > 0
        with Allowed("due_seconds"):
            seconds = self.inner.due_seconds(index, after_s, limit)
        assert len(seconds) <= limit
        last = after_s
        for second in seconds:
            assert type(second) is int and second > last, "due_seconds: out of order"
            last = second
        return seconds
