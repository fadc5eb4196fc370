"""Covered queries: answered from an index alone, without looking at documents.

    index {a: 1, "b.c": 1}     find({a: {$gt: 5}, "b.c": {$ne: 2}}, {_id: 0, a: 1, "b.c": 1})     the keys say it all

That is possible where the projection takes paths that the index has, the filter and the sort need no others, no
document has several keys, and the index knows what these components of its keys stem from (`document.key_reader`).
A dotted path must be in every document besides: where it is missing, keys do not tell whether what is above it is
(`{b: {}}` or `{}`). Keys do not tell what is expired, so it is closed while the collection's TTL is on. Where any of
this ceases to hold while a scan is under way, the scan goes on with the documents.
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
    """The same way through an index as `path`, with documents made of the keys."""

    def __init__(self, path: IndexPath) -> None:
        super().__init__(path.collection, path.bounds, AlwaysTrue(), [], path.sorted)
        self.match = path.match
        self.residual = path.residual
        # What the choice of this way rests on.
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
    """Records of the keys within ranges; their documents have the fields of the index alone.

    type_bits: the index's when the plan was made. Where it has others since, documents are read.
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
        self._reader = KeyReader(_told_paths(bounds, type_bits), descending, type_bits)
        self._ranges = bounds.ranges if forward else bounds.ranges[::-1]
        self._place = 0
        self._after: tuple[bytes, int] | None = None
        self._fetched = 0

    def _position(self) -> tuple[bytes, int]:
        return position_in(self._ranges, self._place, self._after, self._forward)

    def read(self, op: OperationContext) -> list[Record] | None:
        if self._place >= len(self._ranges):
            return None
        index = self._index
        unit = op.recovery_unit
        data = unit.index(index)
        told = (
            index.type_bits == self._type_bits and not index.arrays.found and self._collection.default_ttl_s == NO_TTL
        )
        found: list[Record] = []
        count = 0
        visits = 0
        room_bytes = BATCH_BYTES
        while (
            self._place < len(self._ranges) and count < self._size and visits < MAX_RANGES_PER_CALL and room_bytes > 0
        ):
            visits += 1
            low, high = self._ranges[self._place]
            room = self._size - count
            entries = data.scan(low, high, self._after, room, self._forward)
            more = len(entries) >= room
            if told:
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
            self._place += 1
            self._after = None
        self._seeks += visits
        self.examined += count
        match = self._residual if told else self._match
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


def _told_paths(bounds: IndexBounds, type_bits: int) -> list[list[bytes] | None]:
    """The paths of the components whose values the keys tell; None for the others."""
    components = bounds.components
    return [components[i].path.part_bytes if determines_value(type_bits, i) else None for i in range(len(components))]


def covered_path(
    path: IndexPath, projection: Projection, sort: SortPattern | None, metadata: set[str]
) -> CoveredPath | None:
    """The way that needs no documents, if there is one."""
    index = path.bounds.index
    descriptor = index.descriptor
    wanted = projection.included_paths()
    if wanted is None or metadata or path.id_plan:
        return None
    if descriptor.kind.name != "btree" or descriptor.collation is not None:
        return None
    if index.arrays.found or path.collection.default_ttl_s != NO_TTL:
        return None
    told: set[str] = set()
    given: set[str] = set()
    components = path.bounds.components
    for i in range(len(components)):
        if determines_value(index.type_bits, i):
            told.add(components[i].path.dotted)
            if components[i].path.depth == 1 or not may_be_missing(index.type_bits, i):
                given.add(components[i].path.dotted)
    if not given.issuperset(wanted):
        return None
    if path.residual is not None and not _reads_only(path.residual, told):
        return None
    if path.sorted == 0 and sort is not None and not all(_is_told(sorted_by, told) for sorted_by in sort.paths):
        return None
    return CoveredPath(path)


def _is_told(path: FieldPath, told: set[str]) -> bool:
    """Whether a path, or one above it, is told: what is told is neither a document nor an array."""
    dotted = path.dotted
    while dotted not in told:
        above, dot, _ = dotted.rpartition(".")
        if not dot:
            return False
        dotted = above
    return True


def _reads_only(match: MatchExpression, told: set[str]) -> bool:
    """Whether a filter looks at nothing but these paths."""
    if isinstance(match, PathExpression):
        return _is_told(match.path, told)
    if isinstance(match, ListExpression):
        return all(_reads_only(child, told) for child in match.children)
    if isinstance(match, NotExpression):
        return _reads_only(match.child, told)
    return isinstance(match, (AlwaysTrue, AlwaysFalse))
