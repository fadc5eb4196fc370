"""KeyStrings: the format itself, and its edges. The laws of order stand in tests/property/test_keystring.py."""

import math

import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp

from mongottl.document import compare
from mongottl.document.build import encode
from mongottl.document.key_split import component_end
from mongottl.document.keystring import (
    HIGHEST_KEY,
    LOWEST_KEY,
    KeyStringBuilder,
    bracket_range,
    encode_key,
    encode_raw,
    encode_value,
    successor,
    value_range,
)
from mongottl.document.types import MISSING, BinData, Date, DBPointer, JavaScript, Regex, Symbol, Undefined, Value
from mongottl.document.walk import find_field

# The bytes are on disk: a change of any of these is a change of the data format.
FORMAT: list[tuple[Value, str]] = [
    (MinKey(), "08"),
    (Undefined(), "10"),
    (None, "18"),
    (math.nan, "20"),
    (-math.inf, "21"),
    (Decimal128("-1E+6000"), "22" + "c88e" + "ffceb239bb726cc73ea4f5ffffffff"),
    (float(-(2**63)), "23" + "783fffffffffffff"),
    (-256, "2a" + "fdff"),
    (-128, "2a" + "feff"),
    (-1, "2b" + "fd"),
    (-0.5, "2c" + "803fffffffffffff"),
    (0, "2d"),
    (-0.0, "2d"),
    (0.5, "2e" + "7fc0000000000000"),
    (1, "2f" + "02"),
    (127, "2f" + "fe"),
    (128, "30" + "0100"),
    (1.5, "2f" + "03" + "80000000000000"),
    (Int64(2**63 - 1), "36" + "fffffffffffffffe"),
    (float(2**63), "37" + "87c0000000000000"),
    (math.inf, "39"),
    ("", "40" + "00"),
    ("ab", "40" + "6162" + "00"),
    ("a\0\1\2", "40" + "61" + "0101" + "0102" + "02" + "00"),
    (Symbol("ab"), "40" + "6162" + "00"),
    (encode({}), "48" + "00"),
    (encode({"x": 1, "y": None}), "48" + "207800" + "2f02" + "187900" + "18" + "00"),
    ([], "50" + "00"),
    ([1, []], "50" + "2f02" + "5000" + "00"),
    (BinData(b"\0\xff", 4), "58" + "00000002" + "04" + "00ff"),
    (ObjectId("0123456789abcdef01234567"), "60" + "0123456789abcdef01234567"),
    (False, "68"),
    (True, "69"),
    (Date(-1), "70" + "7fffffffffffffff"),
    (Date(1), "70" + "8000000000000001"),
    (Timestamp(1, 2), "78" + "00000001" + "00000002"),
    (JavaScript("x"), "90" + "7800"),
    (JavaScript("x", encode({})), "98" + "7800" + "00"),
    (MaxKey(), "f0"),
]


@pytest.mark.parametrize(("value", "key"), FORMAT)
def test_format(value: Value, key: str) -> None:
    assert encode_value(value).hex() == key
    inverted = bytes(byte ^ 0xFF for byte in bytes.fromhex(key))
    assert encode_value(value, True) == inverted
    document = encode({"f": value})
    type_code, pos = find_field(document, b"f")
    assert encode_raw(document, type_code, pos).hex() == key
    assert encode_raw(document, type_code, pos, True) == inverted


@pytest.mark.parametrize(
    "values",
    [
        [1, 1.0, Int64(1), Decimal128("1"), Decimal128("1.000000000000000000000000000000000")],
        [1.5, Decimal128("1.5"), Decimal128("15E-1")],
        [0.5, Decimal128("0.5"), Decimal128("0.50000")],
        [-0.25, Decimal128("-0.25")],
        [Int64(2**53), float(2**53), Decimal128("9007199254740992")],
        [Int64(-(2**63)), float(-(2**63)), Decimal128("-9223372036854775808")],
        [float(2**63), Decimal128("9223372036854775808"), Decimal128("9223372036854775808.0")],
        [1e22, Decimal128("1E22"), Decimal128("10000000000000000000000")],
        [math.inf, Decimal128("Infinity")],
        [math.nan, Decimal128("NaN"), Decimal128("sNaN"), Decimal128("-NaN")],
        [0.0, -0.0, Decimal128("0E-6176"), Decimal128("-0E+6111"), Decimal128("0.000")],
    ],
)
def test_numbers_that_are_equal_have_one_key(values: list[Value]) -> None:
    assert len({encode_value(value) for value in values}) == 1


def test_decimals_that_are_not_canonical_count_as_zero() -> None:
    too_many_digits = Decimal128.from_bid((6176 << 113 | 10**34).to_bytes(16, "little"))
    other_layout = Decimal128.from_bid((3 << 125 | 6176 << 111 | 5).to_bytes(16, "little"))
    assert encode_value(too_many_digits) == encode_value(other_layout) == encode_value(0)


def test_missing_is_encoded_as_undefined() -> None:
    assert encode_value(MISSING) == encode_value(Undefined())
    assert encode_raw(b"", 0, -1) == encode_value(Undefined())


def test_dicts_and_tuples_are_encoded_as_documents_and_arrays() -> None:
    assert encode_value({"a": (1, "x")}) == encode_value(encode({"a": [1, "x"]}))


