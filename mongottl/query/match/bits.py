"""`$bitsAllSet $bitsAnySet $bitsAllClear $bitsAnyClear`.

Whole numbers are in two's complement with unlimited sign extension, binary data is little-endian, extended by zeros.
Doubles and decimals count if they have an int64 value exactly; everything else never matches.
"""

from array import array
from typing import Final

from librt.strings import read_f64_le, read_i32_le, read_i64_le
from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.compare import bracket_of_type
from mongottl.document.freeing import LongList, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.long_lists import with_more
from mongottl.document.numbers import whole
from mongottl.document.path import FieldPath
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import (
    BINARY,
    DECIMAL128,
    DOUBLE,
    INT32,
    INT64,
    INT_MAX,
    BinData,
    Value,
    is_number,
)
from mongottl.document.walk import decode_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match.interval import Interval, bracket_interval
from mongottl.query.match.number_errors import element_text, whole_number_fault
from mongottl.query.match.registry import NUMBERS, bad_value, match_operator
from mongottl.query.match.tree import MatchExpression, PathExpression
from mongottl.versions import OLDEST

ALL_SET: Final = "$bitsAllSet"
ANY_SET: Final = "$bitsAnySet"
ALL_CLEAR: Final = "$bitsAllClear"
ANY_CLEAR: Final = "$bitsAnyClear"

# An array of positions, which may be eight for each byte of 16 MB.
_UINT32: Final = "I"
# The most positions that explain shows: with these alone its reply is too large, so that they are left out of it.
_MOST_DESCRIBED: Final = 2_000_000


class BitsExpression(PathExpression):
    """`{path: {$bitsAllSet: mask}}` and the three other operators on bits.

    operator: one of the four names. positions: the bits in question, ascending, without duplicates.
    """

    def __init__(self, path: FieldPath, operator: str, positions: "array[int]") -> None:
        super().__init__(path)
        self.operator = operator
        self.positions = positions
        # Positions are up to 2^31 - 1; those beyond 64 bits are not part of a mask.
        self._low = 0
        self._high: array[int] = array(_UINT32)
        for position in positions:
            give_way()
            if position < 64:
                self._low |= 1 << position
            else:
                self._high.append(position)
        self._asks_set = operator == ALL_SET or operator == ANY_SET
        self._asks_any = operator == ANY_SET or operator == ANY_CLEAR

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code == INT32:
            return self._number_fits(int(read_i32_le(buf, pos)))
        if type_code == INT64:
            return self._number_fits(int(read_i64_le(buf, pos)))
        if type_code == DOUBLE:
            number = whole(read_f64_le(buf, pos))
            return number is not None and self._number_fits(number)
        if type_code == DECIMAL128:
            number = whole(decode_value(buf, type_code, pos))
            return number is not None and self._number_fits(number)
        if type_code == BINARY:
            return self._binary_fits(buf[pos + 5 : pos + 5 + i64(read_i32_le(buf, pos))])
        return False

    def _number_fits(self, number: int) -> bool:
        common = number & self._low
        high = bool(self._high)
        return self._answer(common != 0 or (high and number < 0), common != self._low or (high and number >= 0))

    def _binary_fits(self, data: bytes) -> bool:
        common = int.from_bytes(data[:8], "little") & self._low
        some_set = common != 0
        some_clear = common != self._low
        for position in self._high:
            give_way()
            if position >> 3 < len(data) and data[position >> 3] >> (position & 7) & 1:
                some_set = True
            else:
                some_clear = True
        return self._answer(some_set, some_clear)

    def _answer(self, some_set: bool, some_clear: bool) -> bool:
        if self._asks_any:
            return some_set if self._asks_set else some_clear
        return not some_clear if self._asks_set else not some_set

    def describe_operand(self) -> dict[str, Value]:
        positions: list[Value] = with_more([], self.positions[:_MOST_DESCRIBED])
        return {self.operator: positions}

    def intervals(self) -> list[Interval] | None:
        return [
            bracket_interval(int(bracket_of_type(INT32)), exact=False),
            bracket_interval(int(bracket_of_type(BINARY)), exact=False),
        ]

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        """None: its ranges are of numbers and binary data."""


def _positions(operand: Value, name: str) -> "array[int]":
    """The bit positions of an operand: a mask as number or binary data, or an array of positions.

    FailedToParse (9) for a number that is negative or not whole, BadValue (2) for bad positions and other types.
    """
    if isinstance(operand, list):
        positions: set[int] = set_for(len(operand))
        for index, position in enumerate(operand):
            give_way()
            fault = whole_number_fault(position)
            bit = whole(position)
            if not fault and (bit is None or bit > INT_MAX):
                fault = "Cannot represent in an int"
            if fault or bit is None:
                raise bad_value(f"Failed to parse bit position. {fault}: {element_text(str(index), position)}")
            positions.add(bit)
        return array(_UINT32, sort_in_parts(LongList(positions)))
    if is_number(operand):
        fault = whole_number_fault(operand)
        number = whole(operand)
        if fault or number is None:
            raise CommandError(ErrorCode.FailedToParse, f"{fault}: {element_text(name, operand)}")
        return array(_UINT32, [bit for bit in range(63) if number >> bit & 1])
    if isinstance(operand, BinData):
        set_bits = array(_UINT32)
        for at, byte in enumerate(operand.data):
            give_way()
            for bit in range(8):
                if byte >> bit & 1:
                    set_bits.append(8 * at + bit)
        return set_bits
    raise bad_value(f"{name} takes an Array, a number, or a BinData but received: {element_text(name, operand)}")


_REASONS: Final = ("bitwise operator failed to match", "bitwise operator matched successfully")
_TYPES: Final = ("binData", *NUMBERS)


@match_operator("$bitsAllSet", order=120, reasons=_REASONS, types=_TYPES, since=OLDEST)
def parse_bits_all_set(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """All bits of the mask are 1."""
    return BitsExpression(path, ALL_SET, _positions(operand, ALL_SET))


@match_operator("$bitsAnySet", order=140, reasons=_REASONS, types=_TYPES, since=OLDEST)
def parse_bits_any_set(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """At least one bit of the mask is 1."""
    return BitsExpression(path, ANY_SET, _positions(operand, ANY_SET))


@match_operator("$bitsAllClear", order=130, reasons=_REASONS, types=_TYPES, since=OLDEST)
def parse_bits_all_clear(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """All bits of the mask are 0."""
    return BitsExpression(path, ALL_CLEAR, _positions(operand, ALL_CLEAR))


@match_operator("$bitsAnyClear", order=150, reasons=_REASONS, types=_TYPES, since=OLDEST)
def parse_bits_any_clear(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """At least one bit of the mask is 0."""
    return BitsExpression(path, ANY_CLEAR, _positions(operand, ANY_CLEAR))
