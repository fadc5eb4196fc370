"""`$bitAnd $bitNot $bitOr $bitXor`: on int32 and int64; the result is an int64 if an operand is."""

from typing import Final

from mongottl.document.interrupt import give_way
from mongottl.document.numbers import clamp_to_long
from mongottl.document.types import Int64, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.base import COMMUTATIVE, expression, is_nullish, unary_expression
from mongottl.query.expr.numbers import INT, LONG, width
from mongottl.query.expr.parser import type_of

AND: Final = 0
OR: Final = 1
XOR: Final = 2


def _combine(name: str, values: list[Value], operator: int) -> Value:
    result = -1 if operator == AND else 0
    long = False
    for value in values:
        give_way()
        if is_nullish(value):
            return None
        kind = width(value)
        if kind != INT and kind != LONG:
            raise CommandError(
                ErrorCode.TypeMismatch, f"{name} only supports int and long operands, not {type_of(value)}"
            )
        long = long or kind == LONG
        number = clamp_to_long(value)
        if operator == AND:
            result &= number
        elif operator == OR:
            result |= number
        else:
            result ^= number
    if long:
        return Int64(result)  # not in one expression with the int: mypyc would make it a plain int
    return result


@expression("$bitAnd", 0, -1, grouping=COMMUTATIVE, since=(6, 3))
def bit_and(values: list[Value]) -> Value:
    return _combine("$bitAnd", values, AND)


@expression("$bitOr", 0, -1, grouping=COMMUTATIVE, since=(6, 3))
def bit_or(values: list[Value]) -> Value:
    return _combine("$bitOr", values, OR)


@expression("$bitXor", 0, -1, grouping=COMMUTATIVE, since=(6, 3))
def bit_xor(values: list[Value]) -> Value:
    return _combine("$bitXor", values, XOR)


@unary_expression("$bitNot", since=(6, 3))
def bit_not(value: Value) -> Value:
    if is_nullish(value):
        return None
    kind = width(value)
    if kind == INT:
        return ~clamp_to_long(value)
    if kind == LONG:
        return Int64(~clamp_to_long(value))
    raise CommandError(ErrorCode.TypeMismatch, f"$bitNot only supports int and long, not: {type_of(value)}.")
