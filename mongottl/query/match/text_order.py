"""The collations on which the ranges of a filter depend: the planner may use them only on indexes of the same
collation.

A comparison with a string, or with a document or array, which may contain strings, uses the operation's collation, and
its `intervals` are ranges of sort keys. A regular expression uses the bytes of strings. Other ranges, of numbers for
example, do not depend on collations.
"""

from mongottl.document.collation import Collation, may_hold_text, same_collation
from mongottl.document.interrupt import give_way
from mongottl.query.match.arrays import ElementsExpression
from mongottl.query.match.comparison import ComparisonExpression, InExpression
from mongottl.query.match.regex import RegexExpression
from mongottl.query.match.tree import ListExpression, MatchExpression, NotExpression


def text_orders(expression: MatchExpression) -> list[Collation | None]:
    """The collations on which the ranges of an expression depend; None is the order of bytes; [] if any index can be
    used."""
    orders: list[Collation | None] = []
    _collect(expression, orders)
    return orders


def all_orders_equal(orders: list[Collation | None], collation: Collation | None) -> bool:
    """Whether all of these collations equal the given one, that of an index."""
    return all(same_collation(order, collation) for order in orders)


def _collect(expression: MatchExpression, orders: list[Collation | None]) -> None:
    give_way()
    if isinstance(expression, ComparisonExpression):
        if may_hold_text(expression.value):
            orders.append(expression.collation)
    elif isinstance(expression, InExpression):
        if expression.regexes:
            orders.append(None)
        for value in expression.values:
            give_way()
            if may_hold_text(value):
                orders.append(expression.collation)
                break
    elif isinstance(expression, RegexExpression):
        orders.append(None)
    elif isinstance(expression, (ElementsExpression, NotExpression)):
        _collect(expression.child, orders)
    elif isinstance(expression, ListExpression):
        for child in expression.children:
            _collect(child, orders)
