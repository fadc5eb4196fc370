"""The registries of query operators, filled by the modules of this package."""

from collections.abc import Callable
from typing import Final, TypeAlias

from mongottl.document.path import FieldPath
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match.tree import MatchExpression
from mongottl.query.registry import Registry

FieldParser: TypeAlias = Callable[[FieldPath, Value, ParseContext], MatchExpression]
RootParser: TypeAlias = Callable[[Value, ParseContext], MatchExpression]

match_operators: Final[Registry[FieldParser]] = Registry("query operator")
root_operators: Final[Registry[RootParser]] = Registry("top-level query operator")


def match_operator(name: str) -> Callable[[FieldParser], FieldParser]:
    """Registers a parser `(path, operand, context) -> MatchExpression` for `{field: {name: operand}}`."""

    def register(parser: FieldParser) -> FieldParser:
        match_operators.add(name, parser)
        return parser

    return register


def root_operator(name: str) -> Callable[[RootParser], RootParser]:
    """Registers a parser `(operand, context) -> MatchExpression` for `{name: operand}`."""

    def register(parser: RootParser) -> RootParser:
        root_operators.add(name, parser)
        return parser

    return register


def bad_value(message: str, advice: str = "") -> CommandError:
    return CommandError(ErrorCode.BadValue, message, advice=advice)
