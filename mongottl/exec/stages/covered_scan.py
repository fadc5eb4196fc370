"""Covered queries: answered from index keys alone, without reading documents.

    index {a: 1, "b.c": 1}     find({a: {$gt: 5}, "b.c": {$ne: 2}}, {_id: 0, a: 1, "b.c": 1})
                               find({a: {$gt: 5}}, {_id: 0, total: {$add: ["$a", "$b.c"]}})

A query can be covered if the projection includes only paths of the index, its expressions, the filter and the sort read
no others, the index is not multikey, and the type bits of these components determine their values
(`document.key_reader`). A dotted path that is included must also exist in every document: keys do not tell `{b: {}}`
from `{}` where b.c is missing. Keys do not tell
which documents are expired, so no query is covered while the collection's TTL is on. If one of these conditions ceases
to hold during a scan, the scan continues by reading documents.
"""

from mongottl.document.key_reader import KeyReader, determines_value, may_be_missing
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.access_path import IndexPath
from mongottl.exec.plan.bounds import IndexBounds
from mongottl.exec.stages.index_scan import IndexScanParams, IndexStage
from mongottl.exec.stages.key_ranges import KeyRangeReader, RangePosition
from mongottl.exec.stages.stage import MAX_RANGES_PER_CALL, PlanNode
from mongottl.query.match import MatchExpression
from mongottl.query.match.special import ExprExpression
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
        return CoveredScan(self.scan_params(self.bounds, wanted, trial), self._type_bits)


class CoveredScan(IndexStage):
    """Records of the keys within the bounds; their documents have the indexed paths only.

    type_bits: those of the index when the plan was made. If they have changed since, documents are read.
    """

    def __init__(self, params: IndexScanParams, type_bits: int) -> None:
        super().__init__(params)
        self._type_bits = type_bits
        self._decoder = key_reader(params.bounds, type_bits)
        self._at = RangePosition(params.bounds.ranges, params.forward)
        self._reader = KeyRangeReader(params.bounds, self._at)
        self._fetched = 0

    def _position(self) -> tuple[bytes, int]:
        return self._at.key()

    def read(self, op: OperationContext) -> list[Record] | None:
        at = self._at
        if at.is_at_end():
            return None
        index = self._index
        unit = op.recovery_unit
        data = unit.index(index)
        reader = self._reader
        from_keys = (
            index.type_bits == self._type_bits and not index.arrays.found and self._collection.default_ttl_s == NO_TTL
        )
        found: list[Record] = []
        count = 0
        room_bytes = self._batch_bytes
        for _ in range(MAX_RANGES_PER_CALL):
            if at.is_at_end() or count >= self._size or room_bytes <= 0:
                break
            before = at.copy()
            entries = reader.read(data, self._size - count, room_bytes)
            if from_keys:
                document = self._decoder.document
                found.extend([(rid, document(key), op.now_s, NO_TTL) for key, rid in entries])
                for entry in entries:
                    room_bytes -= len(entry[0])
            else:
                records, taken = unit.records(self._collection).find_records([rid for _, rid in entries], room_bytes)
                if taken < len(entries):
                    entries = entries[:taken]
                    at.move_to(before)
                    at.after = entries[-1]
                self._fetched += taken
                found.extend(records)
                for record in records:
                    room_bytes -= len(record[1])
            count += len(entries)
        self.examined = reader.examined
        self._out_of_bounds = reader.out_of_bounds
        self._seeks = reader.seeks
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


def key_reader(bounds: IndexBounds, type_bits: int) -> KeyReader:
    """Decodes the components of an index's keys whose values the keys determine."""
    paths: list[list[bytes] | None] = []
    for i, component in enumerate(bounds.components):
        paths.append(component.path.part_bytes if determines_value(type_bits, i) else None)
    return KeyReader(paths, [component.descending for component in bounds.components], type_bits)


def known_paths(bounds: IndexBounds, type_bits: int) -> set[str]:
    """The paths of an index whose values its keys determine."""
    components = bounds.components
    return {components[i].path.dotted for i in range(len(components)) if determines_value(type_bits, i)}


def always_present_paths(bounds: IndexBounds, type_bits: int) -> set[str]:
    """Those of `known_paths` which can be copied into a document: root fields, and paths that every document has."""
    components = bounds.components
    found: set[str] = set()
    for i in range(len(components)):
        if determines_value(type_bits, i) and (components[i].path.depth == 1 or not may_be_missing(type_bits, i)):
            found.add(components[i].path.dotted)
    return found


def covered_path(
    path: IndexPath, projection: Projection, sort: SortPattern | None, metadata: set[str]
) -> CoveredPath | None:
    """The covered scan with the bounds of `path`, or None if the query is not covered (see the module's text)."""
    index = path.bounds.index
    descriptor = index.descriptor
    included: list[str] = []
    read: set[str] = set()
    if metadata or path.id_plan or not projection.collect_paths(included, read):
        return None
    if descriptor.kind.name != "btree" or descriptor.collation is not None:
        return None
    if index.arrays.found or path.collection.default_ttl_s != NO_TTL:
        return None
    known = known_paths(path.bounds, index.type_bits)
    if not always_present_paths(path.bounds, index.type_bits).issuperset(included):
        return None
    if not all(_is_known(dotted, known) for dotted in read):
        return None
    if path.residual is not None and not _reads_only(path.residual, known):
        return None
    if (
        path.sorted == 0
        and sort is not None
        and not all(_is_known(sorted_by.dotted, known) for sorted_by in sort.paths)
    ):
        return None
    return CoveredPath(path)


def _is_known(dotted: str, known: set[str]) -> bool:
    """Whether keys determine the value at a path: it or a path above is known; known values are not nested."""
    while dotted not in known:
        above, dot, _ = dotted.rpartition(".")
        if not dot:
            return False
        dotted = above
    return True


def _reads_only(match: MatchExpression, known: set[str]) -> bool:
    """Whether a filter reads only these paths."""
    if isinstance(match, PathExpression):
        return _is_known(match.path.dotted, known)
    if isinstance(match, ListExpression):
        return all(_reads_only(child, known) for child in match.children)
    if isinstance(match, NotExpression):
        return _reads_only(match.child, known)
    if isinstance(match, ExprExpression):
        read: set[str] = set()
        return match.expression.collect_paths(read) and all(_is_known(dotted, known) for dotted in read)
    return isinstance(match, (AlwaysTrue, AlwaysFalse))
