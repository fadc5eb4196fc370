"""The stages that read indexes. Each is mongod's FETCH over IXSCAN in one: entries come joined with their records.

Between two calls an index may have become multikey, or on more paths. What was planned to be settled by the ranges is
then tested on the documents after all, and from then on each record is given once. Ranges that combine predicates which
different elements of an array may now satisfy give way to those that a new plan would have, from the scan's position
on: else a document that becomes such an array while it matches would be missed.
"""

from abc import abstractmethod
from typing import Final

from mongottl.catalog.array_paths import ArrayPaths
from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.document.annotated import annotated
from mongottl.document.build import encode, encode_fields
from mongottl.document.keystring import HIGHEST_KEY, LOWEST_KEY
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.bounds import IndexBounds, KeyRange, bounds_of
from mongottl.exec.plan.bounds_text import bounds_details
from mongottl.exec.plan.express import ID_HACK, NO_ID_PLAN
from mongottl.exec.plan.predicates import Filter, conjuncts_of
from mongottl.exec.stages.key_skipper import KeySkipper
from mongottl.exec.stages.liveness import living
from mongottl.exec.stages.record_ids import RecordIdSet
from mongottl.exec.stages.stage import (
    BATCH_BYTES,
    MAX_RANGES_PER_CALL,
    PlanNode,
    PlanStage,
    check_alive,
    entry_before,
    first_batch_size,
    next_batch_size,
    size_after_putting_back,
)
from mongottl.query.match import MatchExpression
from mongottl.query.match.interval import BracketEnd, BracketStart
from mongottl.query.metadata import INDEX_KEY
from mongottl.storage.interface import MAX_RECORD_ID, FetchedEntry, Record, RecordStore, SortedDataInterface
from mongottl.ttl.policy import NO_TTL

# Keys that a scan with bounds of trailing components reads at once, at first and at most.
FIRST_CHUNK: Final = 4
LARGEST_CHUNK: Final = 256


def position_in(
    ranges: list[KeyRange], place: int, after: tuple[bytes, int] | None, forward: bool
) -> tuple[bytes, int]:
    """Where a scan stands that goes on in the range at `place`, behind the entry `after`."""
    if after is not None:
        return after
    if place < len(ranges):
        return ranges[place][0 if forward else 1], 0
    if not ranges:
        return (HIGHEST_KEY if forward else LOWEST_KEY), 0
    return ranges[-1][1 if forward else 0], 0


