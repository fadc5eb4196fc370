"""DISTINCT_SCAN: one document for each value of an index's first component, for the command `distinct`.

Entries of one value are adjacent, so the scan seeks past them after it has read two of them. Where few values repeat,
it reads on in growing batches instead. null and a missing field have the same key; there it reads until it finds null.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.collation import Collation, same_collation
from mongottl.document.keystring import encode_value, successor
from mongottl.document.path import FieldPath, values_at
from mongottl.document.types import Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.recovery_unit import RecoveryUnit
from mongottl.exec.plan.access_path import IndexPath
from mongottl.exec.plan.bounds import IndexBounds, components_of
from mongottl.exec.stages.index_scan import IndexStage, position_in
from mongottl.exec.stages.stage import BATCH, BATCH_BYTES, MAX_RANGES_PER_CALL, PlanNode
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import AlwaysTrue
from mongottl.storage.interface import FetchedEntry, Record
from mongottl.ttl.policy import NO_TTL

_FIRST_ENTRIES: Final = 2


class DistinctScan(IndexStage):
    """Records of the entries within ranges: at least one for each value, and usually no more than one.

    If the index becomes multikey or the collection gets a TTL during the scan, all remaining records are returned.
    """

    def __init__(
        self, collection: Collection, bounds: IndexBounds, match: MatchExpression | None, wanted: int, trial: bool
    ) -> None:
        super().__init__(collection, bounds, None, match, True, wanted, trial)
        component = bounds.components[0]
        self._path: FieldPath = component.path
        self._descending: bool = component.descending
        self._ranges = bounds.ranges
        self._range_index = 0
        self._low: bytes | None = None  # where the rest of the range begins after a seek
        self._after: tuple[bytes, int] | None = None
        self._entries = _FIRST_ENTRIES
        self._room_bytes = BATCH_BYTES  # bytes of documents that the current call may still read
        self._given = b""  # the key of the last value for which a record was returned

    def _position(self) -> tuple[bytes, int]:
        if self._low is not None and self._after is None:
            return self._low, 0
        return position_in(self._ranges, self._range_index, self._after, True)

    def read(self, op: OperationContext) -> list[Record] | None:
        if self._range_index >= len(self._ranges):
            return None
        found: list[Record] = []
        self._room_bytes = BATCH_BYTES
        for _ in range(MAX_RANGES_PER_CALL):
            if self._range_index >= len(self._ranges) or len(found) >= BATCH or self._room_bytes <= 0:
                break
            self._step(op.recovery_unit, found)
        return found

    def _step(self, unit: RecoveryUnit, found: list[Record]) -> None:
        """Reads the next entries with one storage call, appends the records to return, and moves the position."""
        low, high = self._ranges[self._range_index]
        if self._low is not None:
            low = self._low
        rows: list[FetchedEntry] = []
        more = False
        if low < high:
            rows, more = unit.index(self._index).scan_fetch(
                unit.records(self._collection), low, high, self._after, self._entries, True, self._room_bytes
            )
        self._seeks += 1
        self.examined += len(rows)
        for row in rows:
            self._room_bytes -= len(row[2])
        if self._index.arrays.found or self._collection.default_ttl_s != NO_TTL:
            self._return_all(rows, more, found)
            return
        last = b""
        repeated = False
        for row in rows:
            values = values_at(row[2], self._path)
            value: Value = values[0] if values else None
            key = encode_value(value, self._descending)
            repeated = key == last
            last = key
            if values and key != self._given:
                self._given = key
                found.append(row[1:])
        if not more:
            self._range_index += 1
            self._low = None
            self._after = None
            self._entries = _FIRST_ENTRIES
        elif repeated and last == self._given:
            self._low = successor(last)
            self._after = None
            self._entries = _FIRST_ENTRIES
        else:
            self._after = rows[-1][:2]
            self._entries = min(self._entries * 2, BATCH)

    def _return_all(self, rows: list[FetchedEntry], more: bool, found: list[Record]) -> None:
        match = self._residual
        records: list[Record] = [row[1:] for row in rows if match is None or match.matches(row[2])]
        found.extend(records if self._seen is None else self.unseen(records, self._seen))
        if more:
            self._after = rows[-1][:2]
        else:
            self._range_index += 1
            self._low = None
            self._after = None
        self._entries = BATCH

    def node(self) -> PlanNode:
        fetch = super().node()
        fetch.inputs[0].stage = "DISTINCT_SCAN"
        return fetch


class DistinctPath(IndexPath):
    """A DISTINCT_SCAN. match: the filter that the bounds express, None for none."""

    def __init__(self, collection: Collection, bounds: IndexBounds, match: MatchExpression | None) -> None:
        super().__init__(collection, bounds, AlwaysTrue(), [], 0)
        self.match = match

    def open(self, wanted: int, trial: bool = False) -> DistinctScan:
        return DistinctScan(self.collection, self.bounds, self.match, wanted, trial)


def distinct_path(path: IndexPath, key: str, collation: Collation | None) -> DistinctPath | None:
    """The DISTINCT_SCAN for the values of `key`, if `key` leads the index and the bounds express the whole filter."""
    bounds = path.bounds
    if path.residual is not None or path.id_plan or len(bounds.intervals) > 1 or bounds.void:
        return None
    return _over(path.collection, bounds, path.match, key, collation)


def whole_distinct_path(collection: Collection, key: str, collation: Collation | None) -> DistinctPath | None:
    """The DISTINCT_SCAN for the values of `key` in the whole collection, without a filter, if an index allows it."""
    for index in collection.indexes:
        descriptor = index.descriptor
        if not index.ready or not index.has_keys or descriptor.hidden or descriptor.kind.name != "btree":
            continue
        if descriptor.sparse or descriptor.partial_match is not None:
            continue
        path = _over(collection, IndexBounds(index, components_of(index)), None, key, collation)
        if path is not None:
            return path
    return None


def _over(
    collection: Collection, bounds: IndexBounds, match: MatchExpression | None, key: str, collation: Collation | None
) -> DistinctPath | None:
    index = bounds.index
    descriptor = index.descriptor
    leading = bounds.components[0].path
    if descriptor.kind.name != "btree" or leading.dotted != key or any(number >= 0 for number in leading.indexes):
        return None
    if index.arrays.found or collection.default_ttl_s != NO_TTL:
        return None
    if index.has_unique_keys and len(bounds.components) == 1:
        return None  # every value comes once
    if descriptor.collation is not None or not same_collation(descriptor.collation, collation):
        return None
    return DistinctPath(collection, bounds, match)
