"""`$rand $binarySize $bsonSize $tsSecond $tsIncrement`, `$toHashedIndexKey`, and unsupported operators."""

import random
from typing import Final

from mongottl.document.build import encode
from mongottl.document.hashing import hashed_value
from mongottl.document.types import BinData, Int64, Missing, Timestamp, Value
from mongottl.document.utf8 import encode_text
from mongottl.errors import CommandError
from mongottl.query.expr.base import (
    EXPRESSIONS,
    EvaluationContext,
    Expression,
    Scope,
    expression_parser,
    is_nullish,
    unary_expression,
)
from mongottl.query.expr.parser import type_of

# A separate generator, which can be seeded for reproducible runs.
RANDOM: Final = random.Random()


class RandExpression(Expression):
    """A random number from [0, 1), a new one for each evaluation."""

    def evaluate(self, ev: EvaluationContext) -> Value:
        return RANDOM.random()

    def describe(self) -> Value:
        return encode({"$rand": {}})

    def foldable(self) -> bool:
        return False


@expression_parser("$rand", since=(4, 4))
def parse_rand(name: str, argument: Value, scope: Scope) -> Expression:
    """`{}`. 10065 for another type, 3040501 if it is not empty."""
    if isinstance(argument, list):
        if argument:
            raise CommandError(3040501, "$rand does not currently accept arguments")
    elif not isinstance(argument, bytes):
        raise CommandError(10065, f"invalid parameter: expected an object ({name})")
    elif len(argument) > 5:
        raise CommandError(3040501, "$rand does not currently accept arguments")
    return RandExpression()


@unary_expression("$binarySize", since=(4, 4))
def binary_size(value: Value) -> Value:
    if is_nullish(value):
        return None
    if isinstance(value, str):
        return len(encode_text(value))
    if isinstance(value, BinData):
        return len(value.data)
    raise CommandError(51276, f"$binarySize requires a string or BinData argument, found: {type_of(value)}")


@unary_expression("$bsonSize", since=(4, 4))
def bson_size(value: Value) -> Value:
    if is_nullish(value):
        return None
    if isinstance(value, bytes):
        return len(value)
    raise CommandError(31393, f"$bsonSize requires a document input, found: {type_of(value)}")


@unary_expression("$tsSecond", since=(5, 1))
def ts_second(value: Value) -> Value:
    if is_nullish(value):
        return None
    if isinstance(value, Timestamp):
        return Int64(value.time)
    raise CommandError(5687301, f"$tsSecond requires argument of type timestamp, not {type_of(value)}")


@unary_expression("$tsIncrement", since=(5, 1))
def ts_increment(value: Value) -> Value:
    if is_nullish(value):
        return None
    if isinstance(value, Timestamp):
        return Int64(value.inc)
    raise CommandError(5687302, f"$tsIncrement requires argument of type timestamp, not {type_of(value)}")


@unary_expression("$toHashedIndexKey", since=(4, 2))
def to_hashed_index_key(value: Value) -> Value:
    """The key of the value in a hashed index; a missing value counts as null."""
    return hashed_value(None if isinstance(value, Missing) else value)


for _name, _reason in (
    ("$encStrContains", "queryable encryption is not available"),
    ("$encStrStartsWith", "queryable encryption is not available"),
    ("$encStrEndsWith", "queryable encryption is not available"),
    ("$encStrNormalizedEq", "queryable encryption is not available"),
):
    EXPRESSIONS.add_unsupported(_name, _reason, since=(8, 2))
