"""The value model: classes, type codes and names."""

import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp

from mongottl.document import types
from mongottl.document.types import (
    MISSING,
    BinData,
    Date,
    DBPointer,
    JavaScript,
    Missing,
    Regex,
    Symbol,
    Undefined,
    Value,
    integer,
    is_number,
    type_code_of,
    type_name,
)

CODES: list[tuple[Value, int, str]] = [
    (MISSING, 0, "missing"),
    (1.5, 1, "double"),
    ("x", 2, "string"),
    (b"\5\0\0\0\0", 3, "object"),
    ({"a": 1}, 3, "object"),
    ([1], 4, "array"),
    ((1,), 4, "array"),
    (BinData(b"x", 3), 5, "binData"),
    (Undefined(), 6, "undefined"),
    (ObjectId(), 7, "objectId"),
    (True, 8, "bool"),
    (Date(0), 9, "date"),
    (None, 10, "null"),
    (Regex("a"), 11, "regex"),
    (DBPointer("a.b", b"x" * 12), 12, "dbPointer"),
    (JavaScript("x"), 13, "javascript"),
    (Symbol("x"), 14, "symbol"),
    (JavaScript("x", b"\5\0\0\0\0"), 15, "javascriptWithScope"),
    (1, 16, "int"),
    (-(2**31), 16, "int"),
    (2**31, 18, "long"),
    (Timestamp(1, 1), 17, "timestamp"),
    (Int64(1), 18, "long"),
    (Decimal128("1"), 19, "decimal"),
    (MaxKey(), 127, "maxKey"),
    (MinKey(), 255, "minKey"),
]


@pytest.mark.parametrize(("value", "code", "name"), CODES)
def test_each_class_has_its_type_code_and_name(value: Value, code: int, name: str) -> None:
    assert type_code_of(value) == code
    assert type_name(code) == name


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, bytearray(b"x")])
def test_type_code_of_refuses_non_bson_values(value: object) -> None:
    with pytest.raises(TypeError, match="not a BSON value"):
        type_code_of(value)


def test_missing_is_false_and_a_type_of_its_own() -> None:
    assert not MISSING
    assert isinstance(MISSING, Missing)
    assert not isinstance(Undefined(), Missing)


def test_numbers_are_the_four_types_and_no_bool() -> None:
    assert all(is_number(value) for value in (1, Int64(1), 1.0, Decimal128("1")))
    assert not any(is_number(value) for value in (True, "1", None, Date(1)))


def test_integer_takes_the_smallest_type() -> None:
    assert type_code_of(integer(2**31 - 1)) == types.INT32
    assert type_code_of(integer(2**31)) == types.INT64
    assert type_code_of(integer(-(2**31) - 1)) == types.INT64
    assert integer(-(2**63)) == -(2**63)
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            integer(number)


EQUAL_PAIRS: list[tuple[Value, Value, Value]] = [
    (Undefined(), Undefined(), None),
    (Date(5), Date(5), Date(6)),
    (BinData(b"x", 1), BinData(b"x", 1), BinData(b"x", 2)),
    (Regex("a", "i"), Regex("a", "i"), Regex("a")),
    (JavaScript("a", b"\5\0\0\0\0"), JavaScript("a", b"\5\0\0\0\0"), JavaScript("a")),
    (Symbol("a"), Symbol("a"), "a"),
    (DBPointer("a", b"x" * 12), DBPointer("a", b"x" * 12), DBPointer("b", b"x" * 12)),
]


@pytest.mark.parametrize(("value", "same", "other"), EQUAL_PAIRS)
def test_own_classes_are_equal_and_hash_by_their_parts(value: Value, same: Value, other: Value) -> None:
    assert value == same
    assert hash(value) == hash(same)
    assert value != other
    assert repr(value).startswith(type(value).__name__)
