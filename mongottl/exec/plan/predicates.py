"""From a filter to predicates on single paths.

A filter is a conjunction. A predicate states for one of its parts the intervals of one path's values outside of which
the part is false; `bounds` turns predicates into ranges of index keys.
"""

from typing import Final

from mongottl.document.collation import Collation
from mongottl.document.compare import (
    BRACKET_NULL,
    BRACKET_UNDEFINED,
)
from mongottl.document.freeing import append_to, list_for, put_aside
from mongottl.document.interrupt import give_way
from mongottl.document.path import FieldPath
from mongottl.document.types import MaxKey, MinKey
from mongottl.exec.plan.expr_bounds import compared_paths
from mongottl.query.match import MatchExpression
from mongottl.query.match.arrays import ElemMatchObjectExpression
from mongottl.query.match.comparison import EQ, ComparisonExpression, InExpression
from mongottl.query.match.interval import BracketEnd, BracketStart, Interval, union
from mongottl.query.match.special import ExprExpression
from mongottl.query.match.text_order import text_orders
from mongottl.query.match.tree import AndExpression, NorExpression, NotExpression, OrExpression, PathExpression, path_of

# Conjuncts beside an `$or` that may narrow the bounds of its branches. The others are only tested on the documents:
# bounds of n branches with n other conjuncts would cost the square of the filter's length.
MAX_PARTS_BESIDE: Final = 16


class Predicate:
    """The intervals of one path's values in which one part of a filter may be true.

    source: the conjunct that contains this part. exact, exact_multikey: whether a key in the intervals proves the
    source, in an index that is not multikey, and in one that is. of_null: whether the source is an equality to null,
    for which counts need no documents: null and a missing field have the same key, and it matches both.
    exists: whether the source is false where the path is missing. elements: the $elemMatch around it, outermost first,
    as (serial number, path). orders: the collations that the intervals depend on.
    """

    def __init__(
        self,
        path: str,
        intervals: list[Interval],
        source: MatchExpression,
        exact: bool,
        exact_multikey: bool,
        exists: bool,
        elements: list[tuple[int, str]],
        orders: list[Collation | None] | None = None,
    ) -> None:
        self.orders: list[Collation | None] = [] if orders is None else orders
        self.path = path
        self.intervals = intervals
        self.source = source
        self.exact = exact
        self.exact_multikey = exact_multikey
        self.exists = exists
        self.of_null = False
        self.elements = elements
        self.points = bool(intervals) and all(interval.is_point for interval in intervals)
        self.full = len(intervals) == 1 and is_everything(intervals[0])


