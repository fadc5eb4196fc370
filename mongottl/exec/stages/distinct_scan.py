"""DISTINCT_SCAN: one document for each value of a path in an index, for `distinct` and for `$group` by a field.

    index {a: 1, b: 1}     distinct a                      skips the entries with the same a
                           {a: {$gt: 5}}, distinct b       with the same a and b: each value once for each a
                           {b: {$gt: 7}}, distinct a       entries with b <= 7 too, by a seek for each a
                           sort {a: 1, b: 1}, $last b      scans backward: the first entry of each a is its last one

Entries of one value are adjacent, so the scan seeks past them after it has read two of them. Where few values repeat,
it reads on in growing batches instead. If the keys determine all that is read in the documents (`covered_scan`), the
documents are built from them. null and a missing field have the same key (`NullRule`). For `distinct` the path may have
arrays, if it is not bounded: each of their values has a key of its own.
"""

from enum import Enum
from typing import Final

from mongottl.document.interrupt import Undivided
from mongottl.document.key_reader import KeyReader
from mongottl.document.key_split import component_end
from mongottl.document.keystring import encode_value, successor
from mongottl.document.path import FieldPath, values_at
from mongottl.document.types import Undefined
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.covered_scan import key_reader
from mongottl.exec.stages.index_scan import IndexScanNode, IndexScanParams, IndexStage
from mongottl.exec.stages.key_ranges import RangePosition
from mongottl.exec.stages.key_skipper import KeySkipper
from mongottl.exec.stages.stage import BATCH, BATCH_BYTES, MAX_RANGES_PER_CALL, PlanNode
from mongottl.storage.stores import FetchedEntry, Record
from mongottl.ttl.policy import NO_TTL, is_expired

_FIRST_ENTRIES: Final = 2


class NullRule(Enum):
    """Which documents are returned of those whose key is null, by value or because the path is missing."""

    ONE = 1  # like any other value: `$group` by the path
    WITH_VALUE = 2  # one whose value is null: `distinct`, which leaves out documents without the path
    ALL = 3  # all: null and missing make two values, as in `$group` by {name: "$path"}