class IndexStage(PlanStage):
    """Common to scans of one index.

    residual: what the bounds leave open of the filter, or None. match: the whole filter, for when the index has become
    multikey. trial: whether this is no use of the index that counts.
    """

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        residual: MatchExpression | None,
        match: MatchExpression | None,
        forward: bool,
        wanted: int,
        trial: bool,
    ) -> None:
        super().__init__()
        self._collection = collection
        self._bounds = bounds
        self._index: IndexEntry = bounds.index
        self._residual = residual
        self._match = match
        self._forward = forward
        self._generation = collection.generation
        self._size = first_batch_size(wanted, residual is not None)
        self._seen: RecordIdSet | None = RecordIdSet() if bounds.multikey else None
        # In place of `_seen` where records are not to be given twice even if they move within the index.
        self._given_ids: RecordIdSet | None = None
        self._batch_count = 0  # records of the latest batch
        self._batch_bytes: int = BATCH_BYTES
        self._used = trial
        self._seeks = 0
        self._dropped_duplicates = 0
        # Keys that were looked at and found outside the bounds.
        self._passed_over = 0
        # Whether each document is to carry the key under which it was found.
        self.keyed = False
        # The arrays that the ranges allow for, and the scan of wider ranges that took over when there were others.
        self._arrays: ArrayPaths = bounds.arrays
        self._rest: IndexScan | None = None
        self._ordered = False

    def set_keyed(self) -> None:
        self.keyed = True

    def set_ordered(self) -> None:
        """Has the scan keep to the order of the index over its leading points, whatever else changes."""
        self._ordered = True

    def set_each_once(self) -> None:
        if not self._index.descriptor.is_id:
            self._given_ids = RecordIdSet()
            self._seen = None

    def with_key(self, document: bytes, key: bytes) -> bytes:
        """The document with its key as metadata."""
        values = self._index.keys.values_of_key(document, key)
        names = [component.path.dotted for component in self._bounds.components]
        return annotated(document, INDEX_KEY, encode_fields(list(zip(names, values, strict=False))))

    def pull(self, op: OperationContext) -> list[Record] | None:
        collection = self._collection
        if collection.generation != self._generation or collection.dropped:
            self._catch_up()
        if not self._used:
            self._used = True
            self._index.accesses += 1
        started_s = op.service.clock.monotonic_s()
        rest = self._rest
        records = self.read(op) if rest is None else self._read_rest(op, rest)
        self._size = next_batch_size(op, self._size, started_s)
        if records is None:
            return None
        if self._given_ids is not None:
            records = self._given_ids.unseen(records)
        if collection.default_ttl_s != NO_TTL:
            records = living(collection, records, op.now_s)
        self._batch_count = len(records)
        return records

    def set_batch_bytes(self, size: int) -> None:
        self._batch_bytes = size

    @abstractmethod
    def read(self, op: OperationContext) -> list[Record] | None:
        """The next records that pass the filter, living or not."""
        raise NotImplementedError

    def _catch_up(self) -> None:
        """Looks at what has changed in the collection's catalogue entry."""
        collection = self._collection
        check_alive(collection)
        if self._index not in collection.indexes:
            raise CommandError(ErrorCode.QueryPlanKilled, f"index '{self._index.name}' dropped")
        if self._index.arrays is not self._arrays:
            self._arrays = self._index.arrays
            self._residual = self._match
            if self._seen is None and self._given_ids is None:
                self._seen = RecordIdSet()
            wider = self._wider_bounds()
            if wider is not None:
                self._rest = self._scan_behind(
                    wider, self._position() if self._rest is None else self._rest._position()
                )
        self._generation = collection.generation

    @abstractmethod
    def _position(self) -> tuple[bytes, int]:
        """The key and record id behind which the scan goes on, in its direction; of no entry where it begins."""
        raise NotImplementedError

    def _wider_bounds(self) -> IndexBounds | None:
        """The bounds that the filter has in the index as it is now; None where the scan may keep its ranges.

        Scans whose order matters keep theirs if the new ones would give another.
        """
        bounds = self._bounds if self._rest is None else self._rest._bounds
        match = self._match
        if match is None or bounds.limits is not None or bounds.is_part:
            return None
        kind = self._index.descriptor.kind.name
        wider: IndexBounds | None = None
        if kind == "btree":
            wider = bounds_of(self._index, bounds.components, Filter(conjuncts_of(match)), complete=False)
        elif kind != "wildcard":
            return None
        if wider is None:
            wider = IndexBounds(self._index, bounds.components)
        if wider.ranges == bounds.ranges or (self._ordered and wider.points != bounds.points):
            return None
        return wider

    def _scan_behind(self, bounds: IndexBounds, position: tuple[bytes, int]) -> "IndexScan":
        """A scan of what these bounds have behind a position."""
        scan = IndexScan(self._collection, bounds, self._match, self._match, self._forward, 0, True)
        scan._seen = None  # whose scan it is sees to that
        scan._begin_behind(position)
        return scan

    def _read_rest(self, op: OperationContext, rest: "IndexScan") -> list[Record] | None:
        rest._size = self._size
        rest._batch_bytes = self._batch_bytes
        rest.keyed = self.keyed
        examined = rest.examined
        seeks = rest._seeks
        records = rest.read(op)
        self.examined += rest.examined - examined
        self._seeks += rest._seeks - seeks
        if records is None or self._seen is None:
            return records
        return self.unseen(records, self._seen)

    def unseen(self, records: list[Record], seen: RecordIdSet) -> list[Record]:
        """The records that were not given yet; notes that they are now."""
        fresh = seen.unseen(records)
        self._dropped_duplicates += len(records) - len(fresh)
        return fresh

    def node(self) -> PlanNode:
        index = self._index
        descriptor = index.descriptor
        if descriptor.clustered:
            return self._clustered_node()
        pattern: dict[str, Value] = {part.path.dotted: part.direction for part in self._bounds.components}
        paths: dict[str, Value] = {
            part.path.dotted: index.arrays.on(part.path.dotted) for part in self._bounds.components if part.named
        }
        details: dict[str, Value] = {
            "keyPattern": encode(pattern),
            "indexName": index.name,
        }
        if descriptor.collation is not None:
            details["collation"] = descriptor.collation.spec
        details["isMultiKey"] = any(paths.values())
        details["multiKeyPaths"] = {path: paths.get(path, []) for path in pattern}
        details["isUnique"] = self._index.has_unique_keys
        details["isSparse"] = descriptor.sparse
        details["isPartial"] = descriptor.partial_filter is not None
        details["indexVersion"] = 2
        details["direction"] = "forward" if self._forward else "backward"
        details.update(bounds_details(self._bounds, self._forward))
        scan_counters = self.counters(self.examined)
        scan_counters.returned = self.examined - self._passed_over - self._dropped_duplicates
        scan_counters.extra = {
            "keysExamined": self.examined,
            "seeks": self._seeks,
            "dupsTested": self.examined if self._seen is not None else 0,
            "dupsDropped": self._dropped_duplicates,
        }
        scan = PlanNode("IXSCAN", details, [], scan_counters)
        fetch_details: dict[str, Value] = {}
        if self._residual is not None:
            fetch_details["filter"] = self._residual.describe()
        fetch_counters = self.counters(scan_counters.returned)
        fetch_counters.extra = {"docsExamined": scan_counters.returned, "alreadyHasObj": 0}
        return PlanNode("FETCH", fetch_details, [scan], fetch_counters)

    def _clustered_node(self) -> PlanNode:
        """Ranges of a clustered collection, which in mongod has no index beside its documents."""
        details: dict[str, Value] = {}
        if self._match is not None:
            details["filter"] = self._match.describe()
        details["direction"] = "forward" if self._forward else "backward"
        if self._bounds.intervals:
            intervals = self._bounds.intervals[0]
            low = intervals[0].low
            high = intervals[-1].high
            if not isinstance(low, (BracketStart, BracketEnd)):
                details["minRecord"] = low
            if not isinstance(high, (BracketStart, BracketEnd)):
                details["maxRecord"] = high
        counters = self.counters(self.examined)
        counters.extra = {"docsExamined": self.examined}
        return PlanNode("CLUSTERED_IXSCAN", details, [], counters)


