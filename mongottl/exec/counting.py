"""Counting the documents that match."""

from mongottl.catalog.collection import Collection
from mongottl.document.types import MISSING, Value
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.expiry import count_expired
from mongottl.exec.planner import is_trivial, plan_query
from mongottl.query.match import MatchExpression


def within(count: int, skip: int, limit: int) -> int:
    """What is left of a count after `skip` and `limit` (0: none)."""
    left = max(0, count - skip)
    return min(left, limit) if limit else left


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
    if collection is None:
        return 0
    if is_trivial(match) and hint is MISSING:
        return within(collection.store.count() - count_expired(collection, op.now_s), skip, limit)
    stage = plan_query(op, collection, match, skip=skip, limit=limit, hint=hint).open()
    count = 0
    while (batch := stage.next_batch(op)) is not None:
        count += len(batch)
        op.check_interrupt()
        yield None
    return count
