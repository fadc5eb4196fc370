"""Counting the documents that match.

The cheapest exact method is used: without a filter the record store knows its number of records, minus the expired
ones; if ranges of an index express the whole filter, index entries are counted, in a multikey index each record once
(mongod: a COUNT_SCAN over one range, else an IXSCAN without FETCH); otherwise the plan is executed. Index entries do
not show which documents are expired, so they are not counted while the collection's TTL is on.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.interrupt import Undivided
from mongottl.document.types import MISSING, Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.access_path import CollectionPath, IndexPath, OrPath
from mongottl.exec.plan.plan_ranker import is_trivial
from mongottl.exec.plan.planner import QueryPlan, make_plan, plan_query
from mongottl.exec.results.reading import Pull
from mongottl.exec.stages.key_ranges import KeyRangeReader, RangePosition
from mongottl.exec.stages.record_ids import RecordIdSet
from mongottl.exec.stages.stage import BATCH, BATCH_BYTES, MAX_RANGES_PER_CALL, check_index
from mongottl.exec.write.expiry import count_living
from mongottl.query.match import MatchExpression
from mongottl.query.pipeline import BATCH_SIZE, DocumentSource
from mongottl.query.spill import SpillSpace
from mongottl.storage.stores import SortedDataInterface
from mongottl.ttl.policy import NO_TTL

# Entries that are counted in one step.
COUNTED_PER_STEP: Final = 5000
NEVER_ENOUGH: Final = 1 << 62


def within(count: int, skip: int, limit: int) -> int:
    """A count after `skip` and `limit` (0: no limit)."""
    left = max(0, count - skip)
    return min(left, limit) if limit else left


def count_scans_of(plan: QueryPlan) -> list[IndexPath]:
    """The plan's index path, or those of its OR, if their entries can be counted instead of its documents; else []."""
    path = plan.path
    scans: list[IndexPath] = []
    for scan in path.paths if isinstance(path, OrPath) else [path]:
        if not isinstance(scan, IndexPath) or scan.residual is not None or scan.id_plan:
            return []
        if scan.collection.default_ttl_s != NO_TTL or not scan.bounds.index.has_keys:
            return []
        scans.append(scan)
    return scans


def _unexpired_count(op: OperationContext, collection: Collection) -> int:
    with Undivided():
        records = op.recovery_unit.records(collection)
        if op.cost.meter is not None:
            op.cost.meter.load_bytes(records.size_bytes())  # a count costs as much as a scan
        return count_living(records, collection, op.now_s)


class EntryCount:
    """Counts the documents of a plan by the record store or by index entries (`scans`), a bounded part per step.

    In a multikey index several entries may belong to one document, and in an OR several scans may find it: each record
    id is counted once. With a limit it ends when enough are counted.
    """

    def __init__(self, plan: QueryPlan, scans: list[IndexPath]) -> None:
        self._plan = plan
        self._scans = scans
        self._count = 0
        self._enough = plan.skip + plan.limit if plan.limit else NEVER_ENOUGH
        self._seen: RecordIdSet | None = None
        if len(scans) > 1 or any(scan.bounds.multikey for scan in scans):
            self._seen = RecordIdSet()
        self._scan_index = -1
        self._at = RangePosition([], True)
        self._reader: KeyRangeReader | None = None
        for scan in scans:
            scan.bounds.index.accesses += 1
        self._begin_next_scan()

    def _begin_next_scan(self) -> bool:
        """False after the last one."""
        self._scan_index += 1
        if self._scan_index >= len(self._scans):
            return False
        bounds = self._scans[self._scan_index].bounds
        self._at = RangePosition(bounds.ranges, True)
        if self._seen is not None or bounds.trailing:
            self._reader = KeyRangeReader(bounds, self._at)
        return True

    def is_outdated(self) -> bool:
        """Whether an index became multikey, or the collection got a TTL, since planning: then count documents."""
        return any(
            scan.bounds.index.arrays is not scan.bounds.arrays or scan.collection.default_ttl_s != NO_TTL
            for scan in self._scans
        )

    def step(self, op: OperationContext) -> int | None:
        """The number, or None if there is more to count. QueryPlanKilled (175) if index or collection was dropped."""
        with Undivided():
            return self._step(op)

    def _step(self, op: OperationContext) -> int | None:
        plan = self._plan
        if not self._scans:
            collection = plan.collection
            assert collection is not None
            return within(_unexpired_count(op, collection), plan.skip, plan.limit)
        for scan in self._scans:
            check_index(scan.collection, scan.bounds.index)
        data = op.recovery_unit.index(self._scans[self._scan_index].bounds.index)
        read = 0
        for _ in range(MAX_RANGES_PER_CALL):
            if self._count >= self._enough:
                return within(self._count, plan.skip, plan.limit)
            if self._at.is_at_end():
                if self._begin_next_scan():
                    return None
                return within(self._count, plan.skip, plan.limit)
            if self._reader is not None:
                read += self._count_read(self._reader, data)
                if read >= BATCH:
                    return None
            elif not self._count_range(data):
                return None
        return None

    def _count_range(self, data: SortedDataInterface) -> bool:
        """Counts the next entries of the current range, without reading them if possible; whether it has ended."""
        at = self._at
        rest = at.rest()
        next_after = data.entry_at(rest, at.after, COUNTED_PER_STEP)
        if next_after is not None:
            self._count += COUNTED_PER_STEP + 1
            at.after = next_after
            return False
        if at.after is None:
            self._count += data.count_range(rest)
        else:
            entries, more = data.scan(rest, at.after, COUNTED_PER_STEP, BATCH_BYTES)
            self._count += len(entries)
            if more:
                at.after = entries[-1]
                return False
        at.to_next_range()
        return True

    def _count_read(self, reader: KeyRangeReader, data: SortedDataInterface) -> int:
        """Counts the records of the next entries, each once if the index is multikey; how many entries were read."""
        before = reader.examined
        seen = self._seen
        for _, record_id in reader.read(data, BATCH, BATCH_BYTES):
            if seen is None or seen.add(record_id):
                self._count += 1
        return reader.examined - before


