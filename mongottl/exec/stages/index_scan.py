"""The stages that read indexes. Each combines mongod's FETCH and IXSCAN: entries are read joined with their records.

Between two calls an index may become multikey, or multikey on more paths. From then on the whole filter is tested on
the documents, not only what the bounds leave open, and each record is returned once. Ranges that combine predicates
which different array elements may now satisfy are replaced, from the scan's position on, by the ranges of a new plan:
otherwise a document in which such an array is created while it matches would be missed.
"""

from abc import abstractmethod

from mongottl.catalog.array_paths import ArrayPaths
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.annotated import annotated
from mongottl.document.build import encode, encode_fields
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import Undivided
from mongottl.document.types import Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.bounds import IndexBounds, bounds_of
from mongottl.exec.plan.bounds_text import bounds_details
from mongottl.exec.plan.express import ID_HACK, NO_ID_PLAN
from mongottl.exec.plan.predicates import Filter, conjuncts_of
from mongottl.exec.stages.key_ranges import LARGEST_CHUNK, KeyRangeReader, RangePosition
from mongottl.exec.stages.liveness import unexpired
from mongottl.exec.stages.record_ids import RecordIdSet
from mongottl.exec.stages.stage import (
    BATCH_BYTES,
    MAX_RANGES_PER_CALL,
    PlanNode,
    PlanStage,
    StageCounters,
    check_index,
    entry_before,
    first_batch_size,
    next_batch_size,
    size_after_putting_back,
)
from mongottl.query.match import MatchExpression
from mongottl.query.match.interval import BracketEnd, BracketStart
from mongottl.query.metadata import INDEX_KEY
from mongottl.storage.stores import MAX_RECORD_ID, RANGES_AT_ONCE, FetchedEntry, Record, SortedDataInterface
from mongottl.ttl.policy import NO_TTL


