"""The collations on which the ranges of a filter depend: the planner may use them only on indexes of the same
collation.

A comparison with a string, or with a document or array, which may contain strings, uses the operation's collation, and
its `intervals` are ranges of sort keys. A regular expression uses the bytes of strings. Other ranges, of numbers for
example, do not depend on collations. Each node that has ranges says so itself, in `add_text_orders`.
"""

from mongottl.document.collation import Collation, same_collation
from mongottl.query.match.tree import MatchExpression


def text_orders(expression: MatchExpression) -> list[Collation | None]:
    """The collations on which the ranges of an expression depend; None is the order of bytes; [] if any index can be
    used."""
    orders: list[Collation | None] = []
    expression.add_text_orders(orders)
    return orders


def all_orders_equal(orders: list[Collation | None], collation: Collation | None) -> bool:
    """Whether all of these collations equal the given one, that of an index."""
    return all(same_collation(order, collation) for order in orders)
