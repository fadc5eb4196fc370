"""Whether all documents that match a query are in a partial index.

Conservative: True is a proof, False means that there is no proof. Predicates on values are compared by their intervals;
all others must be equal in both filters.
"""

from typing import Final

from mongottl.document.keystring import encode_value
from mongottl.query.match import MatchExpression
from mongottl.query.match.elements import ExistsExpression
from mongottl.query.match.interval import Interval, compare_highs, compare_lows
from mongottl.query.match.text_order import all_orders_equal, text_orders
from mongottl.query.match.tree import (
    AlwaysFalse,
    AlwaysTrue,
    AndExpression,
    ListExpression,
    NotExpression,
    OrExpression,
    PathExpression,
    WholeDocumentExpression,
)

# No proof is tried if the conditions of the query times those of the index's filter are more.
MAX_COMPARED: Final = 100_000


def implies(query: MatchExpression, filter: MatchExpression) -> bool:
    """Whether every document that matches `query` matches `filter` as well."""
    return _parts(query) * _parts(filter) <= MAX_COMPARED and _implies(query, filter)


def _parts(match: MatchExpression) -> int:
    """How many conditions a filter has."""
    if isinstance(match, ListExpression):
        return sum(_parts(child) for child in match.children)
    return 1


def _implies(query: MatchExpression, filter: MatchExpression) -> bool:
    if isinstance(filter, AndExpression):
        return all(_implies(query, part) for part in filter.children)
    if isinstance(filter, AlwaysTrue) or isinstance(query, AlwaysFalse):
        return True
    if isinstance(query, OrExpression):
        return all(_implies(branch, filter) for branch in query.children)
    if isinstance(query, AndExpression) and any(_implies(part, filter) for part in query.children):
        return True
    if isinstance(filter, OrExpression):
        return any(_implies(query, branch) for branch in filter.children)
    if isinstance(query, PathExpression) and isinstance(filter, PathExpression):
        if query.path.dotted == filter.path.dotted and _leaf_implies(query, filter):
            return True
        return _is_equal(query, filter)
    return _is_equal(query, filter)


def _leaf_implies(query: PathExpression, filter: PathExpression) -> bool:
    """Whether every value that matches `query` matches `filter`: two predicates on one path."""
    if isinstance(filter, ExistsExpression):
        return not query.matches_single(b"", 0, -1)
    if not query.traverse_leaf or not filter.traverse_leaf:
        return False  # a predicate on whole arrays proves nothing about their elements
    orders = text_orders(query) + text_orders(filter)
    if orders and not all_orders_equal(orders, orders[0]):
        return False
    ranges = query.intervals()
    allowed = filter.intervals()
    if ranges is None or allowed is None:
        return False
    # Both are ascending and disjoint: only the first of `allowed` that does not end before a range can contain it.
    i = 0
    for inner in ranges:
        while i < len(allowed) and compare_highs(allowed[i], inner) < 0:
            i += 1
        if i == len(allowed) or not _contains(allowed[i], inner):
            return False
    return True


def _contains(outer: Interval, inner: Interval) -> bool:
    return outer.exact and compare_lows(outer, inner) <= 0 and compare_highs(outer, inner) >= 0


def _is_equal(query: MatchExpression, filter: MatchExpression) -> bool:
    if isinstance(filter, (WholeDocumentExpression, ListExpression)):
        return False
    if isinstance(query, (PathExpression, NotExpression)) and isinstance(filter, (PathExpression, NotExpression)):
        orders = text_orders(query) + text_orders(filter)
        if orders and not all_orders_equal(orders, orders[0]):
            return False
        return encode_value(query.describe()) == encode_value(filter.describe())
    return False
