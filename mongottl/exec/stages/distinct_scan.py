"""DISTINCT_SCAN: one document for each value of a path in an index, for `distinct` and for `$group` by a field.

    index {a: 1, b: 1}     distinct a                      skips the entries with the same a
                           {a: {$gt: 5}}, distinct b       with the same a and b: each value once for each a

Entries of one value are adjacent, so the scan seeks past them after it has read two of them. Where few values repeat,
it reads on in growing batches instead. null and a missing field have the same key; for `distinct`, which leaves out
documents without the field, it reads there until it finds null.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.collation import Collation, same_collation
from mongottl.document.key_split import component_end
from mongottl.document.keystring import successor
from mongottl.document.path import FieldPath, values_at
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
    """Records of the entries within ranges: at least one for each value, and usually no more than one, the first in the
    order of the index.

    place: of the component whose values are wanted. with_missing: whether documents without the path have a value too,
    that of null. If the index becomes multikey or the collection gets a TTL during the scan, all remaining records are
    returned.
    """

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        match: MatchExpression | None,
        place: int,
        with_missing: bool,
        wanted: int,
        trial: bool,
    ) -> None:
        super().__init__(collection, bounds, None, match, True, wanted, trial)
        self._path: FieldPath = bounds.components[place].path
        self._descending: list[bool] = [component.descending for component in bounds.components[: place + 1]]
        self._with_missing = with_missing
        self._ranges = bounds.ranges
        self._range_index = 0
        self._low: bytes | None = None  # where the rest of the range begins after a seek
        self._after: tuple[bytes, int] | None = None
        self._entries = _FIRST_ENTRIES
        self._room_bytes = BATCH_BYTES  # bytes of documents that the current call may still read
        # The last beginning of a key, through the component, for which a record was returned.
        self._given = b""

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
            key = self._beginning(row[0])
            repeated = key == last
            last = key
            if key != self._given and (self._with_missing or values_at(row[2], self._path)):
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

    def _beginning(self, key: bytes) -> bytes:
        """A key as far as the component whose values are wanted."""
        end = 0
        for descending in self._descending:
            end = int(component_end(key, end, descending))
        return key[:end]

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

    def __init__(
        self,
        collection: Collection,
        bounds: IndexBounds,
        match: MatchExpression | None,
        direction: int,
        place: int,
        with_missing: bool,
    ) -> None:
        super().__init__(collection, bounds, AlwaysTrue(), [], direction)
        self.match = match
        self._place = place
        self._with_missing = with_missing

    def open(self, wanted: int, trial: bool = False) -> DistinctScan:
        return DistinctScan(self.collection, self.bounds, self.match, self._place, self._with_missing, wanted, trial)


def distinct_path(
    path: IndexPath, key: str, collation: Collation | None, with_missing: bool = False
) -> DistinctPath | None:
    """The DISTINCT_SCAN for the values of `key`, if the bounds express the whole filter and bind all before `key`."""
    bounds = path.bounds
    if path.residual is not None or path.id_plan or bounds.void or path.sorted < 0 or bounds.limits is not None:
        return None
    return _over(path.collection, bounds, path.match, path.sorted, key, collation, with_missing)


def whole_distinct_path(
    collection: Collection, key: str, collation: Collation | None, with_missing: bool = False
) -> DistinctPath | None:
    """The DISTINCT_SCAN for the values of `key` in the whole collection, without a filter, if an index allows it."""
    for index in collection.indexes:
        descriptor = index.descriptor
        if not index.ready or not index.has_keys or descriptor.hidden or descriptor.kind.name != "btree":
            continue
        if descriptor.sparse or descriptor.partial_match is not None:
            continue
        bounds = IndexBounds(index, components_of(index))
        path = _over(collection, bounds, None, 0, key, collation, with_missing)
        if path is not None:
            return path
    return None


def _over(
    collection: Collection,
    bounds: IndexBounds,
    match: MatchExpression | None,
    direction: int,
    key: str,
    collation: Collation | None,
    with_missing: bool,
) -> DistinctPath | None:
    index = bounds.index
    descriptor = index.descriptor
    components = bounds.components
    if descriptor.kind.name != "btree":
        return None
    # With components in front that the filter does not bind, every value may come any number of times.
    place = -1
    for i in range(min(len(bounds.intervals) + 1, len(components))):
        if components[i].path.dotted == key:
            place = i
    if place < 0 or len(bounds.intervals) > place + 1 or any(number >= 0 for number in components[place].path.indexes):
        return None
    if index.arrays.found or collection.default_ttl_s != NO_TTL:
        return None
    if index.has_unique_keys and place + 1 == len(components):
        return None  # every value comes once
    if descriptor.collation is not None or not same_collation(descriptor.collation, collation):
        return None
    return DistinctPath(collection, bounds, match, direction, place, with_missing)
