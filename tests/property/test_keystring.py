"""KeyString order is comparison order, equal keys are equal values, and keys cut ranges exactly."""

import math
from decimal import Context, Decimal

import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.document.build import encode_fields
from mongottl.document.compare import bracket_of, compare_raw, compare_values
from mongottl.document.keystring import (
    KeyStringBuilder,
    bracket_range,
    encode_key,
    encode_raw,
    encode_value,
    successor,
)
from mongottl.document.types import (
    MISSING,
    BinData,
    Date,
    DBPointer,
    JavaScript,
    Regex,
    Symbol,
    Undefined,
    Value,
    type_code_of,
)
from mongottl.document.walk import find_field

pytestmark = pytest.mark.slow

EXACT = Context(prec=34, Emin=-6143, Emax=6144, clamp=1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Where size classes, exponents and digits of the encodings end.
EDGES: list[float] = [
    0.0,
    1.0,
    127.0,
    128.0,
    32768.0,
    2.0**52,
    2.0**53,
    2.0**62,
    2.0**63,
    2.0**64,
    1e17,
    1e22,
    1e23,
    1e33,
    1e34,
    0.1,
    0.5,
    1 - 2**-53,
    5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
]


def decimal(number: Decimal) -> Decimal128:
    return Decimal128(EXACT.plus(number))


@st.composite
def close_numbers(draw: st.DrawFn) -> Value:
    """Numbers of all four types close to an edge, so that pairs of them often differ by nothing or by very little."""
    number = draw(st.sampled_from(EDGES)) * draw(st.sampled_from([1.0, -1.0]))
    for _ in range(draw(st.integers(0, 2))):
        number = math.nextafter(number, draw(st.sampled_from([math.inf, -math.inf])))
    kind = draw(st.integers(0, 3))
    if kind == 0 or not math.isfinite(number):
        return number
    if kind == 1 and abs(number) < 2**63:
        return Int64(min(2**63 - 1, max(-(2**63), int(number) + draw(st.integers(-2, 2)))))
    exact = EXACT.plus(Decimal(number))
    for _ in range(draw(st.integers(0, 2))):
        exact = EXACT.next_plus(exact) if draw(st.booleans()) else EXACT.next_minus(exact)
    return decimal(exact)


NUMBERS: st.SearchStrategy[Value] = st.one_of(
    close_numbers(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-300, 300),
    INT64.map(Int64),
    st.builds(lambda number, shift: Int64(number >> shift), INT64, st.integers(0, 63)),
    st.floats(),
    st.builds(lambda number, scale: number / scale, st.integers(-2000, 2000), st.sampled_from([2, 8, 10, 1 << 40])),
    st.binary(min_size=16, max_size=16).map(Decimal128.from_bid),
    st.builds(
        lambda digits, exponent: decimal(Decimal(digits).scaleb(exponent, Context(prec=60))),
        st.integers(-(10**34) + 1, 10**34 - 1),
        st.integers(-60, 320),
    ),
    st.builds(
        lambda digits, exponent: decimal(Decimal(digits).scaleb(exponent)), st.integers(-999, 999), st.integers(-5, 5)
    ),
)
TEXT = st.one_of(
    st.text("\0\1\2ab\x7fé\uffff\U00010000", max_size=4),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
NAMES = st.one_of(
    st.sampled_from(["", "a", "b", "aa", "\1", "\x7f", "é"]), TEXT.map(lambda text: text.replace("\0", ""))
)
OIDS = st.one_of(st.sampled_from([b"\0" * 12, b"\xff" * 12]), st.binary(min_size=12, max_size=12))
UINT32 = st.one_of(st.sampled_from([0, 1, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))
SCALARS: st.SearchStrategy[Value] = st.one_of(
    NUMBERS,
    TEXT,
    TEXT.map(Symbol),
    st.none(),
    st.booleans(),
    st.builds(Undefined),
    st.builds(MinKey),
    st.builds(MaxKey),
    OIDS.map(ObjectId),
    st.one_of(INT64, st.integers(-2, 2)).map(Date),
    st.builds(Timestamp, UINT32, UINT32),
    st.builds(BinData, st.binary(max_size=3), st.sampled_from([0, 4, 5, 128, 255])),
    st.builds(Regex, NAMES, st.sampled_from(["", "i", "im"])),
    st.builds(DBPointer, TEXT, OIDS),
    st.builds(JavaScript, TEXT),
)


def containers(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    documents = st.lists(st.tuples(NAMES, values), max_size=3).map(encode_fields)
    return st.one_of(documents, st.lists(values, max_size=3), st.builds(JavaScript, TEXT, documents))


VALUES: st.SearchStrategy[Value] = st.recursive(SCALARS, containers, max_leaves=6)


def raw(value: Value) -> tuple[bytes, int, int]:
    document = encode_fields([("f", value)])
    type_code, pos = find_field(document, b"f")
    return document, int(type_code), int(pos)


def order(a: bytes, b: bytes) -> int:
    return (a > b) - (a < b)


def check_order(a: Value, b: Value) -> None:
    expected = compare_values(a, b)
    assert order(encode_value(a), encode_value(b)) == expected
    assert order(encode_value(b, True), encode_value(a, True)) == expected
    assert order(encode_key([a, 1], [False, True]), encode_key([b, 1], [False, True])) == expected


@settings(max_examples=400, deadline=None)
@given(NUMBERS, NUMBERS)
def test_numbers_are_ordered_as_they_compare(a: Value, b: Value) -> None:
    check_order(a, b)


@settings(deadline=None)
@given(st.lists(close_numbers(), min_size=2, max_size=12))
def test_close_numbers_are_ordered_as_they_compare(numbers: list[Value]) -> None:
    for i in range(len(numbers) - 1):
        check_order(numbers[i], numbers[i + 1])
    by_key = sorted(numbers, key=encode_value)
    assert all(compare_values(by_key[i], by_key[i + 1]) <= 0 for i in range(len(by_key) - 1))


@settings(max_examples=300, deadline=None)
@given(VALUES, VALUES)
def test_values_are_ordered_as_they_compare(a: Value, b: Value) -> None:
    check_order(a, b)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
def test_arrays_and_objects_are_ordered_as_they_compare(a: list[Value], b: list[Value]) -> None:
    shared = [*a[:2], *b[2:]]
    check_order(a, b)
    check_order(a, shared)
    names = "abca"
    check_order(encode_fields(list(zip(names, a, strict=False))), encode_fields(list(zip(names, shared, strict=False))))


@settings(max_examples=300, deadline=None)
@given(VALUES, st.booleans())
def test_raw_values_have_the_keys_of_decoded_ones(value: Value, descending: bool) -> None:
    document, type_code, pos = raw(value)
    assert type_code == type_code_of(value)
    assert encode_raw(document, type_code, pos, descending) == encode_value(value, descending)
    builder = KeyStringBuilder()
    builder.append_raw(document, type_code, pos, descending)
    builder.append_raw(document, type_code, pos, not descending)
    assert builder.finish() == encode_key([value, value], [descending, not descending])


@settings(deadline=None)
@given(VALUES, VALUES)
def test_comparison_in_place_is_comparison(a: Value, b: Value) -> None:
    a_buf, a_type, a_pos = raw(a)
    b_buf, b_type, b_pos = raw(b)
    assert compare_raw(a_buf, a_type, a_pos, b_buf, b_type, b_pos) == compare_values(a, b)
    assert compare_values(b, a) == -compare_values(a, b)
    assert compare_values(a, a) == 0


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES, st.booleans()), min_size=1, max_size=3))
def test_compound_keys_are_ordered_component_by_component(rows: list[tuple[Value, Value, bool]]) -> None:
    descending = [row[2] for row in rows]
    expected = 0
    for a, b, inverted in rows:
        if expected == 0:
            expected = -compare_values(a, b) if inverted else compare_values(a, b)
    left = encode_key([row[0] for row in rows], descending)
    right = encode_key([row[1] for row in rows], descending)
    assert order(left, right) == expected


@settings(max_examples=300, deadline=None)
@given(VALUES, VALUES, VALUES, st.booleans(), st.booleans())
def test_a_component_and_its_successor_enclose_the_keys_that_begin_with_it(
    first: Value, other: Value, second: Value, descending: bool, second_descending: bool
) -> None:
    prefix = encode_value(first, descending)
    for value in (first, other):
        key = encode_key([value, second], [descending, second_descending])
        for one in (key, encode_value(value, descending)):
            assert (prefix <= one < successor(prefix)) == (compare_values(value, first) == 0)
    if compare_values(first, other) != 0:
        assert not encode_value(other, descending).startswith(prefix)


@settings(max_examples=300, deadline=None)
@given(VALUES, VALUES, st.booleans())
def test_bracket_ranges_cut_between_types(a: Value, b: Value, descending: bool) -> None:
    low, high = bracket_range(bracket_of(a), descending)
    key = encode_key([b, a], [descending, descending])
    assert (low <= key < high) == (bracket_of(a) == bracket_of(b))
    # {$gt: a} and {$lt: a} match values of the same bracket only.
    at, behind = encode_value(a, descending), successor(encode_value(a, descending))
    same = bracket_of(a) == bracket_of(b)
    greater = (low <= key < at) if descending else (behind <= key < high)
    assert greater == (same and compare_values(b, a) > 0)


@given(st.booleans(), VALUES)
def test_missing_is_with_undefined(descending: bool, value: Value) -> None:
    assert encode_value(MISSING, descending) == encode_value(Undefined(), descending)
    check_order(MISSING, value)
