"""`$median $percentile` of an array or of one number."""

from typing import Final

from mongottl.document.bson_field import missing_field, unknown_field
from mongottl.document.freeing import LONG, LongList, freed_in_slices, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import to_double
from mongottl.document.render import render_result, render_value
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.base import (
    Constant,
    EvaluationContext,
    Expression,
    NamedExpression,
    Scope,
    expression_parser,
)
from mongottl.query.expr.numbers import width
from mongottl.query.expr.parser import parse_operand, type_of
from mongottl.query.expr.ranking import percentile


def parse_shares(node: Expression) -> list[float]:
    """The `p` of `$percentile`: a constant array of numbers from 0 to 1. 7750301, 7750303 otherwise."""
    value = node.value if isinstance(node, Constant) else MISSING
    if not isinstance(value, list) or not value:
        raise CommandError(7750301, "The $percentile 'p' field must be an array of constant values")
    shares: list[float] = list_for(len(value))
    for item in value:
        give_way()
        if width(item) == 0:
            raise CommandError(
                7750301, f"The $percentile 'p' field must be an array of numbers, found: {type_of(item)}"
            )
        share = to_double(item)
        if not 0.0 <= share <= 1.0:
            raise CommandError(
                7750303,
                f"The $percentile 'p' field must be an array of numbers from [0.0, 1.0], found: {render_result(item)}",
            )
        shares.append(share)
    return shares


def parse_percentile_parameters(name: str, argument: Value) -> dict[str, Value]:
    """The parameters of `$percentile` and `$median`, not parsed. 7436100, 40414, 40415, BadValue for bad ones."""
    if not isinstance(argument, bytes):
        raise CommandError(
            7436100 if name == "$median" else 7429703, f"{name} needs an object; found {render_value(argument)}"
        )
    known = ["input", "method"] if name == "$median" else ["input", "p", "method"]
    raw: dict[str, Value] = {}
    for key, value in fields(argument):
        give_way()
        if key not in known:
            raise unknown_field(f"{name}.{key}")
        raw[key] = value
    for key in known:
        if key not in raw:
            raise missing_field(f"{name}.{key}")
    method = get_value(argument, "method")
    if not isinstance(method, str):
        raise CommandError(ErrorCode.TypeMismatch, f"BSON field '{name}.method' is the wrong type '{type_of(method)}'")
    if method != "approximate":  # mongod has two exact methods, but only with a feature flag
        raise CommandError(ErrorCode.BadValue, "Currently only 'approximate' can be used as percentile 'method'.")
    return raw


class PercentileExpression(NamedExpression):
    def __init__(self, name: str, parameters: dict[str, Expression], shares: list[float]) -> None:
        super().__init__(name, parameters)
        self.input: Final = parameters["input"]
        self.shares: Final[list[float]] = freed_in_slices(shares)

    def evaluate(self, ev: EvaluationContext) -> Value:
        value = self.input.evaluate(ev)
        numbers: list[float] = []
        for item in value if isinstance(value, list) else [value]:
            give_way()
            if width(item):
                number = to_double(item)
                if number == number:
                    numbers.append(number)
        numbers = sort_in_parts(numbers)
        found: list[Value] = [] if len(self.shares) < LONG else LongList()
        for share in self.shares:
            give_way()
            found.append(percentile(numbers, share) if numbers else None)
        return found[0] if self.name == "$median" else found


def _parse(name: str, argument: Value, scope: Scope) -> Expression:
    """`{input, p, method}`; `$median` has no `p`."""
    raw = parse_percentile_parameters(name, argument)
    shares = parse_shares(parse_operand(raw["p"], scope)) if name == "$percentile" else [0.5]
    return PercentileExpression(name, {"input": parse_operand(raw["input"], scope)}, shares)


for _name in ("$median", "$percentile"):
    expression_parser(_name, since=(7, 0))(_parse)
