"""Counting the documents that match.

Three ways, the cheapest that is exact: without a filter the store knows its number, less what is expired; where ranges
of an index say all that the filter does, entries are counted without looking at records (COUNT_SCAN in mongod); else
the plan is run. Entries do not tell what is expired, so the second way is closed while the collection's TTL is on.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.types import MISSING, Value
from mongottl.exec.access import IndexPath
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.expiry import count_expired
from mongottl.exec.planner import QueryPlan, is_trivial, plan_query
from mongottl.query.match import MatchExpression
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


def count_documents(
    op: OperationContext,
    collection: Collection | None,
    match: MatchExpression,
    *,
    skip: int = 0,
    limit: int = 0,
    hint: Value = MISSING,
) -> Steps[int]:
    """How many documents match, as the command `count` and an aggregation's lone `$count` need it.

    Errors are those of `plan_query` and of the stages.
    """
    if collection is None and not match.index_kinds():
        return 0
    if collection is not None and is_trivial(match) and hint is MISSING:
        return within(collection.store.count() - count_expired(collection, op.now_s), skip, limit)
    plan = plan_query(op, collection, match, skip=skip, limit=limit, hint=hint)
    count = 0
    path = count_scan_of(plan)
    data = None if path is None else path.bounds.index.data
    if path is not None and data is not None and len(path.bounds.ranges) <= _MAX_RANGES:
        path.bounds.index.accesses += 1
        for low, high in path.bounds.ranges:
            count += data.count_range(low, high)
        return within(count, skip, limit)
    stage = plan.open()
    while (batch := stage.next_batch(op)) is not None:
        count += len(batch)
        op.check_interrupt()
        yield None
    return count
