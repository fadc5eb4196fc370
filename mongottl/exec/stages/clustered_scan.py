"""Clustered collections: their natural order is that of `_id`.

MongoDB stores such a collection's documents in the B-tree of `_id`. Here they are stored in the order of insertion, as
in every collection, and scans go through the index on `_id`; clients see no difference. Source: MongoDB's "Clustered
Collections" page.
"""

import math

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.key_ranges import ALL_KEYS
from mongottl.document.numbers import decimal_of, is_nan
from mongottl.document.types import Decimal128
from mongottl.document.walk import get_value
from mongottl.errors import WriteError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.liveness import unexpired
from mongottl.exec.stages.stage import (
    BATCH_BYTES,
    PlanNode,
    PlanStage,
    check_alive,
    collection_scan_node,
    entry_before,
    first_batch_size,
    next_batch_size,
    size_after_putting_back,
)
from mongottl.query.match import MatchExpression
from mongottl.storage.stores import Record


def check_nameable(document: bytes) -> None:
    """50819 for a duplicate `_id` that is NaN, 50826 for an infinite one, instead of DuplicateKey (11000).

    mongod decodes the value for its error message from the key, in which NaN and infinities have no type.
    """
    value = get_value(document, "_id")
    if is_nan(value):
        raise WriteError(50819, "Malformed KeyString: the type of NaN is not known")
    infinite = decimal_of(value).is_infinite() if isinstance(value, Decimal128) else value in (math.inf, -math.inf)
    if infinite:
        raise WriteError(50826, "Malformed KeyString: the type of an infinity is not known")


class ClusteredScan(PlanStage):
    """All records of a clustered collection, in the order of `_id`. match: None for no filter."""

    def __init__(
        self, collection: Collection, index: CollectionIndex, match: MatchExpression | None, forward: bool, wanted: int
    ) -> None:
        super().__init__()
        self._collection = collection
        self._index = index
        self._match = match
        self._forward = forward
        self._key_range = ALL_KEYS if forward else ALL_KEYS.reversed()
        self._after: tuple[bytes, int] | None = None
        self._before: tuple[bytes, int] | None = None  # the position before the latest batch
        self._batch_count = 0  # records of the latest batch
        self._size = first_batch_size(wanted, match is not None)
        self._ended = False
        self._begun = False

    def pull(self, op: OperationContext) -> list[Record] | None:
        if self._ended:
            return None
        collection = self._collection
        check_alive(collection)
        if not self._begun:
            self._begun = True
            collection.scans += 1
        size = min(self._size, op.pace.step_records)
        started_s = op.service.monotonic_s()
        unit = op.recovery_unit
        rows, more = unit.index(self._index).scan_fetch(
            unit.records(collection), self._key_range, self._after, size, BATCH_BYTES
        )
        if op.was_left:
            check_alive(collection)
        self.examined += len(rows)
        op.pace.records_examined += len(rows)
        if not more:
            self._ended = True
            if not rows:
                return None
        last = rows[-1]
        self._before = self._after
        self._after = (last[0], last[1])
        match = self._match
        records: list[Record] = [row[1:] for row in rows if match is None or match.matches(row[2])]
        self._size = next_batch_size(op, size, started_s)
        records = unexpired(collection, records, op.now_s)
        self._batch_count = len(records)
        return records

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        found, self._after = entry_before(
            op.recovery_unit.index(self._index), self._key_range, self._before, records[0][0]
        )
        assert found
        self._ended = False
        self._size = size_after_putting_back(self._batch_count, records)
        return True

    def gives_current_records(self) -> bool:
        return True

    def node(self) -> PlanNode:
        return collection_scan_node(self._match, self._forward, self.examined, self.counters(self.examined))
