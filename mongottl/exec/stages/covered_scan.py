"""Covered queries: answered from index keys alone, without reading documents.

    index {a: 1, "b.c": 1}     find({a: {$gt: 5}, "b.c": {$ne: 2}}, {_id: 0, a: 1, "b.c": 1})

A query can be covered if the projection includes only paths of the index, the filter and the sort need no others, the
index is not multikey, and the type bits of these components determine their values (`document.key_reader`). A dotted
path must also exist in every document: keys do not tell `{b: {}}` from `{}` where b.c is missing. Keys do not tell
which documents are expired, so no query is covered while the collection's TTL is on. If one of these conditions ceases
to hold during a scan, the scan continues by reading documents.
"""

from mongottl.catalog.collection import Collection
from mongottl.document.key_reader import KeyReader, determines_value, may_be_missing
from mongottl.document.path import FieldPath
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.access_path import IndexPath
from mongottl.exec.plan.bounds import IndexBounds
from mongottl.exec.stages.index_scan import IndexStage, position_in
from mongottl.exec.stages.stage import BATCH_BYTES, MAX_RANGES_PER_CALL, PlanNode
from mongottl.query.match import MatchExpression
from mongottl.query.match.tree import (
    AlwaysFalse,
    AlwaysTrue,
    ListExpression,
    NotExpression,
    PathExpression,
)
from mongottl.query.projection import Projection
from mongottl.query.sort import SortPattern
from mongottl.storage.interface import Record
from mongottl.ttl.policy import NO_TTL


class CoveredPath(IndexPath):
    """An index scan with the bounds of `path` whose documents are built from the keys."""

    def __init__(self, path: IndexPath) -> None:
        super().__init__(path.collection, path.bounds, AlwaysTrue(), [], path.sorted)
        self.match = path.match
        self.residual = path.residual
        # The query was found to be covered with these.
        self._type_bits = path.bounds.index.type_bits

    def open(self, wanted: int, trial: bool = False) -> "CoveredScan":
        return CoveredScan(
            self.collection,
            self.bounds,
            self.residual,
            self.match,
            self.sorted >= 0,
            wanted,
            trial,
            self._type_bits,
        )


class CoveredScan(IndexStage):
    """Records of the keys within ranges; their documents have the indexed paths only.

    type_bits: those of the index when the plan was made. If they have changed since, documents are read.
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
        type_bits: int,
    ) -> None:
        super().__init__(collection, bounds, residual, match, forward, wanted, trial)
        self._type_bits = type_bits
        descending = [part.descending for part in bounds.components]
        self._reader = KeyReader(_readable_paths(bounds, type_bits), descending, type_bits)
        self._ranges = bounds.ranges if forward else bounds.ranges[::-1]
        self._range_index = 0
        self._after: tuple[bytes, int] | None = None
        self._fetched = 0

    def _position(self) -> tuple[bytes, int]:
        return position_in(self._ranges, self._range_index, self._after, self._forward)

    def read(self, op: OperationContext) -> list[Record] | None:
        if self._range_index >= len(self._ranges):
            return None
        index = self._index
        unit = op.recovery_unit
        data = unit.index(index)
        from_keys = (
            index.type_bits == self._type_bits and not index.arrays.found and self._collection.default_ttl_s == NO_TTL
        )
        found: list[Record] = []
        count = 0
        visits = 0
        room_bytes = BATCH_BYTES
        while (
            self._range_index < len(self._ranges)
            and count < self._size
            and visits < MAX_RANGES_PER_CALL
            and room_bytes > 0
        ):
            visits += 1
            low, high = self._ranges[self._range_index]
            room = self._size - count
            entries = data.scan(low, high, self._after, room, self._forward)
            more = len(entries) >= room
            if from_keys:
                document = self._reader.document
                found.extend([(rid, document(key), op.now_s, NO_TTL) for key, rid in entries])
            else:
                records, taken = unit.records(self._collection).find_records([rid for _, rid in entries], room_bytes)
                if taken < len(entries):
                    entries = entries[:taken]
                    more = True
                self._fetched += taken
                found.extend(records)
                for record in records:
                    room_bytes -= len(record[1])
            count += len(entries)
            if more:
                self._after = entries[-1]
                break
            self._range_index += 1
            self._after = None
        self._seeks += visits
        self.examined += count
        match = self._residual if from_keys else self._match
        if match is not None:
            found = [record for record in found if match.matches(record[1])]
        return found if self._seen is None else self.unseen(found, self._seen)

    def node(self) -> PlanNode:
        fetch = super().node()
        scan = fetch.inputs[0]
        if self._residual is not None:
            scan.details = {"filter": self._residual.describe(), **scan.details}
        scan.counters.returned = self.returned
        if self._fetched:
            scan.counters.extra["docsExamined"] = self._fetched
        return scan


def _readable_paths(bounds: IndexBounds, type_bits: int) -> list[list[bytes] | None]:
    """The path of each index component whose values the keys determine; None for the others."""
    components = bounds.components
    return [components[i].path.part_bytes if determines_value(type_bits, i) else None for i in range(len(components))]


def covered_path(
    path: IndexPath, projection: Projection, sort: SortPattern | None, metadata: set[str]
) -> CoveredPath | None:
    """The covered scan with the bounds of `path`, or None if the query is not covered (see the module's text)."""
    index = path.bounds.index
    descriptor = index.descriptor
    wanted = projection.included_paths()
    if wanted is None or metadata or path.id_plan:
        return None
    if descriptor.kind.name != "btree" or descriptor.collation is not None:
        return None
    if index.arrays.found or path.collection.default_ttl_s != NO_TTL:
        return None
    known_paths: set[str] = set()
    always_present: set[str] = set()
    components = path.bounds.components
    for i in range(len(components)):
        if determines_value(index.type_bits, i):
            known_paths.add(components[i].path.dotted)
            if components[i].path.depth == 1 or not may_be_missing(index.type_bits, i):
                always_present.add(components[i].path.dotted)
    if not always_present.issuperset(wanted):
        return None
    if path.residual is not None and not _reads_only(path.residual, known_paths):
        return None
    if path.sorted == 0 and sort is not None and not all(_is_known(sorted_by, known_paths) for sorted_by in sort.paths):
        return None
    return CoveredPath(path)


def _is_known(path: FieldPath, known_paths: set[str]) -> bool:
    """Whether keys determine the value at a path: it or a path above is known; known values are not nested."""
    dotted = path.dotted
    while dotted not in known_paths:
        above, dot, _ = dotted.rpartition(".")
        if not dot:
            return False
        dotted = above
    return True


def _reads_only(match: MatchExpression, known_paths: set[str]) -> bool:
    """Whether a filter reads only these paths."""
    if isinstance(match, PathExpression):
        return _is_known(match.path, known_paths)
    if isinstance(match, ListExpression):
        return all(_reads_only(child, known_paths) for child in match.children)
    if isinstance(match, NotExpression):
        return _reads_only(match.child, known_paths)
    return isinstance(match, (AlwaysTrue, AlwaysFalse))
