"""`$cond $ifNull $switch`: only the selected branch is evaluated."""

from typing import Final

from mongottl.document.build import encode
from mongottl.document.freeing import LongList
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import is_true
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError
from mongottl.query.expr.base import Constant, EvaluationContext, Expression, Scope, expression_parser, is_nullish
from mongottl.query.expr.parser import parse_arguments, parse_operand, type_of
from mongottl.versions import OLDEST


class CondExpression(Expression):
    def __init__(self, condition: Expression, then: Expression, otherwise: Expression) -> None:
        self.condition: Final = condition
        self.then: Final = then
        self.otherwise: Final = otherwise

    def evaluate(self, ev: EvaluationContext) -> Value:
        if is_true(self.condition.evaluate(ev)):
            return self.then.evaluate(ev)
        return self.otherwise.evaluate(ev)

    def operands(self) -> list[Expression]:
        return [self.condition, self.then, self.otherwise]

    def describe(self) -> Value:
        return encode({"$cond": [self.condition.describe(), self.then.describe(), self.otherwise.describe()]})


@expression_parser("$cond", since=OLDEST)
def parse_cond(name: str, argument: Value, scope: Scope) -> Expression:
    """`[if, then, else]` or `{if, then, else}`. 17080, 17081, 17082 for a missing part, 17083 for an unknown one."""
    if not isinstance(argument, bytes):
        operands = parse_arguments(name, argument, scope, 3, 3)
        return _cond(operands[0], operands[1], operands[2])
    parts: dict[str, Expression] = {}
    for key, value in fields(argument):
        if key not in ("if", "then", "else"):
            raise CommandError(17083, f"Unrecognized parameter to $cond: {key}")
        parts[key] = parse_operand(value, scope)
    for key, code in (("if", 17080), ("then", 17081), ("else", 17082)):
        if key not in parts:
            raise CommandError(code, f"Missing '{key}' parameter to $cond")
    return _cond(parts["if"], parts["then"], parts["else"])


def _cond(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    if isinstance(condition, Constant):
        return then if is_true(condition.value) else otherwise
    return CondExpression(condition, then, otherwise)


class IfNullExpression(Expression):
    def __init__(self, arguments: list[Expression]) -> None:
        self.arguments: Final = arguments

    def evaluate(self, ev: EvaluationContext) -> Value:
        value: Value = None
        for argument in self.arguments:
            give_way()
            value = argument.evaluate(ev)
            if not is_nullish(value):
                break
        return value

    def operands(self) -> list[Expression]:
        return self.arguments

    def describe(self) -> Value:
        return encode({"$ifNull": [argument.describe() for argument in self.arguments]})


@expression_parser("$ifNull", since=OLDEST)
def parse_if_null(name: str, argument: Value, scope: Scope) -> Expression:
    """`[a, b, …, replacement]`: the first operand that is not null, else the last one. 1257300 for fewer than two."""
    arguments = parse_arguments(name, argument, scope, 0, -1)
    if len(arguments) < 2:
        raise CommandError(1257300, f"$ifNull needs at least two arguments, had: {len(arguments)}")
    return IfNullExpression(arguments)


class SwitchExpression(Expression):
    """`$switch`.

    default: None if there is none; then it is an error if no case matches.
    """

    def __init__(self, cases: list[Expression], thens: list[Expression], default: Expression | None) -> None:
        self.cases: Final = cases
        self.thens: Final = thens
        self.default: Final = default

    def evaluate(self, ev: EvaluationContext) -> Value:
        for i in range(len(self.cases)):
            give_way()
            if is_true(self.cases[i].evaluate(ev)):
                return self.thens[i].evaluate(ev)
        default = self.default
        if default is None:
            raise CommandError(
                40066, "$switch could not find a matching branch for an input, and no default was specified."
            )
        return default.evaluate(ev)

    def operands(self) -> list[Expression]:
        nodes = [*self.cases, *self.thens]
        if self.default is not None:
            nodes.append(self.default)
        return nodes

    def describe(self) -> Value:
        branches: list[Value] = []
        for i in range(len(self.cases)):
            branches.append(encode({"case": self.cases[i].describe(), "then": self.thens[i].describe()}))
        described: dict[str, Value] = {"branches": branches}
        if self.default is not None:
            described["default"] = self.default.describe()
        return encode({"$switch": described})


@expression_parser("$switch", since=OLDEST)
def parse_switch(name: str, argument: Value, scope: Scope) -> Expression:
    """`{branches: [{case, then}, …], default}`. Codes 40060 to 40068 for a bad shape."""
    if not isinstance(argument, bytes):
        raise CommandError(40060, f"$switch requires an object as an argument, found: {type_of(argument)}")
    cases: list[Expression] = LongList()
    thens: list[Expression] = LongList()
    default: Expression | None = None
    for key, value in fields(argument):
        if key == "branches":
            if not isinstance(value, list):
                raise CommandError(40061, f"$switch expected an array for 'branches', found: {type_of(value)}")
            _parse_branches(value, scope, cases, thens)
        elif key == "default":
            default = parse_operand(value, scope)
        else:
            raise CommandError(40067, f"$switch found an unknown argument: {key}")
    if not cases:
        raise CommandError(40068, "$switch requires at least one branch.")
    return _simplified_switch(cases, thens, default)


def _simplified_switch(cases: list[Expression], thens: list[Expression], default: Expression | None) -> Expression:
    """The expression without branches that are never selected; 40069 if none is left."""
    open_cases: list[Expression] = LongList()
    open_thens: list[Expression] = LongList()
    for i in range(len(cases)):
        case = cases[i]
        if isinstance(case, Constant):
            if is_true(case.value):
                default = thens[i]
                break
            continue
        open_cases.append(case)
        open_thens.append(thens[i])
    if open_cases:
        return SwitchExpression(open_cases, open_thens, default)
    if default is None:
        raise CommandError(
            40069,
            "One cannot execute a switch statement where all the cases evaluate to false without a default.",
        )
    return default


def _parse_branches(branches: list[Value], scope: Scope, cases: list[Expression], thens: list[Expression]) -> None:
    """Appends the parsed branches to `cases` and `thens`.

    Operators that fail on constants are refused in what may be evaluated: not in the `then` of a constant false case,
    nor in the branches after a constant true one.
    """
    ctx = scope.ctx
    decided = False
    for branch in branches:
        before = ctx.folding_error
        case, then = _parse_branch(branch, scope)
        selected = isinstance(case, Constant) and is_true(case.value)
        if decided or (isinstance(case, Constant) and not selected):
            ctx.folding_error = before
        decided = decided or selected
        cases.append(case)
        thens.append(then)


def _parse_branch(branch: Value, scope: Scope) -> tuple[Expression, Expression]:
    if not isinstance(branch, bytes):
        raise CommandError(40062, f"$switch expected each branch to be an object, found: {type_of(branch)}")
    case: Expression | None = None
    then: Expression | None = None
    for key, value in fields(branch):
        if key == "case":
            case = parse_operand(value, scope)
        elif key == "then":
            then = parse_operand(value, scope)
        else:
            raise CommandError(40063, f"$switch found an unknown argument to a branch: {key}")
    if case is None:
        raise CommandError(40064, "$switch requires each branch have a 'case' expression")
    if then is None:
        raise CommandError(40065, "$switch requires each branch have a 'then' expression.")
    return case, then
