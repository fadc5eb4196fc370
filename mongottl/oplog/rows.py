"""The stored oplog of a data directory: a row for each entry, in the unit of work of the write.

    segments    oplog-0 ─────► oplog-5120 ─────► oplog-9990      named by the number of their first entry
    rows        1 2 3 … 5120   1 2 3 … 4870      1 2 3 …         the row's id and that number make the entry's number

Entries are written to the last segment; when that is full, or would leave out an id, the next one begins in the unit of
work that finds it so, and the oldest segments beyond the bound are dropped whole, which costs no deletion of rows. The
entries of a transaction are all in one segment, however long that becomes.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from mongottl.catalog.catalog import Catalog, new_uuid
from mongottl.catalog.entries import OPLOG_IDENT
from mongottl.document.build import encode
from mongottl.document.types import BinData, Timestamp
from mongottl.document.walk import get_value
from mongottl.oplog.entry import OplogEntry, loaded_form, stored_form, stored_statements
from mongottl.oplog.statements import Statements
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.stores import RecordStore
from mongottl.ttl.policy import NEVER

_ENTRY: Final = "oplog"
# How many segments share the bound.
_SEGMENTS: Final = 8
# Rows that are read at once.
_READ_ROWS: Final = 128
_READ_BYTES: Final = 4 << 20


class _Segment:
    """base: the number of its first entry. last_s, last_i: cluster time of its latest entry; last_ms: wall time."""

    def __init__(self, base: int, store: RecordStore) -> None:
        self.base = base
        self.store = store
        self.last_s: int = 0
        self.last_i: int = 0
        self.last_ms: int = 0

    def note(self, entry: OplogEntry) -> None:
        self.last_s = entry.at_s
        self.last_i = entry.at_i
        self.last_ms = entry.wall_ms


class OplogRows:
    """The rows of an oplog. floor: nothing at or before this cluster time is stored. uuid: of `local.oplog.rs`.

    max_bytes: bound on all rows; it is exceeded for entries that are younger than `retention_ms`. on_segment: called in
    the unit of work that begins a segment, before its first entry: whoever has to read the rows after a crash need then
    read only that segment.
    """

    def __init__(self, catalog: Catalog, started: Timestamp, max_bytes: int, retention_ms: int) -> None:
        self._catalog = catalog
        self._max_bytes = max_bytes
        self._retention_ms = retention_ms
        self._segments: list[_Segment] = []
        self.floor: tuple[int, int] = (started.time, started.inc)
        self.uuid: bytes = new_uuid()
        self.on_segment: Callable[[WriteUnitOfWork], None] | None = None
        # The entries that were read last, and the number of the first of them.
        self._read: list[OplogEntry] = []
        self._read_from: int = 0
        known = catalog.server_entry(_ENTRY)
        if known is not None:
            self._load(known)
        if not self._segments:
            self.floor = (started.time, started.inc)  # an earlier version of the server may have dropped them
            with catalog.engine.unit_of_work() as work:
                self._segments.append(_Segment(0, catalog.engine.create_record_store(f"{OPLOG_IDENT}0", is_log=True)))
                self._put_state()
                work.commit()

    @property
    def first(self) -> int:
        """The number of the oldest entry."""
        return self._segments[0].base

    @property
    def end(self) -> int:
        """The number of the next entry."""
        last = self._segments[-1]
        return last.base + last.store.count()

    @property
    def size_bytes(self) -> int:
        return sum([segment.store.size_bytes() for segment in self._segments])

    def put(self, entry: OplogEntry, work: WriteUnitOfWork, statements: Statements | None = None) -> None:
        """Stores an entry as the next one, inside a unit of work. statements: as of `stored_form`."""
        segment = self._segments[-1]
        is_full = segment.store.size_bytes() * _SEGMENTS >= self._max_bytes
        if is_full and (segment.last_s, segment.last_i) != (entry.at_s, entry.at_i):
            segment = self._begin_segment(entry, work)
        form = stored_form(entry, statements)
        record_id = segment.store.insert_record(form, 0, NEVER)
        if record_id != segment.store.count():
            # The store has left ids out, as it does after a crash. Numbers have no gaps.
            segment.store.delete_record((record_id, form, 0, NEVER))
            segment = self._begin_segment(entry, work)
            segment.store.insert_record(form, 0, NEVER)
        segment.note(entry)

    def entry(self, number: int) -> OplogEntry:
        """The entry of a number from `first` to before `end`."""
        at = number - self._read_from
        if at < 0 or at >= len(self._read):
            segment = self._segment_of(number)
            if at == -1:  # somebody reads backward
                rows, _ = segment.store.scan(number - segment.base + 2, _READ_ROWS, False, _READ_BYTES)
                rows.reverse()
            else:
                rows, _ = segment.store.scan(number - segment.base, _READ_ROWS, True, _READ_BYTES)
            self._read = [loaded_form(row[1]) for row in rows]
            self._read_from = segment.base + rows[0][0] - 1
            at = number - self._read_from
        return self._read[at]

    def number_at(self, at: tuple[int, int]) -> int:
        """The number of the first entry at or after a cluster time; `end` if there is none."""
        end = self.end  # first: an engine may wait there, and what is written meanwhile may be at or after that time
        for segment in self._segments:
            if (segment.last_s, segment.last_i) >= at:
                low = segment.base
                high = segment.base + segment.store.count()
                while low < high:
                    middle = (low + high) // 2
                    entry = self._one(segment, middle)
                    if (entry.at_s, entry.at_i) < at:
                        low = middle + 1
                    else:
                        high = middle
                return low
        return end

    def statements_from(self, number: int) -> Iterator[tuple[Statements, int, Timestamp]]:
        """What the entries from this number on say of retryable writes, with their wall time and cluster time."""
        for segment in self._segments:
            after = max(number - segment.base, 0)
            more = after < segment.store.count()
            while more:
                rows, more = segment.store.scan(after, _READ_ROWS, True, _READ_BYTES)
                for row in rows:
                    after = row[0]
                    found = stored_statements(row[1])
                    if found is not None:
                        yield found

    def _one(self, segment: _Segment, number: int) -> OplogEntry:
        row = segment.store.find_record(number - segment.base + 1)
        assert row is not None
        return loaded_form(row[1])

    def _segment_of(self, number: int) -> _Segment:
        bases = [segment.base for segment in self._segments]
        return self._segments[bisect_right(bases, number) - 1]

    def _load(self, known: bytes) -> None:
        floor = get_value(known, "floor")
        uuid = get_value(known, "uuid")
        assert isinstance(floor, Timestamp) and isinstance(uuid, BinData)
        self.floor = (floor.time, floor.inc)
        self.uuid = uuid.data
        for ident in self._catalog.engine.idents():
            if ident.startswith(OPLOG_IDENT):
                base = int(ident[len(OPLOG_IDENT) :])
                self._segments.append(_Segment(base, self._catalog.engine.record_store(ident)))
        self._segments.sort(key=_base_of)
        for segment in self._segments:
            count = segment.store.count()
            if count:
                segment.note(self._one(segment, segment.base + count - 1))

    def _begin_segment(self, entry: OplogEntry, work: WriteUnitOfWork) -> _Segment:
        """A new last segment; drops the first ones beyond the bound."""
        engine = self._catalog.engine
        work.on_rollback(partial(self._restore, self._segments, self.floor))
        base = self.end
        kept = self._segments
        if kept[-1].base == base:
            # It has no entry, but has left out an id. The new one takes its name.
            engine.drop_ident(kept[-1].store.ident)
            kept = kept[:-1]
        segments = [*kept, _Segment(base, engine.create_record_store(f"{OPLOG_IDENT}{base}", is_log=True))]
        size_bytes = sum([segment.store.size_bytes() for segment in kept])
        while len(segments) > 1 and size_bytes >= self._max_bytes:
            oldest = segments[0]
            if entry.wall_ms - oldest.last_ms < self._retention_ms:
                break
            size_bytes -= oldest.store.size_bytes()
            self.floor = (oldest.last_s, oldest.last_i)
            engine.drop_ident(oldest.store.ident)
            del segments[0]
        self._segments = segments
        self._put_state()
        if self.on_segment is not None:
            self.on_segment(work)
        return segments[-1]

    def _restore(self, segments: list[_Segment], floor: tuple[int, int]) -> None:
        self._segments = segments
        self.floor = floor

    def _put_state(self) -> None:
        state = encode({"floor": Timestamp(self.floor[0], self.floor[1]), "uuid": BinData(self.uuid, 4)})
        self._catalog.put_server_entry(_ENTRY, state)


def _base_of(segment: _Segment) -> int:
    return segment.base