def entry_count(plan: QueryPlan) -> EntryCount | None:
    """A count of a plan's documents without executing it; None if that is impossible."""
    path = plan.path
    if isinstance(path, CollectionPath) and path.match is None:
        return EntryCount(plan, [])
    scans = count_scans_of(plan)
    return EntryCount(plan, scans) if scans else None


class CountedDocuments(DocumentSource):
    """As many empty documents as a plan returns, for a pipeline that reads none of their fields.

    otherwise: the plan's documents, used if they cannot be counted without executing the plan.
    """

    def __init__(self, plan: QueryPlan, otherwise: DocumentSource, pull: Pull) -> None:
        self._otherwise = otherwise
        self._pull = pull
        self._count = entry_count(plan)
        self._left: int | None = None

    def next_batch(self) -> list[bytes] | None:
        count = self._count
        if count is None:
            return self._otherwise.next_batch()
        left = self._left
        if left is None:
            if count.is_outdated():
                self._count = None
            else:
                self._left = count.step(self._pull.op)
            return []
        if left == 0:
            return None
        size = min(left, BATCH_SIZE)
        self._left = left - size
        return [EMPTY_DOCUMENT] * size

    def held_bytes(self) -> int:
        return self._otherwise.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self._otherwise.spill(space)

    def is_outdated(self) -> bool:
        return self._otherwise.is_outdated()

    def close(self) -> None:
        self._otherwise.close()


def count_documents(
    op: OperationContext,
    collection: Collection | None,
    match: MatchExpression,
    *,
    skip: int = 0,
    limit: int = 0,
    hint: Value = MISSING,
) -> int:
    """How many documents match, for the command `count`. Errors are those of `plan_query` and of the stages."""
    if collection is None and not match.index_kinds():
        return 0
    if collection is not None and is_trivial(match) and hint is MISSING:
        return within(_unexpired_count(op, collection), skip, limit)
    plan = make_plan(op, collection, lambda: plan_query(op, collection, match, skip=skip, limit=limit, hint=hint))
    plan.count_only()
    entries = entry_count(plan)
    while entries is not None and not entries.is_outdated():
        known = entries.step(op)
        if known is not None:
            return known
        op.check_interrupt()
        op.give_way()
    if entries is not None:
        # The filter is to be tested, which the plan leaves to the index.
        plan = make_plan(op, collection, lambda: plan_query(op, collection, match, skip=skip, limit=limit, hint=hint))
        plan.count_only()
    count = 0
    stage = plan.open()
    op.note_plan(stage)
    while (batch := stage.next_batch(op)) is not None:
        count += len(batch)
        op.check_interrupt()
        op.give_way()
    return count