class IndexScan(IndexStage):
    """The records of the entries within ranges of keys, in the order of the keys, forward or backward."""

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        residual: MatchExpression | None,
        match: MatchExpression | None,
        forward: bool,
        wanted: int,
        trial: bool,
    ) -> None:
        super().__init__(collection, bounds, residual, match, forward, wanted, trial)
        ranges = bounds.ranges
        self._ranges = ranges if forward else ranges[::-1]
        self._place = 0
        self._after: tuple[bytes, int] | None = None
        # Where the latest batch began.
        self._place_before = 0
        self._before: tuple[bytes, int] | None = None

    def _position(self) -> tuple[bytes, int]:
        return position_in(self._ranges, self._place, self._after, self._forward)

    def _begin_behind(self, position: tuple[bytes, int]) -> None:
        key = position[0]
        ranges = self._ranges
        place = 0
        while place < len(ranges) and (ranges[place][1] <= key if self._forward else ranges[place][0] > key):
            place += 1
        self._place = place
        if place < len(ranges) and (ranges[place][0] <= key if self._forward else ranges[place][1] > key):
            self._after = position

    def read(self, op: OperationContext) -> list[Record] | None:
        ranges = self._ranges
        place = self._place
        last = len(ranges)
        if place >= last:
            return None
        self._place_before = place
        self._before = self._after
        store = op.recovery_unit.records(self._collection)
        data = op.recovery_unit.index(self._index)
        forward = self._forward
        size = self._size
        found: list[FetchedEntry] = []
        visits = 0
        room_bytes = self._batch_bytes
        while place < last and len(found) < size and visits < MAX_RANGES_PER_CALL and room_bytes > 0:
            low, high = ranges[place]
            rows, more = data.scan_fetch(store, low, high, self._after, size - len(found), forward, room_bytes)
            visits += 1
            if found:
                found.extend(rows)
            else:
                found = rows
            if more:
                entry = rows[-1]
                self._after = (entry[0], entry[1])
                break
            place += 1
            self._after = None
            if place < last:
                for row in rows:
                    room_bytes -= len(row[2])
        self._place = place
        self._seeks += visits
        self.examined += len(found)
        if self.keyed:
            found = [(key, rid, self.with_key(document, key), ts, ttl) for key, rid, document, ts, ttl in found]
        match = self._residual
        if match is None:
            records: list[Record] = [row[1:] for row in found]
        else:
            records = [row[1:] for row in found if match.matches(row[2])]
        seen = self._seen
        return records if seen is None else self.unseen(records, seen)

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        if self._given_ids is not None:
            return False
        rest = self._rest
        if rest is not None:
            rest._batch_count = self._batch_count
            rest.put_back(op, records)
            self._size = rest._size
            if self._seen is not None:
                self._seen.discard(records)
            return True
        first = records[0][0]
        place = self._place_before
        after = self._before
        while True:
            low, high = self._ranges[place]
            found, after = entry_before(op.recovery_unit.index(self._index), low, high, after, first, self._forward)
            if found:
                break
            place += 1
            after = None
        self._place = place
        self._after = after
        self._size = size_after_putting_back(self._batch_count, records)
        seen = self._seen
        if seen is not None:
            seen.discard(records)
        return True

    def gives_current_records(self) -> bool:
        return True


