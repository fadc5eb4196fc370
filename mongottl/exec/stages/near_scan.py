"""GEO_NEAR_2DSPHERE and GEO_NEAR_2D: documents in the order of their distance from a point.

    ring 1 ring 2 ring 3        The keys of the next ring's cells are read, their documents' distances computed.
    o------|------|-----        Documents within the rings so far are returned in order; others wait for their ring.

The first ring is just wide enough to contain keys; a ring with few results is followed by a wider one. A document with
several keys or several locations is returned once, by its nearest location. The heap of waiting documents holds record
ids and distances; a record is read again when it is returned. It is then left out if it was deleted, has expired or no
longer matches, and put back into the heap if its distance has changed.
"""

import math
from heapq import heappop, heappush
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.annotated import annotated
from mongottl.document.path import FieldPath, values_at
from mongottl.document.types import Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.bounds import ComponentRange
from mongottl.exec.stages.liveness import unexpired
from mongottl.exec.stages.record_ids import RecordIdSet
from mongottl.exec.stages.stage import (
    BATCH,
    BATCH_BYTES,
    FIRST_BATCH,
    PlanNode,
    PlanStage,
    check_index,
    next_batch_size,
)
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.geometry.geojson import GeometryError, stored_geometry
from mongottl.geometry.nearness import Nearness, joined, without
from mongottl.geometry.region import CellRange
from mongottl.query.match import MatchExpression
from mongottl.query.metadata import GEO_NEAR_DISTANCE, GEO_NEAR_POINT
from mongottl.storage.stores import FetchedEntry, KeyRange, Record

# If a ring has fewer than FEW results, the next is made wider; if more than MANY, narrower.
FEW: Final = 300
MANY: Final = 600
# Key prefixes (the components before the geo field) for which the cells of a ring are looked up; with more of them the
# whole index is read as one ring.
MAX_PREFIXES: Final = 100
# Bytes of documents that are read again in one call; the last document may exceed it.
EMITTED_BYTES: Final = 4 << 20
# The width of the first ring is the maximum distance, halved at most this number of times.
MAX_HALVINGS: Final = 40
# The narrowest first ring, in the unit of the distances: a width of 0 would never reach a `$maxDistance` of 5e-324.
MIN_WIDTH: Final = 1e-12


class KeyedNearness:
    """How an index encodes cells: ranges of cells as ranges of its keys.

    prefixes: the encoded components before the geo field; empty if they are not known.
    whole: whether the index cannot be read by cells, so that all of it is one ring.
    """

    def __init__(self, nearness: Nearness, prefixes: list[bytes]) -> None:
        self.nearness = nearness
        self.prefixes = prefixes
        self.whole = not 1 <= len(prefixes) <= MAX_PREFIXES

    def component_range(self, low: int, high: int) -> ComponentRange:
        """The keys of the geo component within these cells, ends included."""
        raise NotImplementedError


# A document that waits for its ring: its distance, the record id (the older first of those equally far), the document's
# size, and the location that the distance was measured to, if requested.
_Found = tuple[float, int, int, Value]
# Approximate memory of one.
_FOUND_BYTES: Final = 200