class DistinctScan(IndexStage):
    """Records of the entries within the bounds: at least one for each value, and usually no more than one, the first in
    the direction of the scan that is not expired.

    place: of the component whose values are wanted. type_bits: of the index when the plan was made, if the documents
    are built from the keys; else -1. If the index has new array paths or the collection gets a TTL during the scan,
    documents are read, and after new array paths all remaining ones are returned.
    """

    def __init__(self, params: IndexScanParams, place: int, nulls: NullRule, type_bits: int) -> None:
        super().__init__(params)
        bounds = params.bounds
        component = bounds.components[place]
        self._path: FieldPath = component.path
        self._descending: list[bool] = [component.descending for component in bounds.components[: place + 1]]
        self._nulls = nulls
        # The keys of values that missing fields and empty arrays have too.
        self._null_key: bytes = encode_value(None, component.descending)
        self._undefined_key: bytes = encode_value(Undefined(), component.descending)
        self._type_bits = type_bits
        self._decoder: KeyReader | None = None if type_bits < 0 else key_reader(bounds, type_bits)
        self._skipper: KeySkipper | None = KeySkipper(bounds, params.forward) if bounds.trailing else None
        self._at = RangePosition(bounds.ranges, params.forward)
        self._entries = _FIRST_ENTRIES
        self._room_bytes = BATCH_BYTES  # bytes of documents that the current call may still read
        self._fetched = 0
        # The last beginning of a key, through the component, for which a record was returned.
        self._given = b""

    def _position(self) -> tuple[bytes, int]:
        return self._at.key()

    def read(self, op: OperationContext) -> list[Record] | None:
        if self._at.is_at_end():
            return None
        found: list[Record] = []
        self._room_bytes = BATCH_BYTES
        for _ in range(MAX_RANGES_PER_CALL):
            if self._at.is_at_end() or len(found) >= BATCH or self._room_bytes <= 0:
                break
            self._step(op, found)
        return found

    def _step(self, op: OperationContext, found: list[Record]) -> None:
        """Reads the next entries with one storage call, appends the records to return, and moves the position."""
        at = self._at
        forward = self._forward
        with Undivided():  # the keys are of the time when the index has these arrays and type bits
            returns_all = self._index.arrays is not self._bounds.arrays
            default_ttl_s = self._collection.default_ttl_s
            rows, more = self._next_rows(op, not returns_all and default_ttl_s == NO_TTL)
        self._seeks += 1
        if returns_all:
            self.examined += len(rows)
            self._return_all(rows, more, found)
            return
        skipper = self._skipper
        last = b""
        repeated = False
        bound: bytes | None = None
        for row in rows:
            full = row[0]
            if bound is not None and (full < bound) == forward:
                continue
            self.examined += 1
            bound = None if skipper is None else skipper.bound_behind(full)
            if bound is not None:
                self._out_of_bounds += 1
                continue
            start, end = self._component(full)
            key = full[:end]
            repeated = key == last
            last = key
            if key == self._given or is_expired(row[3], row[4], default_ttl_s, op.now_s):
                continue
            value_key = full[start:end]
            if self._nulls is NullRule.WITH_VALUE and not self._has_value(row[2], value_key):
                continue
            found.append(row[1:])
            if self._nulls is not NullRule.ALL or value_key != self._null_key:
                self._given = key
        if not more:
            at.to_next_range()
            self._entries = _FIRST_ENTRIES
        elif bound is not None:
            at.seek(bound)
            self._entries = _FIRST_ENTRIES
        elif repeated and last == self._given:
            at.seek(successor(last) if forward else last)
            self._entries = _FIRST_ENTRIES
        else:
            at.after = rows[-1][:2]
            self._entries = min(self._entries * 2, BATCH)

    def _next_rows(self, op: OperationContext, from_keys: bool) -> tuple[list[FetchedEntry], bool]:
        """The next entries with their records, and whether the range has more.

        from_keys: whether the documents may be built from the keys.
        """
        at = self._at
        key_range = at.rest()
        if key_range.is_empty():
            return [], False
        index = self._index
        unit = op.recovery_unit
        data = self.data(op)
        decoder = self._decoder
        if decoder is not None and from_keys and index.type_bits == self._type_bits:
            entries, more = data.scan(key_range, at.after, self._entries, self._room_bytes)
            rows: list[FetchedEntry] = []
            for key, record_id in entries:
                self._room_bytes -= len(key)
                rows.append((key, record_id, decoder.document(key), op.now_s, NO_TTL))
            return rows, more
        store = unit.records(self._collection)
        rows, more = data.scan_fetch(store, key_range, at.after, self._entries, self._room_bytes)
        for row in rows:
            self._room_bytes -= len(row[2])
        self._fetched += len(rows)
        return rows, more

    def _component(self, key: bytes) -> tuple[int, int]:
        """Where the component whose values are wanted begins and ends in a key."""
        start = end = 0
        for descending in self._descending:
            start = end
            end = int(component_end(key, end, descending))
        return start, end

    def _has_value(self, document: bytes, value_key: bytes) -> bool:
        """Whether a document with this key has the value at the path, which may only be missing or an empty array."""
        values = values_at(document, self._path)
        if value_key == self._null_key:
            return None in values
        if value_key == self._undefined_key:
            return any(isinstance(value, Undefined) for value in values)
        return bool(values)

    def _return_all(self, rows: list[FetchedEntry], more: bool, found: list[Record]) -> None:
        match = self._match
        records: list[Record] = [row[1:] for row in rows if match is None or match.matches(row[2])]
        found.extend(records if self._seen is None else self.unseen(records, self._seen))
        if more:
            self._at.after = rows[-1][:2]
        else:
            self._at.to_next_range()
        self._entries = BATCH

    def scan_node(self) -> IndexScanNode:
        scan = super().scan_node()
        scan.stage = "DISTINCT_SCAN"
        scan.added_details = {"isShardFiltering": False, "isFetching": False}
        return scan

    def node(self) -> PlanNode:
        if self._decoder is None:
            return super().node()
        scan = self.scan_node()
        scan.counters.returned = self.returned
        if self._fetched:
            scan.counters.extra["docsExamined"] = self._fetched
        return scan