class SkippingScan(IndexScan):
    """An IndexScan that leaps over keys whose trailing components are outside their bounds.

    It reads keys in chunks, and the records of those that are within the bounds. Where the next key that may match lies
    behind the chunk, the storage is asked to seek there. The more keys of a chunk are looked at, the larger is the next
    one: where leaps are short it costs as little as reading on.
    """

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        residual: MatchExpression | None,
        match: MatchExpression | None,
        forward: bool,
        wanted: int,
        trial: bool,
    ) -> None:
        super().__init__(collection, bounds, residual, match, forward, wanted, trial)
        self._skipper = KeySkipper(bounds, forward)
        self._skips = True
        self._chunk = FIRST_CHUNK
        # The bounds of what is left of the current range; None before it is begun.
        self._current: tuple[bytes, bytes] | None = None

    def read(self, op: OperationContext) -> list[Record] | None:
        if self._place >= len(self._ranges):
            return None
        store = op.recovery_unit.records(self._collection)
        data = op.recovery_unit.index(self._index)
        records: list[Record] = []
        room_bytes = BATCH_BYTES
        for _ in range(MAX_RANGES_PER_CALL):
            if self._place >= len(self._ranges) or len(records) >= self._size or room_bytes <= 0:
                break
            found = self._step(store, data, room_bytes)
            for record in found:
                room_bytes -= len(record[1])
            records.extend(found)
        match = self._residual
        if match is not None:
            records = [record for record in records if match.matches(record[1])]
        seen = self._seen
        return records if seen is None else self.unseen(records, seen)

    def _position(self) -> tuple[bytes, int]:
        current = self._current
        if current is None or self._after is not None:
            return super()._position()
        return (current[0] if self._forward else current[1]), 0

    def _catch_up(self) -> None:
        super()._catch_up()
        if self._index.arrays is not self._bounds.arrays:
            # Each key may now belong to a document whose other keys have what the trailing components want.
            self._skips = False

    def _step(self, store: RecordStore, data: SortedDataInterface, room_bytes: int) -> list[Record]:
        """The records of one chunk of keys."""
        forward = self._forward
        current = self._current
        if current is None:
            current = self._begun()
            self._current = current
            self._seeks += 1
        low, high = current
        chunk = self._chunk
        entries = data.scan(low, high, self._after, chunk, forward) if low < high else []
        looked_at = 0
        passing: list[tuple[bytes, int]] = []
        bound: bytes | None = None
        for entry in entries:
            key = entry[0]
            if bound is not None and (key < bound) == forward:
                continue
            looked_at += 1
            bound = self._skipper.bound_behind(key) if self._skips else None
            if bound is None:
                passing.append(entry)
            else:
                self._seeks += 1
        self.examined += looked_at
        self._passed_over += looked_at - len(passing)
        records, taken = store.find_records([rid for _, rid in passing], room_bytes)
        if self.keyed:
            keys = {rid: key for key, rid in passing}
            records = [(rid, self.with_key(document, keys[rid]), ts, ttl) for rid, document, ts, ttl in records]
        if taken < len(passing):
            self._after = passing[taken - 1]
            return records
        self._chunk = min(chunk * 2, LARGEST_CHUNK) if looked_at * 2 > chunk else max(chunk // 2, FIRST_CHUNK)
        if bound is not None and (bound >= high if forward else bound <= low):
            self._end_range()
        elif len(entries) < chunk:
            if self._place + 1 == len(self._ranges) and self._is_followed(data):
                self.examined += 1
                self._passed_over += 1
            self._end_range()
        elif bound is not None:
            self._current = (bound, high) if forward else (low, bound)
            self._after = None
        else:
            self._after = entries[-1]
        return records

    def _begun(self) -> tuple[bytes, bytes]:
        """The next range, as far as keys in it can match."""
        low, high = self._ranges[self._place]
        if self._forward:
            low = self._skipper.first_low(self._place, low)
        return low, high

    def _end_range(self) -> None:
        self._place += 1
        self._after = None
        self._current = None

    def _is_followed(self, data: SortedDataInterface) -> bool:
        """Whether there is a key behind the last range: mongod has to look at it in order to see the end."""
        low, high = self._ranges[self._place]
        if self._forward:
            return bool(data.scan(high, HIGHEST_KEY, None, 1))
        return bool(data.scan(LOWEST_KEY, low, None, 1, False))


class PointLookup(IndexStage):
    """The records under single keys of a unique index, in the order of the keys.

    id_plan: under which name explain shows a lookup by `_id` (`plan.express`).
    """

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        residual: MatchExpression | None,
        match: MatchExpression | None,
        forward: bool,
        wanted: int,
        trial: bool,
        id_plan: int,
    ) -> None:
        super().__init__(collection, bounds, residual, match, forward, wanted, trial)
        keys = [low for low, _ in bounds.ranges]
        if not forward:
            keys.reverse()
        self._keys = keys
        self._place = 0
        self._id_plan = id_plan

    def _position(self) -> tuple[bytes, int]:
        if self._place < len(self._keys):
            return self._keys[self._place], 0 if self._forward else MAX_RECORD_ID
        return self._keys[-1], MAX_RECORD_ID if self._forward else 0

    def read(self, op: OperationContext) -> list[Record] | None:
        place = self._place
        keys = self._keys
        if place >= len(keys):
            return None
        store = op.recovery_unit.records(self._collection)
        data = op.recovery_unit.index(self._index)
        records: list[Record]
        if len(keys) == 1:
            self._place = 1
            record = data.fetch_exact(store, keys[0])
            if record is None:
                return []
            records = [record]
            self._seeks += 1
            part = keys
        else:
            part = keys[place : place + self._size]
            entries = data.find_exact(part)
            records, taken = store.find_records([rid for _, rid in entries], self._batch_bytes)
            if taken < len(entries):
                # Go on with the key of the first entry whose record was not read.
                part = part[: part.index(entries[taken][0])]
            self._place = place + len(part)
            self._seeks += len(part)
        self.examined += len(records)
        if self.keyed:
            of_rid = {rid: key for key, rid in data.find_exact(part)}
            records = [(rid, self.with_key(document, of_rid[rid]), ts, ttl) for rid, document, ts, ttl in records]
        match = self._residual
        if match is not None:
            records = [record for record in records if match.matches(record[1])]
        seen = self._seen
        return records if seen is None else self.unseen(records, seen)

    def gives_current_records(self) -> bool:
        return True

    def node(self) -> PlanNode:
        clustered = self._index.descriptor.clustered
        if self._id_plan == NO_ID_PLAN or (self._id_plan == ID_HACK and clustered):
            return super().node()
        counters = self.counters(self.examined)
        counters.extra = {"keysExamined": self.examined, "docsExamined": self.examined}
        if self._id_plan == ID_HACK:
            return PlanNode("IDHACK", {}, [], counters)
        if clustered:
            return PlanNode("EXPRESS_CLUSTERED_IXSCAN", {"keyPattern": "{ _id: 1 }"}, [], counters)
        return PlanNode("EXPRESS_IXSCAN", {"keyPattern": "{ _id: 1 }", "indexName": "_id_"}, [], counters)


