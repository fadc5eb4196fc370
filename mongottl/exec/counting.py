"""Counting the documents that match.

Three ways, the cheapest that is exact: without a filter the store knows its number, less what is expired; where ranges
of an index say all that the filter does, entries are counted without looking at records (COUNT_SCAN in mongod); else
the plan is run. Entries do not tell what is expired, so the second way is closed while the collection's TTL is on.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import MISSING, Value
from mongottl.exec.access import CollectionPath, IndexPath
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.expiry import count_expired
from mongottl.exec.planner import QueryPlan, is_trivial, plan_query
from mongottl.exec.reading import Pull
from mongottl.query.match import MatchExpression
from mongottl.query.pipeline import BATCH_SIZE, DocumentSource
from mongottl.ttl.policy import NO_TTL

# Ranges up to which they are counted in one go, without letting others run; more are scanned.
_MAX_RANGES: Final = 32


def within(count: int, skip: int, limit: int) -> int:
    """What is left of a count after `skip` and `limit` (0: none)."""
    left = max(0, count - skip)
    return min(left, limit) if limit else left


def count_scan_of(plan: QueryPlan) -> IndexPath | None:
    """The plan's index path if its entries can be counted instead of its documents, else None."""
    path = plan.path
    if not isinstance(path, IndexPath) or path.residual is not None or path.express:
        return None
    # Of a multikey index several entries may belong to one document.
    if path.bounds.multikey or path.collection.default_ttl_s != NO_TTL:
        return None
    return path


def counted_at_once(op: OperationContext, plan: QueryPlan) -> int | None:
    """How many documents a plan gives, if it need not be run for that."""
    path = plan.path
    if isinstance(path, CollectionPath) and path.match is None:
        count = path.collection.store.count() - count_expired(path.collection, op.now_s)
        return within(count, plan.skip, plan.limit)
    scan = count_scan_of(plan)
    data = None if scan is None else scan.bounds.index.data
    if scan is None or data is None or len(scan.bounds.ranges) > _MAX_RANGES:
        return None
    scan.bounds.index.accesses += 1
    count = 0
    for low, high in scan.bounds.ranges:
        count += data.count_range(low, high)
    return within(count, plan.skip, plan.limit)


class CountedDocuments(DocumentSource):
    """As many empty documents as a plan gives, for a pipeline that looks at nothing in them. The plan is run if the
    number cannot be told otherwise.
    """

    def __init__(self, plan: QueryPlan, otherwise: DocumentSource, pull: Pull) -> None:
        self._plan = plan
        self._otherwise = otherwise
        self._pull = pull
        self._left: int | None = None
        self._counted = False

    def next_batch(self) -> list[bytes] | None:
        if not self._counted:
            self._counted = True
            self._left = counted_at_once(self._pull.op, self._plan)
        left = self._left
        if left is None:
            return self._otherwise.next_batch()
        if left == 0:
            return None
        size = min(left, BATCH_SIZE)
        self._left = left - size
        return [EMPTY_DOCUMENT] * size

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
) -> Steps[int]:
    """How many documents match, as the command `count` needs it.

    Errors are those of `plan_query` and of the stages.
    """
    if collection is None and not match.index_kinds():
        return 0
    if collection is not None and is_trivial(match) and hint is MISSING:
        return within(collection.store.count() - count_expired(collection, op.now_s), skip, limit)
    plan = plan_query(op, collection, match, skip=skip, limit=limit, hint=hint)
    known = counted_at_once(op, plan)
    if known is not None:
        return known
    count = 0
    stage = plan.open()
    while (batch := stage.next_batch(op)) is not None:
        count += len(batch)
        op.check_interrupt()
        yield None
    return count
