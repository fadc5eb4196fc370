"""The expiry rules: which `ttl` values count, the matrix of default and document, the instant, the cutoffs."""

import math
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import bson
import pytest

from mongottl.document.types import MISSING, Date
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.ttl.policy import (
    MAX_TTL_S,
    NEVER,
    NEVER_AT_S,
    NO_CUTOFF_S,
    NO_TTL,
    counts_as_ttl,
    default_cutoff_s,
    effective_ttl_s,
    expires_at_s,
    is_expired,
    meaningful_ttl_s,
    own_cutoff_s,
    parse_default_ttl,
)

COUNTING: list[tuple[object, int]] = [
    (20, 20),
    (bson.Int64(20), 20),
    (20.0, 20),
    (1, 1),
    (bson.Int64(1), 1),
    (1.0, 1),
    (2147483647, MAX_TTL_S),
    (bson.Int64(2147483647), MAX_TTL_S),
    (2147483647.0, MAX_TTL_S),
    (-1, NEVER),
    (bson.Int64(-1), NEVER),
    (-1.0, NEVER),
]
NUMBERS_OUTSIDE: list[object] = [
    0,
    bson.Int64(0),
    0.0,
    -0.0,
    -2,
    bson.Int64(-2),
    -2.0,
    -(2**31),
    bson.Int64(-(2**31) - 1),
    bson.Int64(-(2**63)),
    bson.Int64(2147483648),
    bson.Int64(2147483649),
    bson.Int64(2**32 + 20),  # Its lower half alone would count.
    bson.Int64(2**63 - 1),
    2147483648.0,
    2147483647.5,
    20.5,
    0.5,
    -0.5,
    -1.5,
    5e-324,
    1e300,
    -1e300,
    math.nextafter(20.0, 21.0),
    math.nan,
    math.inf,
    -math.inf,
]
OTHERS: list[object] = [
    bson.Decimal128("20"),
    bson.Decimal128("-1"),
    True,
    False,
    "20",
    "",
    None,
    datetime(2020, 1, 1, tzinfo=UTC),
    bson.ObjectId(b"\x14" + bytes(11)),
    bson.Timestamp(20, 1),
    bson.Regex("20"),
    bson.Code("20"),
    bson.Code("20", {"ttl": 20}),
    bson.Binary(b"\x14\0\0\0"),
    bson.MinKey(),
    bson.MaxKey(),
    {},
    {"ttl": 20},
    [],
    [20],
]


def encoded(document: Mapping[str, Any]) -> bytes:
    return bson.encode(document)


@pytest.mark.parametrize(("value", "ttl_s"), COUNTING)
def test_values_that_count(value: object, ttl_s: int) -> None:
    raw = encoded({"_id": 1, "x": "abc", "ttl": value, "y": [1, 2]})
    assert meaningful_ttl_s(raw) == ttl_s
    assert counts_as_ttl(get_value(raw, "ttl")) == ttl_s
    assert parse_default_ttl(get_value(raw, "ttl")) == ttl_s


@pytest.mark.parametrize("value", NUMBERS_OUTSIDE + OTHERS, ids=repr)
def test_values_that_do_not_count(value: object) -> None:
    raw = encoded({"_id": 1, "x": "abc", "ttl": value, "y": [1, 2]})
    assert meaningful_ttl_s(raw) == NO_TTL
    assert counts_as_ttl(get_value(raw, "ttl")) == NO_TTL


def test_deprecated_types_do_not_count() -> None:
    undefined = b"\x06ttl\0"
    symbol = b"\x0ettl\0\x03\0\0\x0020\0"
    db_pointer = b"\x0cttl\0\x02\0\0\0x\0" + bytes(12)
    for element in (undefined, symbol, db_pointer):
        raw = struct.pack("<i", len(element) + 5) + element + b"\0"
        assert meaningful_ttl_s(raw) == NO_TTL
        assert counts_as_ttl(get_value(raw, "ttl")) == NO_TTL


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"_id": 1},
        {"TTL": 3},
        {"Ttl": 3},
        {"ttl ": 3},
        {"tt": 3},
        {"ttls": 3},
        {"": 3},
        {"meta": {"ttl": 5}},
        {"a": [{"ttl": 5}]},
        {"a.ttl": 5},
        {"s": "\x10ttl\0\x05\0\0\0"},
    ],
    ids=repr,
)
def test_only_a_root_field_of_exactly_that_name(document: Mapping[str, Any]) -> None:
    assert meaningful_ttl_s(encoded(document)) == NO_TTL
    assert meaningful_ttl_s(encoded({**document, "ttl": 7})) == 7


def test_the_first_of_two_fields_decides() -> None:
    def twice(first: bytes, second: bytes) -> bytes:
        return struct.pack("<i", len(first) + len(second) + 5) + first + second + b"\0"

    five = b"\x10ttl\0" + struct.pack("<i", 5)
    nine = b"\x10ttl\0" + struct.pack("<i", 9)
    null = b"\x0attl\0"
    assert meaningful_ttl_s(twice(five, nine)) == 5
    assert meaningful_ttl_s(twice(nine, five)) == 9
    assert meaningful_ttl_s(twice(null, five)) == NO_TTL


