"""The registries of query operators, filled by the modules of this package.

    @match_operator(
        "$size", order=20, reasons=("array length was not …", "array length was …"), types=("array",), since=OLDEST
    )
    def parse_size(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression: …

What other modules have to know of an operator is an argument of its decorator: `order` says of which of several
conditions the positional `$` has the index, `reasons` and `types` are for the details of a failed validation, and
`since` says which announced versions have it.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from mongottl.document.path import FieldPath
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match.tree import MatchExpression, leaf_order
from mongottl.query.registry import Registry
from mongottl.versions import Version

FieldParser: TypeAlias = Callable[[FieldPath, Value, ParseContext], MatchExpression]
RootParser: TypeAlias = Callable[[Value, ParseContext], MatchExpression]

# `reasons` of an operator: why a validation fails if it does not match, and if it matches beneath `$nor` or `$not`.
Reasons: TypeAlias = tuple[str, str]
# `types` of an operator that applies to values of every type, or of all numbers.
ANY_TYPE: Final = ()
NUMBERS: Final = ("decimal", "double", "int", "long")


class FieldOperator:
    """An operator on the value of a field: `{field: {$name: operand}}`."""

    def __init__(
        self, parser: FieldParser, reasons: Reasons | None, types: tuple[str, ...], whole_arrays: bool
    ) -> None:
        self.parser: Final = parser
        # None if validators refuse the operator, if its details are those of its parts, or if MongoDB has no words for
        # it.
        self.reasons: Final = reasons
        # The types to which it applies, as `$type` names them: a failed validation has another reason for other values.
        self.types: Final = types
        # Whether an array at the end of its path counts as one value, so that its elements are not considered.
        self.whole_arrays: Final = whole_arrays


class RootOperator:
    """An operator at the top level of a filter: `{$name: operand}`."""

    def __init__(self, parser: RootParser, reasons: Reasons | None) -> None:
        self.parser: Final = parser
        # As those of FieldOperator.
        self.reasons: Final = reasons


match_operators: Final[Registry[FieldOperator]] = Registry("query operator")
root_operators: Final[Registry[RootOperator]] = Registry("top-level query operator")


def match_operator(
    name: str,
    *,
    order: int | None,
    reasons: Reasons | None,
    types: tuple[str, ...],
    whole_arrays: bool = False,
    since: Version,
) -> Callable[[FieldParser], FieldParser]:
    """Registers a parser `(path, operand, context) -> MatchExpression` for `{field: {name: operand}}`.

    order: the place of its leaves among those of an `$and` (`tree.leaf_order`); None if it is parsed into those of
    other operators, as `$ne` is into `$not` and `$eq`. reasons, types, whole_arrays: as those of FieldOperator.
    since: as for `Registry.add`.
    """

    def register(parser: FieldParser) -> FieldParser:
        match_operators.add(name, FieldOperator(parser, reasons, types, whole_arrays), since)
        if order is not None:
            leaf_order[name] = order
        return parser

    return register


def root_operator(name: str, *, reasons: Reasons | None, since: Version) -> Callable[[RootParser], RootParser]:
    """Registers a parser `(operand, context) -> MatchExpression` for `{name: operand}`.

    reasons: as those of RootOperator. since: as for `Registry.add`.
    """

    def register(parser: RootParser) -> RootParser:
        root_operators.add(name, RootOperator(parser, reasons), since)
        return parser

    return register


def bad_value(message: str, advice: str = "") -> CommandError:
    return CommandError(ErrorCode.BadValue, message, advice=advice)
