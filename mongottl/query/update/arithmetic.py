"""Modifiers that compute with numbers: $inc, $mul, $bit.

Result types: int32 with int32 is int32, or int64 where that overflows; int64 wins over int32, double over both,
Decimal128 over all. An int64 that overflows is an error here, unlike in expressions.
"""

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

from mongottl.document.build import encode_value
from mongottl.document.numbers import is_nan, to_double
from mongottl.document.render import render_value
from mongottl.document.splice import int32_bytes
from mongottl.document.types import (
    DECIMAL128,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    INT64_MAX,
    INT64_MIN,
    INT_MAX,
    INT_MIN,
    Int64,
    Value,
    type_code_of,
    type_name,
)
from mongottl.document.walk import decode_value, fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr.numbers import DECIMAL_CONTEXT, from_decimal, to_decimal
from mongottl.query.update.describe import show_element, show_id
from mongottl.query.update.nodes import KEEP, ApplyState, ModifierNode
from mongottl.query.update.registry import Operand, modifier
from mongottl.versions import OLDEST

_SAFE_NAMES: Final[dict[int, str]] = {
    INT32: "NumberInt",
    INT64: "NumberLong",
    DOUBLE: "NumberDouble",
    DECIMAL128: "NumberDecimal",
}


def _is_number_type(type_code: i64) -> bool:
    return type_code == INT32 or type_code == DOUBLE or type_code == INT64 or type_code == DECIMAL128


def _to_integer(number: int, wide: bool) -> Value:
    """An int32, or an int64 if `wide` or too large; None beyond 64 bits."""
    if number < INT64_MIN or number > INT64_MAX:
        return None
    if wide or number < INT_MIN or number > INT_MAX:
        return Int64(number)
    return number


def add_numbers(a: Value, b: Value) -> Value:
    """a + b with the result type as above; None if an int64 overflows."""
    if isinstance(a, int) and isinstance(b, int):
        return _to_integer(int(a) + int(b), isinstance(a, Int64) or isinstance(b, Int64))
    if type_code_of(a) == DECIMAL128 or type_code_of(b) == DECIMAL128:
        return from_decimal(DECIMAL_CONTEXT.add(to_decimal(a), to_decimal(b)))
    return to_double(a) + to_double(b)


def multiply_numbers(a: Value, b: Value) -> Value:
    """a * b with the result type as above; None if an int64 overflows."""
    if isinstance(a, int) and isinstance(b, int):
        return _to_integer(int(a) * int(b), isinstance(a, Int64) or isinstance(b, Int64))
    if type_code_of(a) == DECIMAL128 or type_code_of(b) == DECIMAL128:
        return from_decimal(DECIMAL_CONTEXT.multiply(to_decimal(a), to_decimal(b)))
    return to_double(a) * to_double(b)


def _same_number(a: Value, b: Value) -> bool:
    """Whether the update is a no-op: same type and equal values, so that -0.0 + 0.0 changes nothing."""
    if type_code_of(a) != type_code_of(b):
        return False
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or (a != a and b != b)
    return to_decimal(a) == to_decimal(b) or (is_nan(a) and is_nan(b))


class ArithmeticNode(ModifierNode):
    """$inc and $mul. type_code: of the operand."""

    def __init__(self, name: str, operand: Value, type_code: i64) -> None:
        super().__init__(creates=True)
        self.name = name
        self.multiplies: bool = name == "$mul"
        self.operand: Value = operand
        # Whether it adds an int32, as most do: to another one, that takes a tenth of the time.
        self._adds_int32: bool = not self.multiplies and type_code == INT32
        self._added: i64 = i64(operand) if self._adds_int32 and isinstance(operand, int) else 0

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if type_code == INT32 and self._adds_int32:
            total: i64 = i64(read_i32_le(buf, pos)) + self._added
            if INT_MIN <= total <= INT_MAX:
                return KEEP if self._added == 0 else state.replace(INT32, int32_bytes(total))
        if not _is_number_type(type_code):
            raise CommandError(
                ErrorCode.TypeMismatch,
                f"Cannot apply {self.name} to a value of non-numeric type. {{{show_id(state.doc)}}} has the field "
                f"'{state.path[-1]}' of non-numeric type {type_name(int(type_code))}",
            )
        old = decode_value(buf, type_code, pos)
        new = multiply_numbers(old, self.operand) if self.multiplies else add_numbers(old, self.operand)
        if new is None:
            raise CommandError(
                ErrorCode.BadValue,
                f"Failed to apply {self.name} operations to current value "
                f"(({_SAFE_NAMES[int(type_code)]}){render_value(old)}) for document {{{show_id(state.doc)}}}",
            )
        if _same_number(old, new):
            return KEEP
        new_type, value = encode_value(new)
        return state.replace(new_type, value)

    def new_value(self, state: ApplyState) -> i64:
        type_code, value = encode_value(multiply_numbers(0, self.operand) if self.multiplies else self.operand)
        return state.replace(type_code, value)


