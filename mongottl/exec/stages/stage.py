"""The stages of a plan: each returns batches of records, after a bounded amount of work per call.

A stage remembers a position (a record id, or an index key and a record id) and keeps nothing open in storage, so that
between two calls documents may be inserted, updated, deleted and expire, and indexes and the collection may be dropped.
The operation context is an argument of each call, because a getMore is another command with another time.

    COLLSCAN            records in the order of their ids, filtered
    IXSCAN + FETCH      one stage here (`index_scan`): ranges of an index, joined with the records, and filtered
    EXPRESS_IXSCAN      one record by its `_id`
    OR                  several scans, each record once
    SORT                reads all of its input, then returns it in order; keeps only the first ones if a limit is known
    SKIP, LIMIT, EOF

Stages that read storage drop records that are expired at the time of the call; stages that buffer check what is stored
when they return records (`liveness`). How plans are chosen is not known here (`planner`), nor how explain shows them.
"""

from abc import ABC, abstractmethod
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import begin_evaluation, end_evaluation, give_way
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.pace import MAX_STEP_RECORDS
from mongottl.exec.stages.liveness import ReadMark, unexpired
from mongottl.exec.stages.oplog_span import OplogSpan
from mongottl.exec.unit.recovery_unit import collection_dropped
from mongottl.query.match import MatchExpression
from mongottl.query.sort import SortPattern
from mongottl.query.sorter import Sorter
from mongottl.query.spill import SpillSpace
from mongottl.storage.stores import MAX_RECORD_ID, KeyEntry, KeyRange, Record, SortedDataInterface
from mongottl.ttl.policy import NO_TTL

# Records (or index entries) that one call examines at most. Scans obey the operation's `step_records` as well.
BATCH: Final = MAX_STEP_RECORDS
# Bytes of documents that one call reads; the last document may exceed it. It bounds what one cursor makes the server
# hold in memory. No batch sent to a client is larger.
BATCH_BYTES: Final = 16 << 20
# After a batch that takes longer than this, the next is half as large.
SLOW_BATCH_S: Final = 0.002
# Where the first batch of a cursor is small and a filter may reject records, scans begin with this many and double.
FIRST_BATCH: Final = 16
# Ranges of an index that one call visits at most; each costs a seek even when it is empty.
MAX_RANGES_PER_CALL: Final = 32


class PlanNode:
    """A stage as explain shows it.

    details: its plan fields, in mongod's order, without its filter; counters: its execution statistics. filter: what
    the stage tests documents against, or None. A client decides how long a filter is, and the profiler and the log ask
    each slow operation for a few numbers of its plan, so filters are described when explain shows them.
    """

    def __init__(
        self,
        stage: str,
        details: dict[str, Value],
        inputs: "list[PlanNode]",
        counters: "StageCounters | None" = None,
        filter: MatchExpression | None = None,
    ) -> None:
        give_way()
        self.stage = stage
        self._details = details
        self.inputs = inputs
        self.counters = StageCounters() if counters is None else counters
        self.filter = filter

    def key_pattern(self) -> Value:
        """The key pattern of the index that the stage scans, if it scans one: a document, or the text of one for an
        express stage. Without the other plan fields, which may take long to describe."""
        return self._details.get("keyPattern")

    def described_filter(self) -> dict[str, Value]:
        """`{"filter": …}`, or nothing."""
        return {} if self.filter is None else {"filter": self.filter.describe()}

    def described(self) -> dict[str, Value]:
        """The plan fields without the filter."""
        return self._details

    def planned(self) -> dict[str, Value]:
        """The stage as part of a `winningPlan`."""
        give_way()
        described: dict[str, Value] = {"stage": self.stage}
        described.update(self.described_filter())
        described.update(self.described())
        if len(self.inputs) == 1 and self.stage not in ("OR", "SORT_MERGE"):
            described["inputStage"] = self.inputs[0].planned()
        elif self.inputs:
            inputs: list[Value] = list_for(len(self.inputs))
            for child in self.inputs:
                inputs.append(child.planned())
            described["inputStages"] = inputs
        return described


class StageCounters:
    """Execution statistics of a stage. extra: those of its stage type, by mongod's names (docsExamined)."""

    def __init__(self) -> None:
        self.examined = 0
        self.returned = 0
        self.exhausted = False
        self.elapsed_s = 0.0
        self.extra: dict[str, Value] = {}


