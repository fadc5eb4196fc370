"""`$exists $type $mod`: tests of the existence and type of a value, and of remainders."""

from typing import Final

from librt.strings import read_f64_le, read_i32_le, read_i64_le
from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.compare import bracket_of_type
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import is_true, truncated, whole
from mongottl.document.path import FieldPath
from mongottl.document.types import (
    ARRAY,
    BINARY,
    BOOL,
    CODE,
    CODE_WITH_SCOPE,
    DATE,
    DB_POINTER,
    DECIMAL128,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    MAX_KEY,
    MIN_KEY,
    NULL,
    OBJECT_ID,
    REGEX,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UNDEFINED,
    Value,
    is_number,
    type_name,
)
from mongottl.document.walk import decode_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match.interval import Interval, bracket_interval, everything, point, union
from mongottl.query.match.registry import ANY_TYPE, NUMBERS, bad_value, match_operator
from mongottl.query.match.tree import MatchExpression, NotExpression, PathExpression
from mongottl.versions import OLDEST

_ALL_TYPES: Final = (
    DOUBLE,
    STRING,
    DOCUMENT,
    ARRAY,
    BINARY,
    UNDEFINED,
    OBJECT_ID,
    BOOL,
    DATE,
    NULL,
    REGEX,
    DB_POINTER,
    CODE,
    SYMBOL,
    CODE_WITH_SCOPE,
    INT32,
    TIMESTAMP,
    INT64,
    DECIMAL128,
    MIN_KEY,
    MAX_KEY,
)
_NUMERIC_TYPES: Final = (DOUBLE, INT32, INT64, DECIMAL128)
_TYPE_CODES: Final[dict[str, int]] = {type_name(code): code for code in _ALL_TYPES}


class ExistsExpression(PathExpression):
    """`{path: {$exists: true}}`; its negation is the false form."""

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return type_code != 0

    def describe_operand(self) -> dict[str, Value]:
        return {"$exists": True}

    def intervals(self) -> list[Interval] | None:
        # A missing field has the key null in an index that is not sparse, so the keys alone do not decide.
        return [everything(exact=False)]

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        """None: it is about all values."""


class NotExistsExpression(NotExpression):
    """`{path: {$exists: false}}`."""

    def intervals(self) -> list[Interval] | None:
        return [point(None, exact=False)]