class NearStage(PlanStage):
    """Documents in the order of their distance.

    match: the whole filter, None for `$near` alone. path: the geo field. metadata: which of distance and point to
    attach to the documents. nearest, farthest: `minDistance` and `maxDistance`, inclusive.
    """

    def __init__(
        self,
        collection: Collection,
        index: CollectionIndex,
        places: KeyedNearness,
        path: FieldPath,
        nearest: float,
        farthest: float,
        match: MatchExpression | None,
        metadata: set[str],
        stage: str,
    ) -> None:
        super().__init__()
        self._collection = collection
        self._index = index
        self._places = places
        self._path = path
        self._nearest = nearest
        self._farthest = farthest
        self._match = match
        self._metadata = metadata
        self._stage = stage
        self._used = False
        self._size = FIRST_BATCH
        self._inner = nearest  # the distances at which the current ring begins and ends
        self._outer = nearest
        self._width = 0.0
        self._last = False
        self._read: list[CellRange] = []
        self._ranges: list[KeyRange] = []
        self._range_index = 0
        self._after: tuple[bytes, int] | None = None
        self._seen = RecordIdSet()
        # `writes` of the collection when the first document was measured.
        self._writes: int = collection.writes
        self._waiting: list[_Found] = []  # a heap
        self._ring_is_read = False  # then the documents within it are returned
        self._measured_documents = 0
        self._ring_results = 0
        self._rings: list[Value] = []
        self._ended = nearest > min(farthest, places.nearness.farthest)

    def check_indexes(self) -> None:
        check_index(self._collection, self._index)

    def pull(self, op: OperationContext) -> list[Record] | None:
        collection = self._collection
        check_index(collection, self._index)
        if self._ended:
            return None
        if self._ring_is_read:
            return self._emit(op)
        if not self._used:
            self._used = True
            self._index.accesses += 1
            self._width = self._first_width(op.recovery_unit)
            self._next_ring()
        elif self._range_index < len(self._ranges):
            self._read_some(op)
            if op.was_left:
                check_index(collection, self._index)
        else:
            self._ring_is_read = True
        return []

    def _emit(self, op: OperationContext) -> list[Record]:
        """The next documents within the ring; after the last of them the next ring begins."""
        waiting = self._waiting
        part: list[_Found] = []
        room_bytes: int = EMITTED_BYTES
        while room_bytes > 0 and len(part) < BATCH and self._is_next_within():
            found = heappop(waiting)
            part.append(found)
            room_bytes -= found[2]
        records = self._read_again(op, part)
        self._ring_results += len(records)
        if not self._is_next_within():
            self._close_ring()
        return records

    def _is_next_within(self) -> bool:
        waiting = self._waiting
        return len(waiting) > 0 and (self._last or waiting[0][0] <= self._outer)

    def _read_again(self, op: OperationContext, part: list[_Found]) -> list[Record]:
        """Reads the records again; those that are not expired, still match and have the measured distance, in order.

        Documents whose distance has changed are put back into the heap.
        """
        collection = self._collection
        stored: dict[int, Record] = {}
        read, taken = op.recovery_unit.records(collection).find_records([found[1] for found in part], BATCH_BYTES)
        for found in part[taken:]:  # documents that have grown since
            heappush(self._waiting, found)
        for record in unexpired(collection, read, op.now_s):
            stored[record[0]] = record
        match = self._match
        records: list[Record] = []
        for found in part[:taken]:
            again = stored.get(found[1])
            if again is None:
                continue
            if self._writes != collection.writes or op.service.settings.is_shared:
                if match is not None and not match.matches(again[1]):
                    continue
                distance, point = self._measured(again[1])
                if distance != found[0]:
                    self._wait(again, distance, point)
                    continue
            records.append(self._annotated(again, found[0], found[3]))
        return records

    def _wait(self, record: Record, distance: float, point: Value) -> None:
        """Adds a document to the heap of those that wait for their ring, if its distance is within the limits."""
        if self._nearest <= distance <= self._farthest and distance < math.inf:
            kept = point if GEO_NEAR_POINT in self._metadata else None
            heappush(self._waiting, (distance, record[0], len(record[1]), kept))

    def _annotated(self, record: Record, distance: float, point: Value) -> Record:
        if not self._metadata:
            return record
        record_id, document, ts_s, ttl_s = record
        if GEO_NEAR_DISTANCE in self._metadata:
            document = annotated(document, GEO_NEAR_DISTANCE, distance / self._places.nearness.unit)
        if GEO_NEAR_POINT in self._metadata:
            document = annotated(document, GEO_NEAR_POINT, point)
        return record_id, document, ts_s, ttl_s

    def _reach(self) -> float:
        return min(self._farthest, self._places.nearness.farthest)

    def _first_width(self, unit: RecoveryUnit) -> float:
        """The width of the first ring: found by bisection, just wide enough to contain a key."""
        whole = self._reach() - self._nearest
        if self._places.whole or whole <= 0:
            return max(whole, 0.0)
        few, many = 0, MAX_HALVINGS  # halvings that reach a key, and those that do not
        while few + 1 < many:
            halvings = (few + many) // 2
            if self._has_keys(unit, self._nearest + whole * 0.5**halvings):
                few = halvings
            else:
                many = halvings
        return max(whole * 0.5 ** max(few - 1, 0), MIN_WIDTH)

    def _has_keys(self, unit: RecoveryUnit, reach: float) -> bool:
        ranges = self._key_ranges(self._places.nearness.ranges(reach))
        return unit.index(self._index).first_with_entries(ranges) >= 0

    def _key_ranges(self, cells: list[CellRange]) -> list[KeyRange]:
        places = self._places
        parts = [places.component_range(low, high) for low, high in cells]
        return [KeyRange(prefix + low, prefix + high) for prefix in places.prefixes for low, high in parts]

    def _next_ring(self) -> None:
        places = self._places
        reach = self._reach()
        self._inner = self._outer
        self._outer = min(self._inner + self._width, reach)
        self._last = places.whole or self._outer >= reach
        self._ring_results = 0
        self._range_index = 0
        self._after = None
        if places.whole:
            self._ranges = [KeyRange(b"", b"\xff")]
        else:
            cells = places.nearness.ranges(self._outer)
            self._ranges = self._key_ranges(without(cells, self._read))
            self._read = joined(self._read, cells)

    def _read_some(self, op: OperationContext) -> None:
        unit = op.recovery_unit
        started_s = op.service.monotonic_s()
        data = unit.index(self._index)
        part = self._ranges[self._range_index : self._range_index + data.ranges_at_once]
        rows, done, more = data.scan_fetch_ranges(
            unit.records(self._collection), part, self._after, self._size, BATCH_BYTES
        )
        self.examined += len(rows)
        self._range_index += done
        self._after = (rows[-1][0], rows[-1][1]) if more else None
        self._take(op, rows)
        self._size = next_batch_size(op, self._size, started_s)

    def _take(self, op: OperationContext, rows: list[FetchedEntry]) -> None:
        fresh: list[Record] = []
        for row in rows:
            if self._seen.add(row[1]):
                fresh.append(row[1:])
        self._measured_documents += len(fresh)
        match = self._match
        for record in unexpired(self._collection, fresh, op.now_s):
            if match is not None and not match.matches(record[1]):
                continue
            distance, point = self._measured(record[1])
            self._wait(record, distance, point)

    def _measured(self, document: bytes) -> tuple[float, Value]:
        """The distance of a document's nearest location, and that location; infinity if it has none."""
        nearness = self._places.nearness
        best = math.inf
        nearest: Value = None
        for value in _places_at(document, self._path):
            try:
                distance = nearness.distance(stored_geometry(value))
            except GeometryError:
                continue
            if distance < best:
                best = distance
                nearest = value
        return best, nearest

    def _close_ring(self) -> None:
        self._ring_is_read = False
        self._rings.append(
            {
                "minDistance": self._inner,
                "maxDistance": self._outer,
                "maxInclusive": self._last,
                "nBuffered": self._ring_results,
                "nReturned": self._ring_results,
            }
        )
        if self._last:
            self._ended = True
            return
        if self._ring_results < FEW:
            self._width *= 2
        elif self._ring_results > MANY:
            self._width /= 2
        self._next_ring()

    def gives_current_records(self) -> bool:
        return True

    def held_bytes(self) -> int:
        return _FOUND_BYTES * len(self._waiting) + self._seen.held_bytes()

    def close(self) -> None:
        self._waiting = []
        self._seen = RecordIdSet()
        self._ended = True

    def node(self) -> PlanNode:
        details: dict[str, Value] = {
            "keyPattern": self._index.descriptor.key,
            "indexName": self._index.name,
            "indexVersion": 2,
        }
        counters = self.counters(self.examined)
        counters.extra = {
            "keysExamined": self.examined,
            "docsExamined": self._measured_documents,
            "searchIntervals": list(self._rings),
        }
        return PlanNode(self._stage, details, [], counters)


def _places_at(document: bytes, path: FieldPath) -> list[Value]:
    """The locations that a document has at a path: an array of pairs is several."""
    found: list[Value] = []
    for value in values_at(document, path, whole=True):
        if isinstance(value, list) and value and isinstance(value[0], (list, bytes)):
            found.extend(value)
        else:
            found.append(value)
    return found
