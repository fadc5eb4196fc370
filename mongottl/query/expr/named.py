"""Operators with named parameters, `{$op: {input: …, n: …}}`: parsing, and a node for functions of the parameters."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.copied import COPIED
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError
from mongottl.query.expr.base import (
    EvaluationContext,
    Expression,
    NamedExpression,
    Scope,
    ValueFunction,
)
from mongottl.query.expr.parser import parse_operand, type_of


class Absent:
    """The type of ABSENT: a parameter that is not given, among the values of a ParameterExpression."""


ABSENT: Final = Absent()


class ParameterExpression(NamedExpression):
    """An operator that is a function of its parameters' values, in the order of `keys`; ABSENT for those not given."""

    def __init__(self, name: str, keys: list[str], parameters: dict[str, Expression], function: ValueFunction) -> None:
        super().__init__(name, parameters)
        self.function: Final = function
        self.ordered: Final[list[Expression | None]] = [parameters.get(key) for key in keys]

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        copied: i64 = COPIED.bytes
        values: list[Value] = []
        for node in self.ordered:
            if node is None:
                values.append(ABSENT)
                continue
            value = node.evaluate(ev)
            values.append(value)
            if COPIED.bytes != copied:
                ev.hold(value, COPIED.bytes - copied)
                copied = COPIED.bytes
        ev.held = held
        return self.function(values)


class Syntax:
    """The named parameters of an operator, and the error codes for them.

    required: (parameter, code if it is missing); optional: the other parameters.
    """

    def __init__(
        self,
        not_object: int,
        unknown: int,
        required: list[tuple[str, int]],
        optional: list[str] | None = None,
    ) -> None:
        self.not_object: Final = not_object
        self.unknown: Final = unknown
        self.required: Final = required
        self.keys: Final[list[str]] = [key for key, _ in required] + ([] if optional is None else optional)

    def read(self, name: str, argument: Value) -> dict[str, Value]:
        """The parameters by name, not parsed."""
        if not isinstance(argument, bytes):
            raise CommandError(
                self.not_object, f"{name} only supports an object as an argument, not {type_of(argument)}"
            )
        raw: dict[str, Value] = {}
        for key, value in fields(argument):
            if key not in self.keys:
                raise CommandError(self.unknown, f"{name} found an unknown argument: {key}")
            raw[key] = value
        for key, code in self.required:
            if key not in raw:
                raise CommandError(code, f"Missing '{key}' parameter to {name}")
        return raw

    def parse(self, name: str, argument: Value, scope: Scope) -> dict[str, Expression]:
        """The parameters as expressions."""
        parsed: dict[str, Expression] = {}
        for key, value in self.read(name, argument).items():
            parsed[key] = parse_operand(value, scope)
        return parsed

    def node(self, name: str, argument: Value, scope: Scope, function: ValueFunction) -> Expression:
        """Parses an operator that is a function of its parameters."""
        return ParameterExpression(name, self.keys, self.parse(name, argument, scope), function)


def is_given(value: Value) -> bool:
    return not isinstance(value, Absent)
