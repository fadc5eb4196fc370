"""Operators at the top level: `$expr $comment $sampleRate $alwaysTrue $alwaysFalse`."""

import random
from typing import Final

from mypy_extensions import i64

from mongottl.document.numbers import is_true, whole
from mongottl.document.types import Value, is_number
from mongottl.document.walk import fields, read_embedded
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import Constant, EvaluationContext, Expression, parse_expression
from mongottl.query.match.registry import bad_value, root_operator
from mongottl.query.match.tree import (
    AlwaysFalse,
    AlwaysTrue,
    AndExpression,
    MatchExpression,
    WholeDocumentExpression,
)
from mongottl.versions import OLDEST


class ExprExpression(WholeDocumentExpression):
    """`{$expr: expression}`: matches if the value of the expression is true (`document.numbers.is_true`).

    expression: used by the planner for rewriting.
    """

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        # Reused for each document, which is safe since an expression never evaluates the filter that contains it.
        self._evaluation = EvaluationContext()

    def matches_at(self, buf: bytes, start: i64) -> bool:
        evaluation = self._evaluation
        evaluation.root = buf if start == 0 else read_embedded(buf, start)
        evaluation.held = 0  # after an error it may be more
        value = self.expression.evaluate(evaluation)
        return is_true(value)

    def describe(self) -> Value:
        return {"$expr": self.expression.describe()}


class SampleRateExpression(WholeDocumentExpression):
    """`{$sampleRate: rate}`: matches a random sample; rate: the expected fraction of the documents."""

    def __init__(self, rate: float, seed: int) -> None:
        self.rate = rate
        self._random = random.Random(seed)

    def matches_at(self, buf: bytes, start: i64) -> bool:
        return self._random.random() < self.rate

    def describe(self) -> Value:
        return {"$sampleRate": self.rate}


@root_operator("$expr", reasons=("expression did not match", "expression did match"), since=OLDEST)
def parse_expr(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$expr: expression}`. Errors are those of the expression."""
    tree = ExprExpression(parse_expression(operand, ctx))
    if ctx.collation is None:
        return tree
    return AndExpression([tree, *_uncollated(operand, ctx)])


def _uncollated(operand: Value, ctx: ParseContext) -> list[MatchExpression]:
    """Additional conditions, compared without collation: `{$in: ["$path", [constants]]}` at the top or under `$and`.

    mongod rewrites these as filters `{path: {$in: …}}`, for indexes, without the collation.
    """
    if not isinstance(operand, bytes):
        return []
    members = fields(operand)
    if len(members) != 1:
        return []
    name, argument = members[0]
    found: list[MatchExpression] = []
    if name == "$and":
        for part in argument if isinstance(argument, list) else [argument]:
            found.extend(_uncollated(part, ctx))
    elif name == "$in" and isinstance(argument, list) and len(argument) == 2:
        path, array = argument
        if isinstance(path, str) and path.startswith("$") and not path.startswith("$$") and isinstance(array, list):
            simple = ParseContext(ctx.now_ms, ctx.let, ctx.namespace, cluster_time=ctx.cluster_time)
            simple.open_scripts = ctx.open_scripts
            if isinstance(parse_expression(array, simple), Constant):
                found.append(ExprExpression(parse_expression(operand, simple)))
    return found


@root_operator("$comment", reasons=None, since=OLDEST)
def parse_comment(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$comment: anything}`: always matches."""
    return AndExpression([])


_CONSTANT: Final = ("expression always evaluates to false", "expression always evaluates to true")


@root_operator("$alwaysTrue", reasons=_CONSTANT, since=OLDEST)
def parse_always_true(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$alwaysTrue: 1}`. FailedToParse (9) for another operand."""
    _must_be_one(operand, "$alwaysTrue")
    return AlwaysTrue()


@root_operator("$alwaysFalse", reasons=_CONSTANT, since=OLDEST)
def parse_always_false(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$alwaysFalse: 1}`. FailedToParse (9) for another operand."""
    _must_be_one(operand, "$alwaysFalse")
    return AlwaysFalse()


def _must_be_one(operand: Value, name: str) -> None:
    if not is_number(operand) or whole(operand) != 1:
        raise CommandError(ErrorCode.FailedToParse, f"{name} must be an integer value of 1")


@root_operator("$sampleRate", reasons=_CONSTANT, since=(4, 4))
def parse_sample_rate(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$sampleRate: rate}`, rate from 0 to 1. BadValue for anything else.

    The random seed is the operation's time: with a stopped clock the same documents are chosen again.
    """
    if isinstance(operand, bool) or not is_number(operand):
        raise bad_value("argument to $sampleRate must be a numeric type")
    rate = float(str(operand))
    if not 0.0 <= rate <= 1.0:
        raise bad_value("numeric argument to $sampleRate must be in [0, 1]")
    if rate == 1.0:
        return AndExpression([])
    if rate == 0.0:
        return AlwaysFalse()
    return SampleRateExpression(rate, ctx.now_ms)