def test_key_string_refuses_non_bson_values_and_unknown_types() -> None:
    with pytest.raises(TypeError, match="not a BSON value"):
        encode_value(object())
    with pytest.raises(ValueError, match="unknown BSON type"):
        encode_raw(b"\0\0\0\0", 0x42, 0)


def test_a_key_is_its_components_behind_each_other() -> None:
    document = encode({"f": "x"})
    builder = KeyStringBuilder()
    builder.append(5)
    builder.append_raw(document, 2, 7, True)
    builder.append_raw(document, 2, 7)
    builder.append_component(encode_value(None))
    builder.append(1.5, True)
    key = builder.finish()
    assert key == encode_key([5, "x", "x", None, 1.5], [False, True, False, False, True])
    assert key == b"".join(
        [encode_value(5), encode_value("x", True), encode_value("x"), encode_value(None), encode_value(1.5, True)]
    )


@pytest.mark.parametrize(
    ("prefix", "following"),
    [(b"\x01", b"\x02"), (b"\x01\xff", b"\x02"), (b"\x01\xff\xff", b"\x02"), (b"\x00", b"\x01"), (b"", b"\xff")],
)
def test_successor_counts_up(prefix: bytes, following: bytes) -> None:
    assert successor(prefix) == following


def test_every_key_lies_between_the_lowest_and_the_highest() -> None:
    for value, _ in FORMAT:
        for descending in (False, True):
            assert LOWEST_KEY < encode_value(value, descending) < HIGHEST_KEY


@pytest.mark.parametrize("descending", [False, True])
def test_a_range_of_values_has_both_ends(descending: bool) -> None:
    low, high = value_range(2, 4, descending)
    inside = [n for n in (1, 1.9, 2, 2.0, 3, 4, 4.1, 5) if low <= encode_value(n, descending) < high]
    assert inside == [2, 2.0, 3, 4]
    assert low <= encode_value(4, descending) + encode_value("more") < high  # the first of several components


def test_bracket_ranges_cover_their_types_and_no_others() -> None:
    for value, _ in FORMAT:
        for descending in (False, True):
            key = encode_value(value, descending)
            inside = [
                bracket
                for bracket in (-1, 0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 47, 50, 55, 60, 65, 127)
                for low, high in [bracket_range(bracket, descending)]
                if low <= key < high
            ]
            assert inside == [compare.bracket_of(value)]


def test_greater_than_becomes_a_range_of_one_bracket() -> None:
    low, high = successor(encode_value(5)), bracket_range(compare.BRACKET_NUMBER)[1]
    inside: list[Value] = [5.000001, 6, Int64(2**62), math.inf, Decimal128("5.1")]
    outside: list[Value] = [5, 5.0, 4.9, -math.inf, math.nan, None, "5", [6], True, MaxKey(), MinKey()]
    assert all(low <= encode_value(value) < high for value in inside)
    assert not any(low <= encode_value(value) < high for value in outside)


def test_nan_lies_below_minus_infinity_within_its_bracket() -> None:
    low, _ = bracket_range(compare.BRACKET_NUMBER)
    assert low <= encode_value(math.nan) < encode_value(-math.inf)


@pytest.mark.parametrize("descending", [False, True])
def test_components_end_where_the_next_one_begins(descending: bool) -> None:
    values: list[Value] = [
        None, True, False, 0, 1, -1, 127, 128, -300, 2**40, -(2**62), 0.5, -0.5, 1.5, -1.5, 1e300, -1e300,
        float("nan"), float("inf"), float("-inf"), "", "a\0\1b", [], [1, ["x", None]], [-2.5, {}],
        *[Decimal128(text) for text in ("0.1", "-0.1", "1.1", "-1.1", "1E+6000", "-1E+6000", "1E-6000", "12345678.3")],
        encode({}), encode({"a": 1, "b": {"c": [1, "x"]}, "": -0.1}), ObjectId(bytes(range(12))), Date(-5),
        Timestamp(5, 6), BinData(b"xyz\0", 4), Regex("a", "i"), JavaScript("f", None),
        JavaScript("f", encode({"a": 1})), DBPointer("db.c", bytes(12)), MinKey(), MaxKey(), Undefined(),
    ]  # fmt: skip
    for value in values:
        component = encode_value(value, descending)
        for following in (component, encode_value("x", descending), encode_value(-3, not descending)):
            assert component_end(component + following, 0, descending) == len(component), value


@pytest.mark.parametrize("length", [63, 64, 65, 66, 200])
def test_long_texts_are_escaped_as_short_ones(length: int) -> None:
    for special in ("\0", "\1", "\0\1\1\0", "\1\2", "ab"):
        for at in (0, 30, length - len(special)):
            text = "x" * at + special + "y" * (length - len(special) - at)
            escaped = text.encode().replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")
            assert encode_value(text) == b"\x40" + escaped + b"\0"


def test_long_texts_are_ordered() -> None:
    texts = sorted("x" * 70 + end for end in ("", "\0", "\0\0", "\0\1", "\1", "\1\0", "\1\1", "\2", "a", "é"))
    assert sorted(texts, key=encode_value) == texts