@modifier("$inc", since=OLDEST)
def parse_inc(operand: Operand, ctx: ParseContext) -> ModifierNode:
    if not _is_number_type(operand.type_code):
        raise CommandError(ErrorCode.TypeMismatch, f"Cannot increment with non-numeric argument: {{{operand.show()}}}")
    return ArithmeticNode("$inc", operand.value(), operand.type_code)


@modifier("$mul", since=OLDEST)
def parse_mul(operand: Operand, ctx: ParseContext) -> ModifierNode:
    if not _is_number_type(operand.type_code):
        raise CommandError(ErrorCode.TypeMismatch, f"Cannot multiply with non-numeric argument: {{{operand.show()}}}")
    return ArithmeticNode("$mul", operand.value(), operand.type_code)


class BitNode(ModifierNode):
    """$bit: one or more of and, or, xor, applied in order."""

    def __init__(self, names: list[str], operands: list[Value]) -> None:
        super().__init__(creates=True)
        self.names = names
        self.operands = operands

    def _result(self, value: Value) -> Value:
        result = value
        for i in range(len(self.names)):
            operand = self.operands[i]
            assert isinstance(result, int) and isinstance(operand, int)  # guaranteed by the parser and update_value
            name = self.names[i]
            if name == "and":
                number = int(result) & int(operand)
            elif name == "or":
                number = int(result) | int(operand)
            else:
                number = int(result) ^ int(operand)
            result = _to_integer(number, isinstance(result, Int64) or isinstance(operand, Int64))
        return result

    def update_value(self, state: ApplyState, buf: bytes, type_code: i64, pos: i64, end: i64, in_array: bool) -> i64:
        if type_code != INT32 and type_code != INT64:
            raise CommandError(
                ErrorCode.BadValue,
                f"Cannot apply $bit to a value of non-integral type.{{{show_id(state.doc)}}} has the field "
                f"{state.path[-1]} of non-integer type {type_name(int(type_code))}",
            )
        old = decode_value(buf, type_code, pos)
        new = self._result(old)
        if _same_number(old, new):
            return KEEP
        new_type, value = encode_value(new)
        return state.replace(new_type, value)

    def new_value(self, state: ApplyState) -> i64:
        type_code, value = encode_value(self._result(0))
        return state.replace(type_code, value)


@modifier("$bit", since=OLDEST)
def parse_bit(operand: Operand, ctx: ParseContext) -> ModifierNode:
    if operand.type_code != DOCUMENT:
        raise CommandError(
            ErrorCode.BadValue,
            f"The $bit modifier is not compatible with a {type_name(int(operand.type_code))}. "
            "You must pass in an embedded document: {$bit: {field: {and/or/xor: #}}",
        )
    names: list[str] = []
    operands: list[Value] = []
    for name, value in fields(operand.raw()):
        if name != "and" and name != "or" and name != "xor":
            raise CommandError(
                ErrorCode.BadValue,
                f"The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which is an unknown operator: "
                f"{{{show_element(name, value)}}}",
            )
        type_code = type_code_of(value)
        if type_code != INT32 and type_code != INT64:
            raise CommandError(
                ErrorCode.BadValue,
                f"The $bit modifier field must be an Integer(32/64 bit); a '{type_name(type_code)}' is not supported "
                f"here: {{{show_element(name, value)}}}",
            )
        names.append(name)
        operands.append(value)
    if not names:
        raise CommandError(
            ErrorCode.BadValue,
            "You must pass in at least one bitwise operation. The format is: {$bit: {field: {and/or/xor: #}}",
        )
    return BitNode(names, operands)
