"""Bounds of a filter on the `ts` of `local.oplog.rs`, whose records are in that order."""

from mongottl.catalog.collection import Collection
from mongottl.document.types import Timestamp
from mongottl.exec.plan.predicates import Filter, conjuncts_of
from mongottl.exec.stages.oplog_span import OplogSpan
from mongottl.oplog.log import OPLOG_NUMBER
from mongottl.query.match import MatchExpression


def oplog_span(collection: Collection, match: MatchExpression | None) -> OplogSpan | None:
    """The part of the oplog that a filter leaves; None for another collection, and without bounds."""
    if match is None or collection.number != OPLOG_NUMBER:
        return None
    low: tuple[int, int] | None = None
    high: tuple[int, int] | None = None
    for predicate in Filter(conjuncts_of(match)).by_path.get("ts", []):
        lows: list[tuple[int, int]] = []
        highs: list[tuple[int, int]] = []
        for interval in predicate.intervals:
            if isinstance(interval.low, Timestamp):
                lows.append((interval.low.time, interval.low.inc))
            if isinstance(interval.high, Timestamp):
                highs.append((interval.high.time, interval.high.inc))
        count = len(predicate.intervals)
        if lows and len(lows) == count:
            low = min(lows) if low is None else max(low, min(lows))
        if highs and len(highs) == count:
            high = max(highs) if high is None else min(high, max(highs))
    return None if low is None and high is None else OplogSpan(low, high)