class PlanStage(ABC):
    """The base of all stages. Callers use `next_batch`; stages implement `pull`.

    returned: records returned so far. examined: records, or index entries, that a scan has read so far.
    """

    def __init__(self) -> None:
        give_way()
        self.returned = 0
        self.examined = 0
        self.exhausted = False
        self.timed = False
        self.elapsed_s = 0.0

    def next_batch(self, op: OperationContext) -> list[Record] | None:
        """The next records; [] if there are none yet, None at the end.

        QueryPlanKilled (175) if the collection, or an index that the plan uses, has been dropped.
        """
        if self.timed:
            return self._timed_batch(op)
        begun = begin_evaluation()
        try:
            batch = self.pull(op)
        finally:
            if begun:
                end_evaluation()
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
        """Implements `next_batch`: records, [] or None."""
        raise NotImplementedError

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        """Moves back, so that the next call begins with these records: the last ones of the latest batch.

        Must be called in the step in which the batch was returned. False, without effect, if a stage cannot move back.
        """
        return False

    def set_batch_bytes(self, size: int) -> None:
        """Limits the bytes of documents that scans read in one call; the last document may exceed it."""
        for stage in self.inputs():
            stage.set_batch_bytes(size)

    def check_indexes(self) -> None:
        """QueryPlanKilled (175) if an index that the plan uses has been dropped, also one that it has read to its end.

        As in MongoDB, where each stage checks its index when a cursor goes on.
        """
        for stage in self.inputs():
            stage.check_indexes()

    @abstractmethod
    def node(self) -> PlanNode:
        """This stage and its inputs for explain, with their current counters."""
        raise NotImplementedError

    def inputs(self) -> "list[PlanStage]":
        return []

    def executed_inputs(self) -> "list[PlanStage]":
        """The inputs without those that are kept for the case that another one fails."""
        return self.inputs()

    def held_bytes(self) -> int:
        """Approximate bytes of the records that this stage and its inputs keep in memory for later batches."""
        return sum([stage.held_bytes() for stage in self.inputs()])

    def spill(self, space: SpillSpace) -> bool:
        """Moves some of them to temporary files, a few milliseconds' work; False if none can be moved."""
        return any(stage.spill(space) for stage in self.inputs())

    def close(self) -> None:
        """Releases buffered records. May be called more than once."""
        for stage in self.inputs():
            stage.close()

    def examined_below(self) -> int:
        """The sum of `examined` of this stage and all its inputs."""
        total = self.examined
        for stage in self.inputs():
            total += stage.examined_below()
        return total

    def set_timed(self) -> None:
        """Makes this stage and all its inputs measure their time."""
        self.timed = True
        for stage in self.inputs():
            stage.set_timed()

    def set_guarded(self) -> None:
        """Makes scans of a capped collection raise CappedPositionLost (136) if the record at their position is gone."""
        for stage in self.inputs():
            stage.set_guarded()

    def gives_current_records(self) -> bool:
        """Whether `next_batch` reads each record that it returns within that call, and tests the filter on it.

        If not, a write must read and test the record again: other operations may have changed it since it was read.
        """
        return False

    def set_each_once(self) -> None:
        """Makes scans return each record once even if a write moves it ahead of them in their index.

        For updates and deletes. Scans keep the ids of returned records (`record_ids`), except scans by record id or
        `_id`, which never read a record twice.
        """
        for stage in self.inputs():
            stage.set_each_once()

    def set_keyed(self) -> None:
        """Makes index scans attach to each document the key under which they found it (`returnKey`)."""
        for stage in self.inputs():
            stage.set_keyed()

    def counters(self, examined: int) -> StageCounters:
        counters = StageCounters()
        counters.examined = examined
        counters.returned = self.returned
        counters.exhausted = self.exhausted
        counters.elapsed_s = self.elapsed_s
        return counters


def check_alive(collection: Collection) -> None:
    """QueryPlanKilled (175) if the collection has been dropped."""
    if collection.dropped:
        raise collection_dropped(collection)


def check_index(collection: Collection, index: CollectionIndex) -> None:
    """QueryPlanKilled (175) if the index, or the collection, has been dropped."""
    check_alive(collection)
    if index not in collection.indexes:
        raise CommandError(ErrorCode.QueryPlanKilled, f"index '{index.name}' dropped")