class OrStage(PlanStage):
    """One scan after the other; a record that several of them find is given once."""

    def __init__(self, children: list[PlanStage]) -> None:
        super().__init__()
        self._children = children
        self._place = 0
        self._seen = RecordIdSet()
        self._given_ids: RecordIdSet | None = None
        self._taken = 0

    def inputs(self) -> list[PlanStage]:
        return self._children

    def pull(self, op: OperationContext) -> list[Record] | None:
        if self._place >= len(self._children):
            return None
        batch = self._children[self._place].next_batch(op)
        if batch is None:
            self._place += 1
            return [] if self._place < len(self._children) else None
        self._taken += len(batch)
        if self._given_ids is not None:
            return self._given_ids.unseen(batch)
        return self._seen.unseen(batch)

    def set_each_once(self) -> None:
        self._given_ids = RecordIdSet()
        super().set_each_once()

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        if self._given_ids is not None or not self._children[self._place].put_back(op, records):
            return False
        self._seen.discard(records)
        return True

    def gives_current_records(self) -> bool:
        return all(child.gives_current_records() for child in self._children)

    def node(self) -> PlanNode:
        counters = self.counters(self._taken)
        counters.extra = {"dupsTested": self._taken, "dupsDropped": self._taken - self.returned}
        return PlanNode("OR", {}, [child.node() for child in self._children], counters)