def test_missing_is_no_ttl() -> None:
    assert counts_as_ttl(MISSING) == NO_TTL
    assert counts_as_ttl(2**40) == NO_TTL


# collection default, document ttl, life in seconds (None: for ever)
MATRIX: list[tuple[int, int, int | None]] = [
    (NO_TTL, NO_TTL, None),
    (NO_TTL, NEVER, None),
    (NO_TTL, 5, None),
    (NEVER, NO_TTL, None),
    (NEVER, NEVER, None),
    (NEVER, 5, 5),
    (10, NO_TTL, 10),
    (10, NEVER, None),
    (10, 5, 5),
    (10, 20, 20),
    (1, 1, 1),
    (1, MAX_TTL_S, MAX_TTL_S),
    (MAX_TTL_S, NO_TTL, MAX_TTL_S),
    (MAX_TTL_S, 1, 1),
]


@pytest.mark.parametrize(("default_s", "ttl_s", "life_s"), MATRIX)
@pytest.mark.parametrize("ts_s", [0, 1, 1_700_000_000, 2**31, 2**32 - 1])
def test_matrix_and_instant(default_s: int, ttl_s: int, life_s: int | None, ts_s: int) -> None:
    if life_s is None:
        assert effective_ttl_s(ttl_s, default_s) == NEVER
        assert expires_at_s(ts_s, ttl_s, default_s) == NEVER_AT_S
        assert not is_expired(ts_s, ttl_s, default_s, ts_s + 2**33)
        assert not is_expired(ts_s, ttl_s, default_s, 253_402_300_799)
    else:
        assert effective_ttl_s(ttl_s, default_s) == life_s
        assert expires_at_s(ts_s, ttl_s, default_s) == ts_s + life_s
        assert not is_expired(ts_s, ttl_s, default_s, ts_s + life_s - 1)
        assert is_expired(ts_s, ttl_s, default_s, ts_s + life_s)
        assert is_expired(ts_s, ttl_s, default_s, ts_s + life_s + 1)


@pytest.mark.parametrize("default_s", [NO_TTL, NEVER, 1, 10, MAX_TTL_S])
@pytest.mark.parametrize("value", NUMBERS_OUTSIDE + OTHERS, ids=repr)
def test_fourth_row_a_value_without_meaning_is_absent(value: object, default_s: int) -> None:
    ttl_s = meaningful_ttl_s(encoded({"ttl": value}))
    assert expires_at_s(100, ttl_s, default_s) == expires_at_s(100, NO_TTL, default_s)


def test_a_clock_that_goes_back_revives() -> None:
    assert is_expired(100, NO_TTL, 5, 105)
    assert not is_expired(100, NO_TTL, 5, 99)


@pytest.mark.parametrize("value", NUMBERS_OUTSIDE, ids=repr)
def test_default_out_of_range_is_a_bad_value(value: object) -> None:
    with pytest.raises(CommandError, match="expireAfterSeconds") as caught:
        parse_default_ttl(value)
    assert caught.value.code == ErrorCode.BadValue


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        ("10", "string"),
        (True, "bool"),
        (None, "null"),
        ([10], "array"),
        (b"\x05\0\0\0\0", "object"),
        (Date(10), "date"),
        (bson.Decimal128("10"), "decimal"),
    ],
)
def test_default_of_another_type_is_a_type_mismatch(value: object, type_name: str) -> None:
    with pytest.raises(CommandError, match=f"of type {type_name}$") as caught:
        parse_default_ttl(value)
    assert caught.value.code == ErrorCode.TypeMismatch


def test_refused_decimal_is_not_called_a_non_number() -> None:
    with pytest.raises(CommandError, match="must be an int, a long or a double"):
        parse_default_ttl(bson.Decimal128("10"))


@pytest.mark.parametrize("default_s", [NO_TTL, NEVER, 1, 10, MAX_TTL_S])
@pytest.mark.parametrize("now_s", [0, 10, 1_700_000_000, 2**32])
def test_cutoffs_say_what_the_policy_says(default_s: int, now_s: int) -> None:
    for ts_s in (0, 1, now_s - 11, now_s - 10, now_s - 9, now_s - 1, now_s, now_s + 1, now_s - MAX_TTL_S):
        assert (ts_s <= default_cutoff_s(default_s, now_s)) == is_expired(ts_s, NO_TTL, default_s, now_s)
        for ttl_s in (1, 9, 10, 11, MAX_TTL_S):
            assert (ts_s + ttl_s <= own_cutoff_s(default_s, now_s)) == is_expired(ts_s, ttl_s, default_s, now_s)


def test_no_cutoff_lies_before_every_second() -> None:
    assert default_cutoff_s(NO_TTL, 2**40) == NO_CUTOFF_S
    assert default_cutoff_s(NEVER, 2**40) == NO_CUTOFF_S
    assert own_cutoff_s(NO_TTL, 2**40) == NO_CUTOFF_S
    assert NO_CUTOFF_S < -(2**62)
