"""Whether a query can only match what a partial index holds.

Conservative: True is a proof, False means nothing. Values are compared by the ranges that filters state; anything else
must stand in both filters in the same words.
"""

from mongottl.document.keystring import encode_value
from mongottl.query.match import MatchExpression
from mongottl.query.match.elements import ExistsExpression
from mongottl.query.match.interval import Interval, compare_highs, compare_lows
from mongottl.query.match.text_order import agree, text_orders
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


def implies(query: MatchExpression, filter: MatchExpression) -> bool:
    """Whether every document that matches `query` matches `filter` as well."""
    if isinstance(filter, AndExpression):
        return all(implies(query, part) for part in filter.children)
    if isinstance(filter, AlwaysTrue) or isinstance(query, AlwaysFalse):
        return True
    if isinstance(query, OrExpression):
        return all(implies(branch, filter) for branch in query.children)
    if isinstance(query, AndExpression) and any(implies(part, filter) for part in query.children):
        return True
    if isinstance(filter, OrExpression):
        return any(implies(query, branch) for branch in filter.children)
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
    if orders and not agree(orders, orders[0]):
        return False
    ranges = query.intervals()
    allowed = filter.intervals()
    if ranges is None or allowed is None:
        return False
    return all(any(_contains(outer, inner) for outer in allowed) for inner in ranges)


def _contains(outer: Interval, inner: Interval) -> bool:
    return outer.exact and compare_lows(outer, inner) <= 0 and compare_highs(outer, inner) >= 0


def _same_words(query: MatchExpression, filter: MatchExpression) -> bool:
    if isinstance(filter, (WholeDocumentExpression, ListExpression)):
        return False
    if isinstance(query, (PathExpression, NotExpression)) and isinstance(filter, (PathExpression, NotExpression)):
        orders = text_orders(query) + text_orders(filter)
        if orders and not agree(orders, orders[0]):
            return False
        return encode_value(query.describe()) == encode_value(filter.describe())
    return False
