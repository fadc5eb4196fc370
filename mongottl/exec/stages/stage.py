"""The stages of a plan: each gives batches of records, after a bounded amount of work per call.

A stage remembers a position (a record id, or an index key and a record id) and holds nothing open in storage, so that
between two calls documents may come, go, change and expire, and indexes and the whole collection may be dropped. An
operation context is passed anew with each call, because a getMore is another command with another instant.

    COLLSCAN            records in the order of their ids, filtered
    IXSCAN + FETCH      one stage here (`index_scan`): ranges of an index, joined with the records, and filtered
    EXPRESS_IXSCAN      one record by its `_id`
    OR                  several scans, each record once
    SORT                reads all of its input, then gives it in order; only the first ones if a limit is known
    SKIP, LIMIT, EOF

Whatever reads storage drops records that are expired at the call's instant; what buffers judges them by what is stored
when it emits (`liveness`).
This module does not know how plans are chosen (`planner`) or how they are shown (`explain`).
"""

from abc import ABC, abstractmethod
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.liveness import ReadMark, living
from mongottl.query.match import MatchExpression
from mongottl.query.sort import SortPattern
from mongottl.query.sorter import Sorter
from mongottl.query.spill import SpillSpace
from mongottl.storage.interface import MAX_RECORD_ID, IndexEntry, Record, SortedDataInterface
from mongottl.ttl.policy import NO_TTL

# Records (or index entries) that one call examines at most: a fraction of a millisecond's work.
BATCH: Final = 256
# What the documents of one call take together, before the last one: what one client's cursor makes an engine read and
# the server hold at once. No page of results is larger.
BATCH_BYTES: Final = 16 << 20
# A batch that takes longer than this is too large for its filter.
SLOW_BATCH_S: Final = 0.002
# Where the first page is small and a filter may reject records, scans begin with this many and double from there.
FIRST_BATCH: Final = 16
# Ranges of an index that one call visits at most; each costs a seek even when it is empty.
MAX_RANGES_PER_CALL: Final = 32


class PlanNode:
    """A stage as explain shows it. details: its fixed fields, in mongod's order; counters: what it did."""

    def __init__(
        self, stage: str, details: dict[str, Value], inputs: "list[PlanNode]", counters: "StageCounters | None" = None
    ) -> None:
        self.stage = stage
        self.details = details
        self.inputs = inputs
        self.counters = StageCounters() if counters is None else counters

    def planned(self) -> dict[str, Value]:
        """The stage as part of a `winningPlan`."""
        described: dict[str, Value] = {"stage": self.stage}
        described.update(self.details)
        if len(self.inputs) == 1 and self.stage not in ("OR", "SORT_MERGE"):
            described["inputStage"] = self.inputs[0].planned()
        elif self.inputs:
            inputs: list[Value] = [child.planned() for child in self.inputs]
            described["inputStages"] = inputs
        return described


class StageCounters:
    """What a stage has done so far. extra: the counters of its kind, in mongod's names (docsExamined)."""

    def __init__(self) -> None:
        self.examined = 0
        self.returned = 0
        self.exhausted = False
        self.elapsed_s = 0.0
        self.extra: dict[str, Value] = {}


