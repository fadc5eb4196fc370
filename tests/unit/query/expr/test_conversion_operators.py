"""Every pair of types that the conversions know, and the numbers at the bounds; see test_conversion for the rest."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

NAN = float("nan")
INF = float("inf")
OID = ObjectId("5ab9cbfa31c2ab715d42129e")
UUID = uuid.UUID("0e3b9063-8abd-4eb3-9f9f-f4c59fd30a60")


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("$toBool", True, True),
        ("$toBool", 1.99999, True),
        ("$toBool", -0.0, False),
        ("$toBool", NAN, True),
        ("$toBool", Decimal128("5"), True),
        ("$toBool", Int64(0), False),
        ("$toBool", "", True),
        ("$toBool", OID, True),
        ("$toBool", DatetimeMS(0), True),
        ("$toBool", Timestamp(0, 0), True),
        ("$toBool", [], True),
        ("$toBool", {}, True),
        ("$toBool", Binary(b""), True),
        ("$toBool", Regex("x"), True),
        ("$toBool", MinKey(), True),
        ("$toInt", False, 0),
        ("$toInt", 1.99999, 1),
        ("$toInt", Decimal128("-5.5000"), -5),
        ("$toInt", Int64(5000), 5000),
        ("$toInt", "-2", -2),
        ("$toInt", -2147483648.9, -(2**31)),
        ("$toInt", "+7", 7),
        ("$toLong", True, Int64(1)),
        ("$toLong", 1.99999, Int64(1)),
        ("$toLong", Decimal128("5.5000"), Int64(5)),
        ("$toLong", Decimal128("9223372036854775807"), Int64(2**63 - 1)),
        ("$toLong", 8, Int64(8)),
        ("$toLong", DatetimeMS(1_522_127_087_890), Int64(1_522_127_087_890)),
        ("$toLong", "-2", Int64(-2)),
        ("$toLong", "9223372036854775807", Int64(2**63 - 1)),
        ("$toLong", -9223372036854775808.0, Int64(-(2**63))),
        ("$toDouble", True, 1.0),
        ("$toDouble", 2.5, 2.5),
        ("$toDouble", Int64(20000), 20000.0),
        ("$toDouble", Decimal128("5"), 5.0),
        ("$toDouble", Decimal128("0.1"), 0.1),
        ("$toDouble", DatetimeMS(1_522_127_087_890), 1522127087890.0),
        ("$toDouble", "-2", -2.0),
        ("$toDouble", "2.5", 2.5),
        ("$toDouble", ".5e-3", 0.0005),
        ("$toDouble", "NaN", NAN),
        ("$toDouble", Int64(2**53 + 1), 9007199254740992.0),
        ("$toDecimal", True, Decimal128("1")),
        ("$toDecimal", False, Decimal128("0")),
        ("$toDecimal", 2.5, Decimal128("2.50000000000000")),
        ("$toDecimal", 0.1, Decimal128("0.100000000000000")),
        ("$toDecimal", Int64(2**63 - 1), Decimal128("9223372036854775807")),
        ("$toDecimal", DatetimeMS(1_522_127_087_890), Decimal128("1522127087890")),
        ("$toDecimal", "-2", Decimal128("-2")),
        ("$toDecimal", f"1.{33 * '0'}99999", Decimal128(f"1.{33 * '0'}")),
        ("$toDecimal", f"-{34 * '9'}9", Decimal128(f"-{34 * '9'}E+1")),
        ("$toDecimal", "1E-6176", Decimal128("1E-6176")),
        ("$toDecimal", "1E+500", Decimal128("1E+500")),
        ("$toDecimal", INF, Decimal128("Infinity")),
        ("$toDecimal", "Infinity", Decimal128("Infinity")),
        ("$toDecimal", Decimal128("1.0"), Decimal128("1.0")),
        ("$toString", True, "true"),
        ("$toString", 2.5, "2.5"),
        ("$toString", -0.0, "-0"),
        ("$toString", NAN, "NaN"),
        ("$toString", -INF, "-Infinity"),
        ("$toString", Decimal128("2.50"), "2.50"),
        ("$toString", Decimal128("1E+3"), "1E+3"),
        ("$toString", 1e-7, "1e-07"),
        ("$toString", 123456789.125, "123456789.125"),
        ("$toString", DatetimeMS(-1), "1969-12-31T23:59:59.999Z"),
        ("$toObjectId", OID, OID),
        ("$toObjectId", "5AB9CBFA31C2AB715D42129E", OID),
        ("$toObjectId", None, None),
        ("$toDate", 120000000000.5, DatetimeMS(120_000_000_000)),
        ("$toDate", Decimal128("1253372036000.50"), DatetimeMS(1_253_372_036_000)),
        ("$toDate", Int64(-1), DatetimeMS(-1)),
        ("$toDate", DatetimeMS(5), DatetimeMS(5)),
        ("$toDate", "2018-03-20 11:00:06 +0500", DatetimeMS(1_521_525_606_000)),
        ("$toUUID", str(UUID), Binary(UUID.bytes, 4)),
        ("$toUUID", str(UUID).upper(), Binary(UUID.bytes, 4)),
        ("$toUUID", Binary(UUID.bytes, 4), Binary(UUID.bytes, 4)),
        ("$isNumber", 1.5, True),
        ("$isNumber", NAN, True),
        ("$isNumber", Decimal128("-0"), True),
        ("$isNumber", 0, True),
        ("$isNumber", True, False),
        ("$isNumber", "1", False),
        ("$isNumber", None, False),
        ("$isNumber", {}, False),
        ("$isNumber", DatetimeMS(0), False),
        ("$isNumber", Timestamp(1, 1), False),
        ("$type", Regex("x"), "regex"),
        ("$type", Code("f()"), "javascript"),
        ("$type", Code("f()", {}), "javascriptWithScope"),
        ("$type", MinKey(), "minKey"),
        ("$type", [1], "array"),
    ],
)
def test_values(check: Check, operator: str, value: object, expected: object) -> None:
    check({operator: "$v"}, {"v": value}, expected)


def test_years_of_five_digits_are_no_text(failure: Failure) -> None:
    """The error is not one of the conversion, so `onError` does not catch it."""
    for date in (DatetimeMS(-62_167_219_200_001), DatetimeMS(253_402_300_800_000)):
        assert failure({"$toString": "$v"}, {"v": date}).code == 18537
        assert failure({"$convert": {"input": "$v", "to": "string", "onError": 1}}, {"v": date}).code == 18537


@pytest.mark.slow
def test_texts_of_16_megabytes_are_refused(failure: Failure) -> None:
    def code(data: bytes, format: str) -> int:
        text = {"$convert": {"input": "$v", "to": "string", "format": format}}
        return failure(text, {"v": Binary(data)}).code

    assert code(bytes(8 << 20), "hex") == 241
    assert code(bytes(12 << 20), "base64") == 241
    assert code(bytes(12 << 20), "base64url") == 241


@pytest.mark.parametrize(
    "operator", "$toBool $toInt $toLong $toDouble $toDecimal $toString $toObjectId $toDate $toUUID".split()
)
def test_nothing_gives_null(check: Check, failure: Failure, operator: str) -> None:
    for nothing in (None, "$n", "$missing", ["$n"]):
        check({operator: nothing}, {"n": None}, None)
    assert failure({operator: [1, 2]}, {}).code == 50723


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        ("$toInt", Decimal128("9223372036000")),
        ("$toDecimal", "1E-6177"),
        ("$toDecimal", "1E+6145"),
        ("$toDecimal", "1E+99999999999999999999"),
        ("$toInt", 2147483648.0),
        ("$toInt", "2147483648"),
        ("$toInt", " 1"),
        ("$toInt", "0x10"),
        ("$toInt", ""),
        ("$toInt", INF),
        ("$toInt", OID),
        ("$toInt", Timestamp(1, 1)),
        ("$toInt", {}),
        ("$toLong", Decimal128("9223372036854775808")),
        ("$toLong", 9223372036854775808.0),
        ("$toLong", NAN),
        ("$toLong", "1.0"),
        ("$toLong", "1e3"),
        ("$toLong", OID),
        ("$toDouble", "2,5"),
        ("$toDouble", "0x1p3"),
        ("$toDouble", ""),
        ("$toDouble", OID),
        ("$toDouble", Decimal128("-1E+400")),
        ("$toDecimal", "x"),
        ("$toDecimal", " 1"),
        ("$toDecimal", "1E+7000"),
        ("$toDecimal", []),
        ("$toString", []),
        ("$toString", MaxKey()),
        ("$toString", Timestamp(1, 1)),
        ("$toObjectId", "5ab9cbfa31c2ab715d42129"),
        ("$toObjectId", "5ab9cbfa31c2ab715d42129x"),
        ("$toObjectId", 1),
        ("$toObjectId", Binary(b"123456789012")),
        ("$toDate", "2018-03-32"),
        ("$toDate", True),
        ("$toDate", 1e300),
        ("$toDate", NAN),
        ("$toUUID", "0e3b9063"),
        ("$toUUID", Binary(UUID.bytes, 0)),
    ],
)
def test_what_cannot_be_converted(check: Check, failure: Failure, operator: str, value: object) -> None:
    assert failure({operator: "$v"}, {"v": value}).code == ErrorCode.ConversionFailure
    if operator != "$toUUID":
        target = {"$toInt": "int", "$toLong": "long"}.get(operator, operator[3].lower() + operator[4:])
        check({"$convert": {"input": "$v", "to": target, "onError": "bad"}}, {"v": value}, "bad")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"input": True, "to": 16}, 1),
        ({"input": 1.5, "to": "decimal"}, Decimal128("1.50000000000000")),
        ({"input": "x", "to": "bool"}, True),
        ({"input": None, "to": "bool"}, None),
        ({"input": None, "to": "bool", "onNull": "$missing"}, ...),
        ({"input": "$missing", "to": "string", "onNull": "none"}, "none"),
        ({"input": "x", "to": "int", "onError": {"$concat": ["bad ", "$s"]}}, "bad text"),
        ({"input": "x", "to": "int", "onError": "$missing"}, ...),
        ({"input": "1", "to": "$type"}, 1),
        ({"input": "1", "to": "$missing"}, None),
        ({"input": None, "to": "$missing", "onNull": "first"}, "first"),
        ({"input": {"$add": [1, 1]}, "to": "string"}, "2"),
    ],
)
def test_convert(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$convert": parameters}, {"s": "text", "type": "int"}, expected)


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"to": "int"}, ErrorCode.FailedToParse),
        ({"input": 1, "to": "int", "x": 1}, ErrorCode.FailedToParse),
        ({"input": 1, "to": 7.5}, ErrorCode.FailedToParse),
        ({"input": 1, "to": True}, ErrorCode.FailedToParse),
        ({"input": 1, "to": 100}, ErrorCode.FailedToParse),
        ({"input": 1, "to": "number"}, ErrorCode.BadValue),
        ({"input": 1, "to": "minKey"}, ErrorCode.ConversionFailure),
        ({"input": 1, "to": "objectId"}, ErrorCode.ConversionFailure),
    ],
)
def test_refusals_of_convert(failure: Failure, parameters: dict[str, object], code: int) -> None:
    assert failure({"$convert": parameters}, {}).code == code
