"""Covered queries: answered from index keys alone, without reading documents.

    index {a: 1, "b.c": 1}     find({a: {$gt: 5}, "b.c": {$ne: 2}}, {_id: 0, a: 1, "b.c": 1})
                               find({a: {$gt: 5}}, {_id: 0, total: {$add: ["$a", "$b.c"]}})

A query can be covered if the projection includes only paths of the index, its expressions, the filter and the sort read
no others, the index is not multikey, and the type bits of these components determine their values
(`document.key_reader`). A dotted path that is included must also exist in every document: `{b: {}}` and
`{}` have the same key for b.c. Keys do not show
which documents are expired, so no query is covered while the collection's TTL is on. If one of these conditions ceases
to hold during a scan, the scan continues by reading documents.
"""

from mongottl.document.interrupt import Undivided
from mongottl.document.key_reader import KeyReader, determines_value, may_be_missing
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.bounds import IndexBounds
from mongottl.exec.stages.index_scan import IndexScanParams, IndexStage
from mongottl.exec.stages.key_ranges import KeyRangeReader, RangePosition
from mongottl.exec.stages.stage import MAX_RANGES_PER_CALL, PlanNode
from mongottl.storage.stores import Record
from mongottl.ttl.policy import NO_TTL


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
        reader = self._reader
        found: list[Record] = []
        count = 0
        room_bytes = self._batch_bytes
        with Undivided():
            data = self.data(op)
            store = op.recovery_unit.records(self._collection)
            from_keys = (
                index.type_bits == self._type_bits
                and not index.arrays.found
                and self._collection.default_ttl_s == NO_TTL
            )
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
                    records, taken = store.find_records([rid for _, rid in entries], room_bytes)
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
        scan = self.scan_node()
        scan.filter = self._residual
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
