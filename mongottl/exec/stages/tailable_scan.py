"""A scan of a capped collection that continues after its last record when documents are inserted (`tailing`)."""

from mongottl.catalog.collection import Collection
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.liveness import unexpired
from mongottl.exec.stages.oplog_span import OplogSpan
from mongottl.exec.stages.stage import (
    BATCH_BYTES,
    PlanNode,
    PlanStage,
    check_alive,
    check_position,
    collection_scan_node,
    first_batch_size,
    next_batch_size,
)
from mongottl.query.match import MatchExpression
from mongottl.storage.stores import MAX_RECORD_ID, Record


class TailableScan(PlanStage):
    """The records of a capped collection in natural order. None means: no more records for now.

    started: whether it has read a record that was not expired, so that there is a position to continue from.

    span: the part of the oplog to read; with an upper bound, a scan reads on after it all the same, as in mongod.

    A backward scan, which a hint can request, ends for good after the oldest record.
    """

    def __init__(
        self,
        collection: Collection,
        match: MatchExpression | None,
        forward: bool,
        wanted: int,
        span: OplogSpan | None = None,
    ) -> None:
        super().__init__()
        self._span = span
        self._collection = collection
        self._match = match
        self._forward = forward
        self._position: int = 0 if forward else MAX_RECORD_ID
        self._size = first_batch_size(wanted, match is not None)
        self._begun = False
        self.started = False

    def pull(self, op: OperationContext) -> list[Record] | None:
        collection = self._collection
        check_alive(collection)
        if not self.started and not self._begun and self._span is not None:
            self._position = self._span.start(op.service.oplog, self._forward, self._position)
        size = min(self._size, op.pace.step_records)
        started_s = op.service.monotonic_s()
        records, _ = op.recovery_unit.records(collection).scan(self._position, size, self._forward, BATCH_BYTES)
        if self.started:
            check_position(op, collection, self._position)
        if op.was_left:
            check_alive(collection)
        if not records:
            return None
        if not self._begun:
            self._begun = True
            collection.scans += 1
            collection.tailable_scans += 1
        self.examined += len(records)
        op.pace.records_examined += len(records)
        self._position = records[-1][0]
        records = unexpired(collection, records, op.now_s)
        if records:
            self.started = True
        match = self._match
        if match is not None:
            records = [record for record in records if match.matches(record[1])]
        self._size = next_batch_size(op, size, started_s)
        return records

    def node(self) -> PlanNode:
        return collection_scan_node(self._match, self._forward, self.examined, self.counters(self.examined))