@match_operator("$exists", order=100, reasons=("path does not exist", "path does exist"), types=ANY_TYPE, since=OLDEST)
def parse_exists(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$exists: flag}}`; a flag of any type; false, zeros, null and undefined are false."""
    exists = ExistsExpression(path)
    return exists if is_true(operand) else NotExistsExpression(exists)


class TypeExpression(PathExpression):
    """`{path: {$type: …}}`. type_codes: BSON type codes, ascending; all_numbers: the alias "number" was given."""

    def __init__(self, path: FieldPath, type_codes: list[int], all_numbers: bool) -> None:
        super().__init__(path)
        self.type_codes = type_codes
        self.all_numbers = all_numbers
        self._wanted: list[bool] = [code in type_codes for code in range(256)]

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return self._wanted[type_code]

    def describe_operand(self) -> dict[str, Value]:
        return {"$type": type_operand(self.type_codes, self.all_numbers)}

    def intervals(self) -> list[Interval] | None:
        if ARRAY in self.type_codes:
            # The keys of an array are those of its elements.
            return [everything(exact=False)]
        return union([bracket_interval(int(bracket_of_type(code)), exact=False) for code in self.type_codes])

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        """None: its ranges are of whole types."""


def type_operand(type_codes: list[int], all_numbers: bool) -> list[Value]:
    """A set of types as explain shows it: "number", then codes, with -1 for MinKey."""
    operand: list[Value] = []
    if all_numbers:
        operand.append("number")
    for code in type_codes:
        if not (all_numbers and code in _NUMERIC_TYPES):
            operand.append(-1 if code == MIN_KEY else code)
    return operand


def parse_type_set(operand: Value, name: str) -> tuple[list[int], bool]:
    """(BSON type codes, whether "number" was among them) of a code, an alias, or an array of these.

    Raises TypeMismatch (14) for other types than numbers and strings, BadValue (2) for unknown ones, FailedToParse (9)
    for an empty array.
    """
    entries = operand if isinstance(operand, list) else [operand]
    codes: set[int] = set()
    all_numbers = False
    for entry in entries:
        give_way()
        if isinstance(entry, str):
            if entry == "number":
                all_numbers = True
                codes.update(_NUMERIC_TYPES)
            elif entry in _TYPE_CODES:
                codes.add(_TYPE_CODES[entry])
            else:
                raise bad_value(f"Unknown type name alias: {entry}")
        elif is_number(entry):
            number = whole(entry)
            code = MIN_KEY if number == -1 else number
            if code == 0:
                raise bad_value("Invalid numerical type code: 0. Instead use {$exists:false}.")
            if code is None or number == MIN_KEY or code not in _ALL_TYPES:
                raise bad_value(f"Invalid numerical type code: {entry}")
            codes.add(code)
        else:
            raise CommandError(ErrorCode.TypeMismatch, "type must be represented as a number or a string")
    if not codes:
        raise CommandError(ErrorCode.FailedToParse, f"{name} must match at least one type")
    return sorted(codes), all_numbers


@match_operator("$type", order=160, reasons=("type did not match", "type did match"), types=ANY_TYPE, since=OLDEST)
def parse_type(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$type: code or alias or array of them}}`."""
    codes, all_numbers = parse_type_set(operand, path.dotted)
    return TypeExpression(path, codes, all_numbers)


class ModExpression(PathExpression):
    """`{path: {$mod: [divisor, remainder]}}` on truncated numbers; the remainder has the dividend's sign."""

    def __init__(self, path: FieldPath, divisor: int, remainder: int) -> None:
        super().__init__(path)
        self.divisor = divisor
        self.remainder = remainder

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code == INT32:
            return self._fits(int(read_i32_le(buf, pos)))
        if type_code == INT64:
            return self._fits(int(read_i64_le(buf, pos)))
        if type_code == DOUBLE:
            dividend = truncated(read_f64_le(buf, pos))
            return dividend is not None and self._fits(dividend)
        if type_code == DECIMAL128:
            dividend = truncated(decode_value(buf, type_code, pos))
            return dividend is not None and self._fits(dividend)
        return False

    def _fits(self, dividend: int) -> bool:
        divisor = self.divisor
        rest = abs(dividend) % abs(divisor)
        return (-rest if dividend < 0 else rest) == self.remainder

    def describe_operand(self) -> dict[str, Value]:
        operand: list[Value] = [self.divisor, self.remainder]
        return {"$mod": operand}

    def intervals(self) -> list[Interval] | None:
        return [bracket_interval(int(bracket_of_type(INT32)), exact=False)]

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        """None: its range is that of numbers."""


@match_operator(
    "$mod",
    order=90,
    reasons=("$mod did not evaluate to expected remainder", "$mod did evaluate to expected remainder"),
    types=NUMBERS,
    since=OLDEST,
)
def parse_mod(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$mod: [divisor, remainder]}}`. BadValue unless both are numbers within int64 and the divisor is not
    0."""
    if not isinstance(operand, list):
        raise bad_value("malformed mod, needs to be an array")
    if len(operand) < 2:
        raise bad_value("malformed mod, not enough elements")
    if len(operand) > 2:
        raise bad_value("malformed mod, too many elements")
    if not is_number(operand[0]):
        raise bad_value("malformed mod, divisor not a number")
    if not is_number(operand[1]):
        raise bad_value("malformed mod, remainder not a number")
    divisor = truncated(operand[0])
    remainder = truncated(operand[1])
    if divisor is None:
        raise bad_value("malformed mod, divisor value is invalid :: caused by :: Unable to coerce to a 64-bit integer")
    if remainder is None:
        raise bad_value(
            "malformed mod, remainder value is invalid :: caused by :: Unable to coerce to a 64-bit integer"
        )
    if divisor == 0:
        raise bad_value("divisor cannot be 0")
    return ModExpression(path, divisor, remainder)