class IndexScanParams:
    """What a scan of one index reads.

    residual: the part of the filter that the bounds do not decide, or None. match: the whole filter, used when the
    index becomes multikey. wanted: records needed for the first batch, 0 for all. trial: True if the scan is not
    counted in the index's `accesses`.
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
        self.collection = collection
        self.bounds = bounds
        self.residual = residual
        self.match = match
        self.forward = forward
        self.wanted = wanted
        self.trial = trial
        # The only partition whose records match (`SortedDataInterface.of_partition`), None if that is not known.
        self.partition: bytes | None = None


class IndexScanNode(PlanNode):
    """An IXSCAN, or another scan of an index's keys. Its plan fields are made when explain shows them.

    added_details: plan fields that follow the bounds.
    """

    def __init__(self, index: CollectionIndex, bounds: IndexBounds, forward: bool, counters: StageCounters) -> None:
        super().__init__("IXSCAN", {}, [], counters)
        self._index = index
        self._bounds = bounds
        self._forward = forward
        self.added_details: dict[str, Value] = {}

    def key_pattern(self) -> Value:
        return encode({part.path.dotted: part.direction for part in self._bounds.components})

    def described(self) -> dict[str, Value]:
        index = self._index
        descriptor = index.descriptor
        components = self._bounds.components
        paths: dict[str, Value] = {
            part.path.dotted: index.arrays.on(part.path.dotted) for part in components if part.named
        }
        details: dict[str, Value] = {"keyPattern": self.key_pattern(), "indexName": index.name}
        if descriptor.collation is not None:
            details["collation"] = descriptor.collation.spec
        details["isMultiKey"] = any(paths.values())
        details["multiKeyPaths"] = {part.path.dotted: paths.get(part.path.dotted, []) for part in components}
        details["isUnique"] = index.has_unique_keys
        details["isSparse"] = descriptor.sparse
        details["isPartial"] = descriptor.partial_filter is not None
        details["indexVersion"] = 2
        details["direction"] = "forward" if self._forward else "backward"
        details.update(bounds_details(self._bounds, self._forward))
        details.update(self.added_details)
        return details


class IndexStage(PlanStage):
    """The base of scans of one index."""

    def __init__(self, params: IndexScanParams) -> None:
        super().__init__()
        bounds = params.bounds
        self._collection = params.collection
        self._bounds = bounds
        self._index: CollectionIndex = bounds.index
        self._residual = params.residual
        self._match = params.match
        self._forward = params.forward
        # -1 if an array has come since the bounds were computed: others may run within the evaluation that plans.
        self._generation: int = params.collection.generation if bounds.arrays is bounds.index.arrays else -1
        self._size = first_batch_size(params.wanted, params.residual is not None)
        self._seen: RecordIdSet | None = RecordIdSet() if bounds.multikey else None
        # Instead of `_seen` where records must not be returned twice even if a write moves them within the index.
        self._given_ids: RecordIdSet | None = None
        self._batch_count = 0  # records of the latest batch
        self._batch_bytes: int = BATCH_BYTES
        self._used = params.trial
        self._seeks = 0
        self._dropped_duplicates = 0
        # Keys that were examined and found outside the bounds.
        self._out_of_bounds = 0
        # Whether to attach to each document the key under which it was found.
        self.keyed = False
        # The array paths for which the ranges are valid, and the scan of wider ranges that replaced this one, or None.
        self._arrays: ArrayPaths = bounds.arrays
        self._rest: IndexScan | None = None
        self._ordered = False
        self._partition = params.partition

    def data(self, op: OperationContext) -> SortedDataInterface:
        """The entries of the index that the operation reads."""
        data = op.recovery_unit.index(self._index)
        return data if self._partition is None else data.of_partition(self._partition)

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
        """The document with the index key as metadata (`returnKey`)."""
        with Undivided():  # the generator of keys is that of all who read the index
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
        started_s = op.service.monotonic_s()
        self._size = min(self._size, op.pace.step_records)
        examined = self.examined
        rest = self._rest
        records = self.read(op) if rest is None else self._read_rest(op, rest)
        if op.was_left:
            self.check_indexes()  # of one that was dropped meanwhile, only a part may have been read
        self._size = next_batch_size(op, self._size, started_s)
        op.pace.records_examined += self.examined - examined
        if records is None:
            return None
        if self._given_ids is not None:
            records = self._given_ids.unseen(records)
        if collection.default_ttl_s != NO_TTL:
            records = unexpired(collection, records, op.now_s)
        self._batch_count = len(records)
        return records

    def check_indexes(self) -> None:
        check_index(self._collection, self._index)

    def set_batch_bytes(self, size: int) -> None:
        self._batch_bytes = size

    @abstractmethod
    def read(self, op: OperationContext) -> list[Record] | None:
        """The next records that match the filter, expired or not; None at the end."""
        raise NotImplementedError

    def _test_of(self, op: OperationContext) -> MatchExpression | None:
        """What to test on records that were read by their ids: those that other servers have changed since their
        entries were read may have other keys by then."""
        return self._match if op.service.settings.is_shared else self._residual

    def _catch_up(self) -> None:
        """Checks the collection's catalog entry after it has changed. QueryPlanKilled (175) if the index is gone."""
        collection = self._collection
        check_index(collection, self._index)
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
        if self._rest is not None:
            self._rest._generation = collection.generation

    @abstractmethod
    def _position(self) -> tuple[bytes, int]:
        """The key and record id after which the scan continues; at its beginning not those of an entry."""
        raise NotImplementedError

    def _wider_bounds(self) -> IndexBounds | None:
        """The filter's bounds in the index as it is now; None if the scan may keep its ranges.

        A scan that provides a sort keeps its ranges if the new ones would not.
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
        """A scan of these bounds after a position."""
        match = self._match
        scan = IndexScan(IndexScanParams(self._collection, bounds, match, match, self._forward, 0, True))
        scan._seen = None  # this scan removes duplicates
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

    def held_bytes(self) -> int:
        return 0 if self._seen is None else self._seen.held_bytes()

    def unseen(self, records: list[Record], seen: RecordIdSet) -> list[Record]:
        """The records whose ids are not in `seen`, which are added to it."""
        fresh = seen.unseen(records)
        self._dropped_duplicates += len(records) - len(fresh)
        return fresh

    def node(self) -> PlanNode:
        if self._index.descriptor.clustered:
            return self._clustered_node()
        scan = self.scan_node()
        fetch_counters = self.counters(scan.counters.returned)
        fetch_counters.extra = {"docsExamined": scan.counters.returned, "alreadyHasObj": 0}
        return PlanNode("FETCH", {}, [scan], fetch_counters, self._residual)

    def scan_node(self) -> IndexScanNode:
        """The IXSCAN below the FETCH."""
        scan_counters = self.counters(self.examined)
        scan_counters.returned = self.examined - self._out_of_bounds - self._dropped_duplicates
        scan_counters.extra = {
            "keysExamined": self.examined,
            "seeks": self._seeks,
            "dupsTested": self.examined if self._seen is not None else 0,
            "dupsDropped": self._dropped_duplicates,
        }
        return IndexScanNode(self._index, self._bounds, self._forward, scan_counters)

    def _clustered_node(self) -> PlanNode:
        """CLUSTERED_IXSCAN: in mongod the ranges of a clustered collection are no index scan."""
        details: dict[str, Value] = {"direction": "forward" if self._forward else "backward"}
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
        return PlanNode("CLUSTERED_IXSCAN", details, [], counters, self._match)


class IndexScan(IndexStage):
    """The records of the entries within ranges of keys, in the order of the keys, forward or backward."""

    def __init__(self, params: IndexScanParams) -> None:
        super().__init__(params)
        self._at = RangePosition(params.bounds.ranges, params.forward)
        self._before = self._at  # the position before the latest batch

    def _position(self) -> tuple[bytes, int]:
        return self._at.key()

    def _begin_behind(self, position: tuple[bytes, int]) -> None:
        self._at.begin_behind(position)

    def read(self, op: OperationContext) -> list[Record] | None:
        at = self._at
        ranges = at.ranges
        range_index = at.index
        last = len(ranges)
        if range_index >= last:
            return None
        self._before = at.copy()
        store = op.recovery_unit.records(self._collection)
        data = self.data(op)
        generation = self._collection.generation
        found: list[FetchedEntry]
        if last - range_index == 1:
            found, more = data.scan_fetch(store, ranges[range_index], at.after, self._size, self._batch_bytes)
            done = 0 if more else 1
        else:
            # Mostly a range is a value that a few documents have: more of them than fill the batch are sent in vain.
            at_once = min(data.ranges_at_once, max(RANGES_AT_ONCE, 2 * self._size))
            part = ranges[range_index : range_index + at_once]
            found, done, more = data.scan_fetch_ranges(store, part, at.after, self._size, self._batch_bytes)
        if self._collection.generation != generation:
            found = []  # others have run: this may be of an index that has got arrays, and is read again
        elif more:
            entry = found[-1]
            at.after = (entry[0], entry[1])
            at.index = range_index + done
        else:
            at.after = None
            at.index = range_index + done
        self._seeks += done + 1 if more else done
        self.examined += len(found)
        if self.keyed:
            found = [(key, rid, self.with_key(document, key), ts, ttl) for key, rid, document, ts, ttl in found]
        match = self._residual
        if match is None:
            records: list[Record] = [row[1:] for row in found]
        else:
            asks = match.asks_processes()
            if asks:
                match.test_ahead([row[2] for row in found])
            records = [row[1:] for row in found if match.matches(row[2])]
            if asks:
                match.end_ahead()
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
        data = self.data(op)
        before = self._before
        while True:
            found, after = entry_before(data, before.rest(), before.after, first)
            if found:
                break
            before.to_next_range()
        self._at.move_to(before)
        self._at.after = after
        self._size = size_after_putting_back(self._batch_count, records)
        seen = self._seen
        if seen is not None:
            seen.discard(records)
        return True

    def gives_current_records(self) -> bool:
        return True


class SkippingScan(IndexScan):
    """An IndexScan that seeks past keys whose trailing components are outside their bounds (`KeyRangeReader`)."""

    def __init__(self, params: IndexScanParams) -> None:
        super().__init__(params)
        self._reader = KeyRangeReader(params.bounds, self._at)

    def read(self, op: OperationContext) -> list[Record] | None:
        at = self._at
        if at.is_at_end():
            return None
        self._before = at.copy()
        reader = self._reader
        records: list[Record] = []
        room_bytes = self._batch_bytes
        with Undivided():
            if self._collection.generation != self._generation:
                return []  # the index has got arrays while others were waited for: the next call catches up first
            store = op.recovery_unit.records(self._collection)
            data = self.data(op)
            for _ in range(MAX_RANGES_PER_CALL):
                if at.is_at_end() or len(records) >= self._size or room_bytes <= 0:
                    break
                before = at.copy()
                entries = reader.read(data, LARGEST_CHUNK, BATCH_BYTES)
                found, taken = store.find_records([rid for _, rid in entries], room_bytes)
                if taken < len(entries):
                    at.move_to(before)
                    at.after = entries[taken - 1]
                for record in found:
                    room_bytes -= len(record[1])
                if self.keyed:
                    keys = {rid: key for key, rid in entries}
                    found = [(rid, self.with_key(document, keys[rid]), ts, ttl) for rid, document, ts, ttl in found]
                records.extend(found)
        self.examined = reader.examined
        self._out_of_bounds = reader.out_of_bounds
        self._seeks = reader.seeks
        match = self._test_of(op)
        if match is not None:
            asks = match.asks_processes()
            if asks:
                match.test_ahead([record[1] for record in records])
            records = [record for record in records if match.matches(record[1])]
            if asks:
                match.end_ahead()
        seen = self._seen
        return records if seen is None else self.unseen(records, seen)


class PointLookup(IndexStage):
    """The records of single keys of a unique index, in the order of the keys.

    id_plan: the name of a lookup by `_id` in explain (`plan.express`).
    """

    def __init__(self, params: IndexScanParams, id_plan: int) -> None:
        super().__init__(params)
        # Each has one key. There may be a million of them, so the keys are not taken from them before they are read.
        self._points = params.bounds.ranges
        self._key_index = 0
        self._id_plan = id_plan

    def _keys(self, start: int, count: int) -> list[bytes]:
        """At most `count` keys from this place on, in the order in which they are read."""
        points = self._points
        if self._forward:
            return [key_range.low for key_range in points[start : start + count]]
        end = max(0, len(points) - start)
        return [key_range.low for key_range in reversed(points[max(0, end - count) : end])]

    def _position(self) -> tuple[bytes, int]:
        last = len(self._points) - 1
        if self._key_index <= last:
            return self._keys(self._key_index, 1)[0], 0 if self._forward else MAX_RECORD_ID
        return self._keys(last, 1)[0], MAX_RECORD_ID if self._forward else 0

    def read(self, op: OperationContext) -> list[Record] | None:
        start = self._key_index
        count = len(self._points)
        if start >= count:
            return None
        store = op.recovery_unit.records(self._collection)
        data = self.data(op)
        records: list[Record]
        if count == 1:
            self._key_index = 1
            key = self._points[0].low
            record = data.fetch_exact(store, key)
            if record is None:
                return []
            records = [record]
            self._seeks += 1
            entries = [(key, record[0])]
            match = self._residual
        else:
            part = self._keys(start, self._size)
            with Undivided():  # the records still have these keys, unless other servers change them
                if self._collection.generation != self._generation:
                    return []
                entries = data.find_exact(part)
                records, taken = store.find_records([rid for _, rid in entries], self._batch_bytes)
            if taken < len(entries):
                # Continue with the key of the first entry whose record was not read.
                part = part[: part.index(entries[taken][0])]
            self._key_index = start + len(part)
            self._seeks += len(part)
            match = self._test_of(op)
        self.examined += len(records)
        if self.keyed:
            of_rid = {rid: key for key, rid in entries}
            records = [(rid, self.with_key(document, of_rid[rid]), ts, ttl) for rid, document, ts, ttl in records]
        if match is not None:
            asks = match.asks_processes()
            if asks:
                match.test_ahead([record[1] for record in records])
            records = [record for record in records if match.matches(record[1])]
            if asks:
                match.end_ahead()
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
    """Runs several scans one after the other; a record that more than one of them finds is returned once."""

    def __init__(self, children: list[PlanStage]) -> None:
        super().__init__()
        self._children = children
        self._child_index = 0
        self._seen = RecordIdSet()
        self._given_ids: RecordIdSet | None = None
        self._taken = 0

    def inputs(self) -> list[PlanStage]:
        return self._children

    def pull(self, op: OperationContext) -> list[Record] | None:
        if self._child_index >= len(self._children):
            return None
        batch = self._children[self._child_index].next_batch(op)
        if batch is None:
            self._child_index += 1
            return [] if self._child_index < len(self._children) else None
        self._taken += len(batch)
        if self._given_ids is not None:
            return self._given_ids.unseen(batch)
        return self._seen.unseen(batch)

    def set_each_once(self) -> None:
        self._given_ids = RecordIdSet()
        super().set_each_once()

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        if self._given_ids is not None or not self._children[self._child_index].put_back(op, records):
            return False
        self._seen.discard(records)
        return True

    def gives_current_records(self) -> bool:
        return all(child.gives_current_records() for child in self._children)

    def held_bytes(self) -> int:
        return self._seen.held_bytes() + super().held_bytes()

    def node(self) -> PlanNode:
        counters = self.counters(self._taken)
        counters.extra = {"dupsTested": self._taken, "dupsDropped": self._taken - self.returned}
        nodes: list[PlanNode] = list_for(len(self._children))
        for child in self._children:
            nodes.append(child.node())
        return PlanNode("OR", {}, nodes, counters)