class PlanStage(ABC):
    """A stage. `next_batch` is what others call; stages implement `pull`.

    returned: records given so far. examined: records, or index entries, that a scan has looked at so far.
    """

    def __init__(self) -> None:
        self.returned = 0
        self.examined = 0
        self.exhausted = False
        self.timed = False
        self.elapsed_s = 0.0

    def next_batch(self, op: OperationContext) -> list[Record] | None:
        """The next records; [] for nothing yet, None for the end.

        QueryPlanKilled (175) if the collection or an index that is used has been dropped since.
        """
        if self.timed:
            return self._timed_batch(op)
        batch = self.pull(op)
        if batch is None:
            self.exhausted = True
        else:
            self.returned += len(batch)
        return batch

    def _timed_batch(self, op: OperationContext) -> list[Record] | None:
        clock = op.service.clock
        start_s = clock.monotonic_s()
        batch = self.pull(op)
        self.elapsed_s += clock.monotonic_s() - start_s
        if batch is None:
            self.exhausted = True
        else:
            self.returned += len(batch)
        return batch

    @abstractmethod
    def pull(self, op: OperationContext) -> list[Record] | None:
        """What `next_batch` promises."""
        raise NotImplementedError

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        """Goes back, so that the next call begins with these records, the last of the batch that was just given.

        To be called before others may have written. False where a stage cannot go back; then nothing has changed.
        """
        return False

    def set_batch_bytes(self, size: int) -> None:
        """Has scans read no more than this, and one document, at once."""
        for stage in self.inputs():
            stage.set_batch_bytes(size)

    @abstractmethod
    def node(self) -> PlanNode:
        """This stage and those below it, with their counters as they are now."""
        raise NotImplementedError

    def inputs(self) -> "list[PlanStage]":
        return []

    def close(self) -> None:
        """Lets go of what is buffered. May be called more than once."""
        for stage in self.inputs():
            stage.close()

    def examined_below(self) -> int:
        """What this stage and those below it have examined."""
        total = self.examined
        for stage in self.inputs():
            total += stage.examined_below()
        return total

    def set_timed(self) -> None:
        """Has this stage and those below it measure their time."""
        self.timed = True
        for stage in self.inputs():
            stage.set_timed()

    def set_guarded(self) -> None:
        """Has scans fail where a capped collection has lost the record that they stand on: reads must not miss any."""
        for stage in self.inputs():
            stage.set_guarded()

    def gives_current_records(self) -> bool:
        """Whether `next_batch` reads each record that it gives within that call, and tests the filter on what it read.

        Where it does not, what is written must be read and tested again: others may have changed it meanwhile.
        """
        return False

    def set_each_once(self) -> None:
        """Has scans give each record once even if it moves ahead of them in their index, for updates and deletes.

        Which records they gave they keep in little memory (`record_ids`), or not at all: a scan by record id or `_id`
        meets none twice.
        """
        for stage in self.inputs():
            stage.set_each_once()

    def set_keyed(self) -> None:
        """Has scans of indexes give each document with the key under which they found it, as metadata."""
        for stage in self.inputs():
            stage.set_keyed()

    def counters(self, examined: int) -> StageCounters:
        counters = StageCounters()
        counters.examined = examined
        counters.returned = self.returned
        counters.exhausted = self.exhausted
        counters.elapsed_s = self.elapsed_s
        return counters


def uuid_text(uuid: bytes) -> str:
    """The 16 bytes of a UUID in its usual form."""
    digits = uuid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def check_alive(collection: Collection) -> None:
    """QueryPlanKilled (175) if the collection has been dropped."""
    if collection.dropped:
        raise CommandError(ErrorCode.QueryPlanKilled, f"collection dropped. UUID {uuid_text(collection.uuid.data)}")


def check_position(op: OperationContext, collection: Collection, record_id: int) -> None:
    """CappedPositionLost (136) if a capped collection has lost the record that a reader stands on.

    Records that expired may have been purged at any time: readers of a collection with a TTL pass over them.
    """
    lost = record_id <= collection.evicted_through
    if not lost and collection.default_ttl_s == NO_TTL and not collection.date_ttl_indexes:
        lost = op.recovery_unit.records(collection).find_record(record_id) is None
    if lost:
        raise CommandError(
            ErrorCode.CappedPositionLost,
            "CollectionScan died due to position in capped collection being deleted. Last seen record id:"
            f" RecordId({record_id})",
        )


