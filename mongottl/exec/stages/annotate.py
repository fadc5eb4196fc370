"""Metadata of records for `{$meta: …}`: `recordId`, `sortKey`."""

from typing import Final

from mongottl.document.annotated import annotated
from mongottl.document.types import Int64
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.stage import PlanNode, PlanStage
from mongottl.query.metadata import RECORD_ID, SORT_KEY
from mongottl.query.sort import SortPattern
from mongottl.storage.stores import Record

# The `$meta` keywords that this stage provides.
ANNOTATED: Final = frozenset({RECORD_ID, SORT_KEY})


class AnnotateStage(PlanStage):
    """Attaches the requested metadata to each record's document. explain does not show it: mongod has no such stage.

    sort: the sort of the records, None for none; they then have no `sortKey`.
    """

    def __init__(self, child: PlanStage, metadata: set[str], sort: SortPattern | None) -> None:
        super().__init__()
        self._child = child
        self._record_id: bool = RECORD_ID in metadata
        self._sort = sort if SORT_KEY in metadata else None

    def inputs(self) -> list[PlanStage]:
        return [self._child]

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        return self._child.put_back(op, records)

    def gives_current_records(self) -> bool:
        return self._child.gives_current_records()

    def pull(self, op: OperationContext) -> list[Record] | None:
        batch = self._child.next_batch(op)
        if batch is None:
            return None
        sort = self._sort
        found: list[Record] = []
        for record_id, document, ts_s, ttl_s in batch:
            if self._record_id:
                document = annotated(document, RECORD_ID, Int64(record_id))
            if sort is not None:
                document = annotated(document, SORT_KEY, sort.sort_values(document))
            found.append((record_id, document, ts_s, ttl_s))
        return found

    def node(self) -> PlanNode:
        return self._child.node()
