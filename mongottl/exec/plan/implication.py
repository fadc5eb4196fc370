"""Whether a query can only match what a partial index holds.

Conservative: True is a proof, False means nothing. Values are compared by the ranges that filters state; anything else
must stand in both filters in the same words.
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

# Parts of the query times parts of the index's filter beyond which nothing is looked for.
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
        return _same_words(query, filter)
    return _same_words(query, filter)


def _leaf_implies(query: PathExpression, filter: PathExpression) -> bool:
    """The same for two leaves on one path: whether every value that passes the one passes the other."""
    if isinstance(filter, ExistsExpression):
        return not query.matches_single(b"", 0, -1)
    if not query.traverse_leaf or not filter.traverse_leaf:
        return False  # what takes arrays whole says nothing about single values
    orders = text_orders(query) + text_orders(filter)
    if orders and not all_orders_equal(orders, orders[0]):
        return False
    ranges = query.intervals()
    allowed = filter.intervals()
    if ranges is None or allowed is None:
        return False
    # Both are ascending and disjoint: only the first of `allowed` that does not end before a range can contain it.
    place = 0
    for inner in ranges:
        while place < len(allowed) and compare_highs(allowed[place], inner) < 0:
            place += 1
        if place == len(allowed) or not _contains(allowed[place], inner):
            return False
    return True


def _contains(outer: Interval, inner: Interval) -> bool:
    return outer.exact and compare_lows(outer, inner) <= 0 and compare_highs(outer, inner) >= 0


def _same_words(query: MatchExpression, filter: MatchExpression) -> bool:
    if isinstance(filter, (WholeDocumentExpression, ListExpression)):
        return False
    if isinstance(query, (PathExpression, NotExpression)) and isinstance(filter, (PathExpression, NotExpression)):
        orders = text_orders(query) + text_orders(filter)
        if orders and not all_orders_equal(orders, orders[0]):
            return False
        return encode_value(query.describe()) == encode_value(filter.describe())
    return False