def next_batch_size(op: OperationContext, size: int, started_s: float) -> int:
    """How many records a scan examines next, after `size` of them took since `started_s` (elapsed time).

    Sizes double up to BATCH. A filter that is slow (hundreds of regular expressions) halves them, since a batch is what
    other clients wait for.
    """
    if op.service.clock.monotonic_s() - started_s > SLOW_BATCH_S:
        return max(size // 2, FIRST_BATCH)
    return size if size >= BATCH else min(size * 2, BATCH)


def first_batch_size(wanted: int, filtered: bool) -> int:
    """How many records a scan reads first, if the first page needs `wanted` (0: no idea)."""
    if wanted <= 0 or wanted >= BATCH:
        return BATCH
    if filtered:
        return max(wanted, FIRST_BATCH)
    return wanted


def entry_before(
    data: SortedDataInterface, low: bytes, high: bytes, after: IndexEntry | None, record_id: int, forward: bool
) -> tuple[bool, IndexEntry | None]:
    """Whether there is an entry of this record in a range behind `after`, and which entry comes before the first of
    them; the last entry of the range if there is none. None: nothing comes before it."""
    last = after
    while True:
        entries = data.scan(low, high, last, BATCH, forward)
        for entry in entries:
            if entry[1] == record_id:
                return True, last
            last = entry
        if len(entries) < BATCH:
            return False, last


def size_after_putting_back(given: int, records: list[Record]) -> int:
    """How many records a scan reads next if of `given` ones these were not taken."""
    return max(given - len(records), 1)


class EofStage(PlanStage):
    """Nothing: the collection does not exist, or the filter cannot be true. reason: which, in mongod's word."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self._reason = reason

    def pull(self, op: OperationContext) -> list[Record] | None:
        return None

    def gives_current_records(self) -> bool:
        return True

    def node(self) -> PlanNode:
        return PlanNode("EOF", {"type": self._reason}, [], self.counters(0))


def collection_scan_node(
    match: MatchExpression | None, forward: bool, examined: int, counters: StageCounters
) -> PlanNode:
    """COLLSCAN, for each of the stages that read a whole collection."""
    details: dict[str, Value] = {}
    if match is not None:
        details["filter"] = match.describe()
    details["direction"] = "forward" if forward else "backward"
    counters.extra = {"docsExamined": examined}
    return PlanNode("COLLSCAN", details, [], counters)


class CollectionScan(PlanStage):
    """All records in the order of their ids. match: None if all of them pass."""

    def __init__(self, collection: Collection, match: MatchExpression | None, forward: bool, wanted: int) -> None:
        super().__init__()
        self._collection = collection
        self._match = match
        self._forward = forward
        self._position: int = 0 if forward else MAX_RECORD_ID
        self._size = first_batch_size(wanted, match is not None)
        self._batch_count = 0  # records of the latest batch
        self._ended = False
        self._begun = False
        self._guarded = False

    def set_guarded(self) -> None:
        self._guarded = True

    def gives_current_records(self) -> bool:
        return True

    def pull(self, op: OperationContext) -> list[Record] | None:
        if self._ended:
            return None
        collection = self._collection
        if collection.dropped:
            check_alive(collection)
        if not self._begun:
            self._begun = True
            collection.scans += 1
        if self._guarded and self.examined:
            check_position(op, collection, self._position)
        size = self._size
        started_s = op.service.clock.monotonic_s()
        records, more = op.recovery_unit.records(collection).scan(self._position, size, self._forward, BATCH_BYTES)
        self.examined += len(records)
        if not more:
            self._ended = True
            if not records:
                return None
        self._position = records[-1][0]
        match = self._match
        if match is not None:
            records = [record for record in records if match.matches(record[1])]
        self._size = next_batch_size(op, size, started_s)
        if collection.default_ttl_s != NO_TTL:
            records = living(collection, records, op.now_s)
        self._batch_count = len(records)
        return records

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        if self._guarded:
            return False  # its position must be a record that it has read
        self._position = records[0][0] - 1 if self._forward else records[0][0] + 1
        self._ended = False
        self._size = size_after_putting_back(self._batch_count, records)
        return True

    def node(self) -> PlanNode:
        return collection_scan_node(self._match, self._forward, self.examined, self.counters(self.examined))


class SkipStage(PlanStage):
    """Leaves out the first `skip` records."""

    def __init__(self, child: PlanStage, skip: int) -> None:
        super().__init__()
        self._child = child
        self._skip = skip
        self._left = skip

    def inputs(self) -> list[PlanStage]:
        return [self._child]

    def pull(self, op: OperationContext) -> list[Record] | None:
        batch = self._child.next_batch(op)
        left = self._left
        if batch is None or left == 0:
            return batch
        if left >= len(batch):
            self._left = left - len(batch)
            return []
        self._left = 0
        return batch[left:]

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        return self._child.put_back(op, records)

    def gives_current_records(self) -> bool:
        return self._child.gives_current_records()

    def node(self) -> PlanNode:
        child = self._child.node()
        return PlanNode("SKIP", {"skipAmount": self._skip}, [child], self.counters(child.counters.returned))


class LimitStage(PlanStage):
    """Gives the first `limit` records, and then lets go of what lies below."""

    def __init__(self, child: PlanStage, limit: int) -> None:
        super().__init__()
        self._child = child
        self._limit = limit
        self._left = limit

    def inputs(self) -> list[PlanStage]:
        return [self._child]

    def pull(self, op: OperationContext) -> list[Record] | None:
        left = self._left
        if left == 0:
            return None
        batch = self._child.next_batch(op)
        if batch is None:
            return None
        if len(batch) < left:
            self._left = left - len(batch)
            return batch
        self._left = 0
        self._child.close()
        return batch[:left]

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        if not self._child.put_back(op, records):
            return False
        self._left += len(records)
        return True

    def gives_current_records(self) -> bool:
        return self._child.gives_current_records()

    def node(self) -> PlanNode:
        child = self._child.node()
        return PlanNode("LIMIT", {"limitAmount": self._limit}, [child], self.counters(child.counters.returned))


class SortStage(PlanStage):
    """Reads all of its input, then gives it in order; with a limit only the first ones are kept meanwhile.

    Records that are dead when they are given are left out. Each call does a bounded amount of work (`query.sorter`).

    sorter: its limits may be changed before the first batch. memory_limit_bytes: as explain shows it.
    """

    def __init__(
        self,
        child: PlanStage,
        collection: Collection,
        pattern: SortPattern,
        limit: int,
        memory_limit_bytes: int,
        space: SpillSpace | None,
    ) -> None:
        super().__init__()
        self._child = child
        self._collection = collection
        self._pattern = pattern
        self._limit = limit
        self.memory_limit_bytes = memory_limit_bytes
        self.sorter = Sorter(limit, memory_limit_bytes, space)
        self._reading = True
        # Of the first records that came.
        self._mark: ReadMark | None = None

    def inputs(self) -> list[PlanStage]:
        return [self._child]

    def pull(self, op: OperationContext) -> list[Record] | None:
        sorter = self.sorter
        if sorter.pending:
            sorter.work()
            return []
        if self._reading:
            batch = self._child.next_batch(op)
            if batch is None:
                self._reading = False
                sorter.finish()
                return []
            if self._mark is None:
                self._mark = ReadMark(self._collection, op)
            sort_key = self._pattern.sort_key
            for record_id, document, ts_s, ttl_s in batch:
                sorter.add(sort_key(document), document, record_id, ts_s, ttl_s)
            sorter.check()
            return []
        records: list[Record] = []
        for _, _, document, record_id, ts_s, ttl_s in sorter.take(BATCH):
            records.append((record_id, document, ts_s, ttl_s))
        if not records:
            self.close()
            return None
        mark = self._mark
        return records if mark is None else mark.living(op, records)

    def close(self) -> None:
        self._reading = False
        self.sorter.close()
        self._child.close()

    def node(self) -> PlanNode:
        details: dict[str, Value] = {
            "sortPattern": self._pattern.describe(),
            "memLimit": self.memory_limit_bytes,
        }
        if self._limit:
            details["limitAmount"] = self._limit
        details["type"] = "simple"
        child = self._child.node()
        counters = self.counters(child.counters.returned)
        spilled = self.sorter.spilled
        counters.extra = {
            "totalDataSizeSorted": int(self.sorter.total_bytes),
            "usedDisk": spilled.spills > 0,
            "spills": spilled.spills,
            "spilledRecords": spilled.records,
            "spilledBytes": spilled.bytes,
            "spilledDataStorageSize": spilled.bytes,
        }
        return PlanNode("SORT", details, [child], counters)


class BackupStage(PlanStage):
    """A plan that sorts in memory, and another one without a sort, for when the memory does not suffice.

    The first gives nothing before its sort is complete, so the second may begin anew. As MongoDB's backup plan.
    """

    def __init__(self, first: PlanStage, backup: PlanStage) -> None:
        super().__init__()
        self._current: PlanStage = first
        self._backup: PlanStage | None = backup

    def inputs(self) -> list[PlanStage]:
        return [self._current] if self._backup is None else [self._current, self._backup]

    def pull(self, op: OperationContext) -> list[Record] | None:
        backup = self._backup
        if backup is None:
            return self._current.next_batch(op)
        try:
            batch = self._current.next_batch(op)
        except CommandError as error:
            if error.code != ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed:
                raise
            self._current.close()
            self._current = backup
            self._backup = None
            return []
        if batch:
            backup.close()
            self._backup = None
        return batch

    def node(self) -> PlanNode:
        return self._current.node()
