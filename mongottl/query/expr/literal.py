"""`$literal` and `$const`: a value that is not parsed as an expression."""

from mongottl.document.types import Value
from mongottl.query.expr.base import Constant, Expression, Scope, expression_parser
from mongottl.versions import OLDEST


def _parse_literal(name: str, argument: Value, scope: Scope) -> Expression:
    return Constant(argument)


for _name in ("$literal", "$const"):
    expression_parser(_name, since=OLDEST)(_parse_literal)
