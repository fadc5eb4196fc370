"""In which order of texts a filter states its ranges, so that the planner knows what indexes they mean anything in.

A comparison with a text, or with a document or array, which may hold some, goes by the operation's collation, and its
`intervals` are of sort keys then. A regular expression goes by the bytes of the text. Nothing else asks how texts are
ordered: a range of numbers is the same in every index.
"""

from mongottl.document.collation import Collation, may_hold_text, same_collation
from mongottl.query.match.arrays import ElementsExpression
from mongottl.query.match.comparison import ComparisonExpression, InExpression
from mongottl.query.match.regex import RegexExpression
from mongottl.query.match.tree import ListExpression, MatchExpression, NotExpression


def text_orders(expression: MatchExpression) -> list[Collation | None]:
    """The orders that an expression's ranges depend on; none if any index will do."""
    orders: list[Collation | None] = []
    _collect(expression, orders)
    return orders


def agree(orders: list[Collation | None], collation: Collation | None) -> bool:
    """Whether ranges of these orders can be used where texts have this collation. Mixed ones cannot anywhere."""
    return all(same_collation(order, collation) for order in orders)


def _collect(expression: MatchExpression, orders: list[Collation | None]) -> None:
    if isinstance(expression, ComparisonExpression):
        if may_hold_text(expression.value):
            orders.append(expression.collation)
    elif isinstance(expression, InExpression):
        if expression.regexes:
            orders.append(None)
        if any(may_hold_text(value) for value in expression.values):
            orders.append(expression.collation)
    elif isinstance(expression, RegexExpression):
        orders.append(None)
    elif isinstance(expression, (ElementsExpression, NotExpression)):
        _collect(expression.child, orders)
    elif isinstance(expression, ListExpression):
        for child in expression.children:
            _collect(child, orders)
