"""Sorted results from several scans, each in the order of the sort: mongod's SORT_MERGE.

    index {a: 1, b: 1}     {a: {$in: [1, 2, 3]}} sorted by b      three scans, of a = 1, 2 and 3
                           {$or: [{a: 1}, {c: 2}]} sorted by b    one in {a: 1, b: 1}, one in {c: 1, b: 1}

The first results are available at once, and no sort is needed.
"""

from heapq import heappop, heappush

from mongottl.catalog.collection import Collection
from mongottl.document.freeing import freed_in_slices
from mongottl.document.interrupt import give_way
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.liveness import ReadMark
from mongottl.exec.stages.record_ids import RecordIdSet
from mongottl.exec.stages.stage import BATCH, BATCH_BYTES, PlanNode, PlanStage
from mongottl.query.sort import SortPattern
from mongottl.storage.stores import Record


class SortMergeStage(PlanStage):
    """Merges several sorted scans; each record is returned once, unless it is expired by then."""

    def __init__(self, collection: Collection, children: list[PlanStage], pattern: SortPattern) -> None:
        super().__init__()
        self._collection = collection
        self._children = children
        # All children together buffer no more than one scan may read at once.
        for stage in children:
            give_way()
            stage.set_batch_bytes(BATCH_BYTES // len(children))
        self._pattern = pattern
        # The next record of each scan that has one: its key, the scan, its position in the scan's batch.
        self._heads: list[tuple[bytes, int, int]] = []
        self._batches: list[list[Record]] = freed_in_slices([[] for _ in children])
        # The state of the collection when each of these batches was read.
        self._marks: list[ReadMark | None] = freed_in_slices([None for _ in children])
        # Scans that need another batch and have not ended.
        self._waiting = list(range(len(children)))
        self._seen = RecordIdSet()
        self._taken = 0

    def inputs(self) -> list[PlanStage]:
        return self._children

    def pull(self, op: OperationContext) -> list[Record] | None:
        if self._waiting:
            self._refill(op)
            if self._waiting:
                return []
        if not self._heads:
            return None
        found: list[Record] = []
        outdated: ReadMark | None = None
        while self._heads and len(found) < BATCH:
            _, child, position = heappop(self._heads)
            mark = self._marks[child]
            if mark is not None and not mark.is_current(op) and (outdated is None or outdated.is_unchanged()):
                outdated = mark
            batch = self._batches[child]
            record = batch[position]
            self._taken += 1
            if self._seen.add(record[0]):
                found.append(record)
            if position + 1 == len(batch):
                self._waiting.append(child)
                break
            self._push(child, position + 1)
        return found if outdated is None else outdated.unexpired(op, found)

    def _refill(self, op: OperationContext) -> None:
        """Pulls the next batches of scans that need one, up to BATCH records in one call."""
        taken = 0
        waiting = self._waiting
        self._waiting = []
        for child in waiting:
            give_way()
            if taken >= BATCH:
                self._waiting.append(child)
                continue
            mark = ReadMark(self._collection, op, self._children[child].gives_current_records())
            batch = self._children[child].next_batch(op)
            if batch is None:
                continue
            taken += max(len(batch), 1)
            if batch:
                self._batches[child] = batch
                self._marks[child] = mark
                self._push(child, 0)
            else:
                self._waiting.append(child)

    def _push(self, child: int, position: int) -> None:
        key = self._pattern.sort_key(self._batches[child][position][1])
        heappush(self._heads, (key, child, position))

    def held_bytes(self) -> int:
        batches = sum([len(record[1]) for batch in self._batches for record in batch])
        return batches + self._seen.held_bytes() + super().held_bytes()

    def close(self) -> None:
        self._heads = []
        self._waiting = []
        super().close()

    def node(self) -> PlanNode:
        counters = self.counters(self._taken)
        counters.extra = {"dupsTested": self._taken, "dupsDropped": self._taken - self.returned}
        details = {"sortPattern": self._pattern.describe()}
        return PlanNode("SORT_MERGE", {**details}, [child.node() for child in self._children], counters)