class Filter:
    """A filter as its conjuncts, with their predicates by path."""

    def __init__(self, conjuncts: list[MatchExpression]) -> None:
        self.conjuncts = conjuncts
        self.by_path: dict[str, list[Predicate]] = {}
        # Predicates from `$expr` on the whole value of a path; used if an index has no arrays on it.
        self.of_whole: dict[str, list[Predicate]] = {}
        self._serial = 0
        for conjunct in conjuncts:
            self._collect(conjunct, conjunct, "", [])

    def let_go(self) -> None:
        """Called when it is not used any more: what is long is freed in slices."""
        put_aside(self.by_path)
        self.by_path = {}

    def _add(self, predicate: Predicate) -> None:
        append_to(self.by_path, predicate.path, predicate)

    def _collect(
        self, part: MatchExpression, source: MatchExpression, prefix: str, elements: list[tuple[int, str]]
    ) -> None:
        give_way()
        if isinstance(part, ElemMatchObjectExpression):
            path = prefix + part.path.dotted
            self._serial += 1
            within = [*elements, (self._serial, path)]
            child = part.child
            inner = child.children if isinstance(child, AndExpression) else [child]
            for condition in inner:
                self._collect(condition, source, path + ".", within)
        elif isinstance(part, PathExpression):
            intervals = part.intervals()
            if intervals is None:
                return
            exact = not elements and _all_exact(intervals)
            everywhere = exact and isinstance(part, (ComparisonExpression, InExpression)) and _within_values(intervals)
            exists = not part.matches_single(b"", 0, -1)
            path = prefix + part.path.dotted
            orders = text_orders(part)
            predicate = Predicate(path, intervals, source, exact, everywhere, exists, elements, orders)
            predicate.of_null = not elements and _equals_null(part, intervals)
            self._add(predicate)
        elif isinstance(part, NotExpression):
            self._collect_not(part, source, prefix, elements, True)
        elif isinstance(part, NorExpression):
            # All parts must be false; each gives a predicate, but none of them proves the whole $nor.
            for child in part.children:
                self._collect_not(NotExpression(child), source, prefix, elements, False)
        elif isinstance(part, OrExpression):
            self._collect_or(part, source, prefix, elements)
        elif isinstance(part, ExprExpression):
            for compared in compared_paths(part.expression):
                predicate = Predicate(compared.path, [compared.interval], source, False, False, compared.exists, [])
                if compared.texts:
                    predicate.orders = [compared.collation]
                append_to(self.of_whole, compared.path, predicate)

    def _collect_not(
        self, part: NotExpression, source: MatchExpression, prefix: str, elements: list[tuple[int, str]], whole: bool
    ) -> None:
        """Adds the predicate of a negation. whole: whether it is the whole source."""
        give_way()
        inner_path = path_of(part.child)
        intervals = part.intervals() if inner_path is not None else None
        if intervals is not None and inner_path is not None:
            exact = whole and not elements and _all_exact(intervals)
            path = prefix + inner_path.dotted
            self._add(Predicate(path, intervals, source, exact, False, False, elements, text_orders(part)))

    def _collect_or(
        self, part: OrExpression, source: MatchExpression, prefix: str, elements: list[tuple[int, str]]
    ) -> None:
        """Adds one predicate for an `$or` whose branches are all predicates on one path."""
        intervals: list[Interval] = list_for(len(part.children))
        path: FieldPath | None = None
        everywhere = True
        exists = True
        for child in part.children:
            give_way()
            if not isinstance(child, PathExpression) or isinstance(child, ElemMatchObjectExpression):
                return
            if path is None:
                path = child.path
            ranges = child.intervals()
            if ranges is None or path.dotted != child.path.dotted:
                return
            intervals.extend(ranges)
            everywhere = everywhere and isinstance(child, (ComparisonExpression, InExpression))
            exists = exists and not child.matches_single(b"", 0, -1)
        if path is None:
            return
        everywhere = everywhere and _within_values(intervals) and not elements
        merged = union(intervals)
        exact = not elements and _all_exact(merged)
        everywhere = exact and everywhere
        orders = text_orders(part)
        self._add(Predicate(prefix + path.dotted, merged, source, exact, everywhere, exists, elements, orders))


def conjuncts_of(match: MatchExpression) -> list[MatchExpression]:
    """The parts of a filter that must all be true."""
    return match.children if isinstance(match, AndExpression) else [match]


def parts_beside(conjuncts: list[MatchExpression], one: MatchExpression) -> list[MatchExpression]:
    """The conjuncts without `one`. Beyond MAX_PARTS_BESIDE the rest is one AND, which gives no index bounds."""
    others: list[MatchExpression] = list_for(len(conjuncts))
    for conjunct in conjuncts:
        give_way()
        if conjunct is not one:
            others.append(conjunct)
    if len(others) <= MAX_PARTS_BESIDE:
        return others
    return [*others[:MAX_PARTS_BESIDE], AndExpression(others[MAX_PARTS_BESIDE:])]


def is_everything(interval: Interval) -> bool:
    """Whether the range is [MinKey, MaxKey]."""
    return (
        isinstance(interval.low, MinKey)
        and interval.low_inclusive
        and isinstance(interval.high, MaxKey)
        and interval.high_inclusive
    )


def _all_exact(intervals: list[Interval]) -> bool:
    for interval in intervals:
        give_way()
        if not interval.exact:
            return False
    return True


def _equals_null(part: MatchExpression, intervals: list[Interval]) -> bool:
    """Whether the part is an equality to null, or to one of several values with null among them."""
    if isinstance(part, ComparisonExpression):
        return part.operator == EQ and part.value is None
    if not isinstance(part, InExpression) or part.regexes:
        return False
    return all(interval.exact or (interval.is_point and interval.low is None) for interval in intervals)


def _within_values(intervals: list[Interval]) -> bool:
    """Whether all keys in the intervals are values: null may also mean missing, undefined an empty array."""
    for interval in intervals:
        give_way()
        for end in (interval.low, interval.high):
            if end is None or isinstance(end, (MinKey, MaxKey)):
                return False
            if isinstance(end, (BracketStart, BracketEnd)) and end.bracket in (BRACKET_NULL, BRACKET_UNDEFINED):
                return False
    return True