def check_position(op: OperationContext, collection: Collection, record_id: int) -> None:
    """CappedPositionLost (136) if the record at a scan's position was deleted to make room in a capped collection.

    Called after what follows the position was read: if it is there still, nothing between them was lost before.
    Expired records may be purged at any time, so in a collection with a TTL a missing record is no error.
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
    """How many records a scan reads next, after a batch of `size` records that began at `started_s` (monotonic).

    Sizes double up to BATCH. A slow filter (hundreds of regular expressions) halves them, since other clients wait
    while a batch is processed; not if the operation is metered, because what it reads must not depend on time. While
    the store is asked they do not wait: a slow one is asked for as much at a time as a quick one.
    """
    if op.cost.meter is None and op.service.stacks.worked_s(started_s) > SLOW_BATCH_S:
        return max(size // 2, FIRST_BATCH)
    return size if size >= BATCH else min(size * 2, BATCH)


def first_batch_size(wanted: int, filtered: bool) -> int:
    """How many records a scan reads first, if the first batch of the cursor needs `wanted` (0: unknown)."""
    if wanted <= 0 or wanted >= BATCH:
        return BATCH
    if filtered:
        return max(wanted, FIRST_BATCH)
    return wanted


def entry_before(
    data: SortedDataInterface, key_range: KeyRange, after: KeyEntry | None, record_id: int
) -> tuple[bool, KeyEntry | None]:
    """Searches a range, after the entry `after`, for the first entry of a record.

    Whether there is one, and the entry before it, None if it is the first. Without one: the last entry of the range.
    """
    last = after
    while True:
        entries, more = data.scan(key_range, last, BATCH, BATCH_BYTES)
        for entry in entries:
            if entry[1] == record_id:
                return True, last
            last = entry
        if not more:
            return False, last


def size_after_putting_back(given: int, records: list[Record]) -> int:
    """How many records a scan reads next, after these of `given` returned ones were put back."""
    return max(given - len(records), 1)


class EofStage(PlanStage):
    """Returns no records: the collection does not exist, or the filter is always false.

    reason: which of them, as mongod's explain names it.
    """

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
    """The COLLSCAN node of explain, for all stages that read a whole collection."""
    counters.extra = {"docsExamined": examined}
    return PlanNode("COLLSCAN", {"direction": "forward" if forward else "backward"}, [], counters, match)


class CollectionScan(PlanStage):
    """All records in the order of their ids. match: None for no filter. span: the part of the oplog to read."""

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
        self._batch_count = 0  # records of the latest batch
        self._ended = False
        self._begun = False
        self._guarded = False
        # The only one whose records match (`RecordStore.of_partition`), None if that is not known.
        self.partition: bytes | None = None

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
            if self._span is not None:
                self._position = self._span.start(op.service.oplog, self._forward, self._position)
        size = min(self._size, op.pace.step_records)
        started_s = op.service.monotonic_s()
        store = op.recovery_unit.records(collection)
        if self.partition is not None:
            store = store.of_partition(self.partition)
        records, more = store.scan(self._position, size, self._forward, BATCH_BYTES)
        if self._guarded and self.examined:
            check_position(op, collection, self._position)
        if op.was_left:
            check_alive(collection)  # of one that was dropped meanwhile, only a part may have been read
        self.examined += len(records)
        op.pace.records_examined += len(records)
        if not more:
            self._ended = True
            if not records:
                return None
        self._position = records[-1][0]
        if self._span is not None and self._span.is_left(records[-1], self._forward):
            self._ended = True
        match = self._match
        if match is not None:
            asks = match.asks_processes()
            if asks:
                match.test_ahead([record[1] for record in records])
            records = [record for record in records if match.matches(record[1])]
            if asks:
                match.end_ahead()
        self._size = next_batch_size(op, size, started_s)
        if collection.default_ttl_s != NO_TTL:
            records = unexpired(collection, records, op.now_s)
        self._batch_count = len(records)
        return records

    def put_back(self, op: OperationContext, records: list[Record]) -> bool:
        if self._guarded:
            return False  # `check_position` needs the id of a record that was read
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
    """Returns the first `limit` records, then closes its input."""

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
    """Reads all of its input, then returns it in order; with a limit only the first ones are kept.

    Records that are expired when they are returned are left out. Each call does a bounded amount of work
    (`query.sorter`).

    sorter: its limits may be changed before the first batch. memory_limit_bytes: explain's `memLimit`.
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
        # The state of the collection when the first records were read.
        self._mark: ReadMark | None = None

    def inputs(self) -> list[PlanStage]:
        return [self._child]

    def pull(self, op: OperationContext) -> list[Record] | None:
        sorter = self.sorter
        if sorter.pending:
            sorter.work()
            return []
        if self._reading:
            mark = self._mark
            if mark is None:
                mark = ReadMark(self._collection, op, self._child.gives_current_records())
            batch = self._child.next_batch(op)
            if batch is None:
                self._reading = False
                sorter.finish()
                return []
            if self._mark is None:
                self._mark = mark
                sorter.use_memory(op.resources.memory)
            pattern = self._pattern  # not its method, as a variable that would be called by way of Python
            for record_id, document, ts_s, ttl_s in batch:
                sorter.add(pattern.sort_key(document), document, record_id, ts_s, ttl_s)
            sorter.check()
            return []
        records: list[Record] = []
        for _, _, document, record_id, ts_s, ttl_s in sorter.take(BATCH):
            records.append((record_id, document, ts_s, ttl_s))
        if not records:
            self.close()
            return None
        mark = self._mark
        return records if mark is None else mark.unexpired(op, records)

    def held_bytes(self) -> int:
        return self.sorter.held_bytes() + self._child.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self.sorter.spill(space) or self._child.spill(space)

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
    """A plan with a blocking sort, and a backup plan without one for when the sort exceeds its memory limit.

    The first returns nothing before its sort is complete, so the backup plan can start from the beginning, as MongoDB's
    backup plan does.
    """

    def __init__(self, first: PlanStage, backup: PlanStage) -> None:
        super().__init__()
        self._current: PlanStage = first
        self._backup: PlanStage | None = backup

    def inputs(self) -> list[PlanStage]:
        return [self._current] if self._backup is None else [self._current, self._backup]

    def executed_inputs(self) -> list[PlanStage]:
        return [self._current]

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
