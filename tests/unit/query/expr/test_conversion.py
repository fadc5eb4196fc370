"""Conversions: every pair of types that they know, the numbers at the bounds, and `$type` and `$isNumber`."""

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
    ("value", "name"),
    [
        (1, "int"),
        (Int64(1), "long"),
        (1.0, "double"),
        (Decimal128("1"), "decimal"),
        ("x", "string"),
        ({}, "object"),
        (["$nothing"], "missing"),
        (None, "null"),
        (True, "bool"),
        (DatetimeMS(0), "date"),
        (OID, "objectId"),
        (Binary(b"x"), "binData"),
        (Timestamp(1, 1), "timestamp"),
        (MaxKey(), "maxKey"),
    ],
)
def test_type(check: Check, value: object, name: str) -> None:
    check({"$type": value}, {}, name)


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("$toBool", 0, False),
        ("$toBool", 0.5, True),
        ("$toBool", "false", True),
        ("$toBool", Decimal128("0"), False),
        ("$toInt", 2.9, 2),
        ("$toInt", -2.9, -2),
        ("$toInt", "-17", -17),
        ("$toInt", True, 1),
        ("$toInt", Decimal128("5.9"), 5),
        ("$toLong", 3, Int64(3)),
        ("$toLong", DatetimeMS(77), Int64(77)),
        ("$toDouble", 7, 7.0),
        ("$toDouble", "1e3", 1000.0),
        ("$toDouble", "-Infinity", float("-inf")),
        ("$toDouble", DatetimeMS(5), 5.0),
        ("$toDecimal", 5, Decimal128("5")),
        ("$toDecimal", 5.5, Decimal128("5.50000000000000")),
        ("$toDecimal", "1.10", Decimal128("1.10")),
        ("$toString", 2.0, "2"),
        ("$toString", Int64(7), "7"),
        ("$toString", Decimal128("1.50"), "1.50"),
        ("$toString", 1e16, "1e+16"),
        ("$toString", False, "false"),
        ("$toString", OID, "5ab9cbfa31c2ab715d42129e"),
        ("$toString", DatetimeMS(1_522_170_001_538), "2018-03-27T17:00:01.538Z"),
        ("$toString", Binary(b"hi"), "aGk="),
        ("$toObjectId", "5ab9cbfa31c2ab715d42129e", OID),
        ("$toDate", Int64(1000), DatetimeMS(1000)),
        ("$toDate", 1500.9, DatetimeMS(1500)),
        ("$toDate", OID, DatetimeMS(0x5AB9CBFA * 1000)),
        ("$toDate", Timestamp(3, 9), DatetimeMS(3000)),
        ("$toDate", "2018-03-20", DatetimeMS(1_521_504_000_000)),
        ("$toUUID", str(UUID), Binary(UUID.bytes, 4)),
        ("$toInt", None, None),
        ("$isNumber", Int64(1), True),
        ("$isNumber", "1", False),
    ],
)
def test_shorthands(check: Check, operator: str, value: object, expected: object) -> None:
    check({operator: value}, {}, expected)
    check({operator: "$v"}, {"v": value}, expected)


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
def test_shorthands_of_fields(check: Check, operator: str, value: object, expected: object) -> None:
    check({operator: "$v"}, {"v": value}, expected)


def test_dates_in_years_of_five_digits_have_no_string(failure: Failure) -> None:
    """The error is not one of the conversion, so `onError` does not catch it."""
    for date in (DatetimeMS(-62_167_219_200_001), DatetimeMS(253_402_300_800_000)):
        assert failure({"$toString": "$v"}, {"v": date}).code == 18537
        assert failure({"$convert": {"input": "$v", "to": "string", "onError": 1}}, {"v": date}).code == 18537


@pytest.mark.slow
def test_strings_of_16_megabytes_are_refused(failure: Failure) -> None:
    def code(data: bytes, format: str) -> int:
        text = {"$convert": {"input": "$v", "to": "string", "format": format}}
        return failure(text, {"v": Binary(data)}).code

    assert code(bytes(8 << 20), "hex") == 241
    assert code(bytes(12 << 20), "base64") == 241
    assert code(bytes(12 << 20), "base64url") == 241


@pytest.mark.parametrize(
    "operator", "$toBool $toInt $toLong $toDouble $toDecimal $toString $toObjectId $toDate $toUUID".split()
)
def test_null_and_missing_convert_to_null(check: Check, failure: Failure, operator: str) -> None:
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
def test_failed_conversions_raise_or_return_on_error(
    check: Check, failure: Failure, operator: str, value: object
) -> None:
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
        ({"input": "12", "to": "int"}, 12),
        ({"input": "12", "to": 18}, Int64(12)),
        ({"input": "0" * 5000 + "12", "to": "int"}, 12),
        ({"input": "-" + "0" * 5000 + "12", "to": "long"}, Int64(-12)),
        ({"input": "+" + "0" * 5000, "to": "int"}, 0),
        ({"input": "9" * 5000, "to": "int", "onError": "too large"}, "too large"),
        ({"input": "x", "to": "int", "onError": "no number"}, "no number"),
        ({"input": None, "to": "int", "onNull": -1}, -1),
        ({"input": "$nothing", "to": "int"}, None),
        ({"input": 5, "to": None}, None),
        ({"input": 258, "to": "binData"}, Binary(b"\x02\x01\x00\x00")),
        ({"input": 258, "to": "binData", "byteOrder": "big"}, Binary(b"\x00\x00\x01\x02")),
        ({"input": Binary(b"\x02\x01"), "to": "int"}, 258),
        ({"input": "68656c", "to": "binData", "format": "hex"}, Binary(b"hel")),
        ({"input": "aGk=", "to": {"type": "binData", "subtype": 5}, "format": "base64"}, Binary(b"hi", 5)),
        ({"input": "aGk=", "to": {"type": "binData", "subtype": 9}, "format": "base64"}, Binary(b"hi", 9)),
        ({"input": Binary(b"hi"), "to": "string", "format": "hex"}, "6869"),
        ({"input": Binary(UUID.bytes, 4), "to": "string", "format": "auto"}, str(UUID)),
        ({"input": Binary(UUID.bytes, 4), "to": "string", "format": "uuid"}, str(UUID)),
        ({"input": Binary(b"hi"), "to": "string", "format": "auto"}, "aGk="),
        ({"input": Binary(b"\xfb\xff"), "to": "string", "format": "base64url"}, "-_8"),
        ({"input": Binary("h\u00e9".encode()), "to": "string", "format": "utf8"}, "h\u00e9"),
        ({"input": str(UUID), "to": {"type": "binData", "subtype": 4}, "format": "uuid"}, Binary(UUID.bytes, 4)),
        ({"input": "-_8", "to": "binData", "format": "base64url"}, Binary(b"\xfb\xff")),
        ({"input": "h\u00e9", "to": "binData", "format": "utf8"}, Binary("h\u00e9".encode())),
        ({"input": 1.0, "to": "binData"}, Binary(b"\0\0\0\0\0\0\xf0?")),
        ({"input": 1.0, "to": "binData", "byteOrder": "big"}, Binary(b"?\xf0\0\0\0\0\0\0")),
        ({"input": Int64(1), "to": "binData"}, Binary(b"\1\0\0\0\0\0\0\0")),
        ({"input": Binary(b"\xff"), "to": "int"}, -1),
        ({"input": Binary(b"\0\0\0\0\0\0\0\1"), "to": "long", "byteOrder": "big"}, Int64(1)),
        ({"input": Binary(b"\0\0\x80?"), "to": "double"}, 1.0),
        ({"input": Binary(b"?\xf0\0\0\0\0\0\0"), "to": "double", "byteOrder": "big"}, 1.0),
        ({"input": 1, "to": {"type": "string"}}, "1"),
    ],
)
def test_convert(check: Check, parameters: dict[str, object], expected: object) -> None:
    check({"$convert": parameters}, {"s": "text", "type": "int"}, expected)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$convert": {"to": "int"}}, ErrorCode.FailedToParse),
        ({"$convert": {"input": 1, "to": "int", "x": 1}}, ErrorCode.FailedToParse),
        ({"$convert": {"input": 1, "to": 7.5}}, ErrorCode.FailedToParse),
        ({"$convert": {"input": 1, "to": True}}, ErrorCode.FailedToParse),
        ({"$convert": {"input": 1, "to": 100}}, ErrorCode.FailedToParse),
        ({"$convert": {"input": 1, "to": "number"}}, ErrorCode.BadValue),
        ({"$convert": {"input": 1, "to": "minKey"}}, ErrorCode.ConversionFailure),
        ({"$convert": {"input": 1, "to": "objectId"}}, ErrorCode.ConversionFailure),
        ({"$toInt": "1.5"}, ErrorCode.ConversionFailure),
        ({"$toInt": 2.0**31}, ErrorCode.ConversionFailure),
        ({"$toInt": float("nan")}, ErrorCode.ConversionFailure),
        ({"$toInt": DatetimeMS(0)}, ErrorCode.ConversionFailure),
        ({"$toLong": 1e300}, ErrorCode.ConversionFailure),
        ({"$toDouble": "1e999"}, ErrorCode.ConversionFailure),
        ({"$toDouble": "-0x" + "a" * 300}, ErrorCode.ConversionFailure),
        ({"$toDouble": Decimal128("1e999")}, ErrorCode.ConversionFailure),
        ({"$toDate": 5}, ErrorCode.ConversionFailure),  # an int32 is no number of milliseconds
        ({"$toDate": "yesterday"}, ErrorCode.ConversionFailure),
        ({"$toObjectId": "5ab9"}, ErrorCode.ConversionFailure),
        ({"$toString": {}}, ErrorCode.ConversionFailure),
        ({"$toInt": [1, 2]}, 50723),
        ({"$convert": 1}, ErrorCode.FailedToParse),
        ({"$convert": {"input": 1}}, ErrorCode.FailedToParse),
        ({"$convert": {"input": 1, "to": "zzz"}}, ErrorCode.BadValue),
        ({"$convert": {"input": 1, "to": 1.5}}, ErrorCode.FailedToParse),
        ({"$convert": {"input": "x", "to": "binData"}}, 4341115),
        ({"$convert": {"input": "x", "to": "binData", "format": "zzz"}}, 4341125),
        ({"$convert": {"input": 1, "to": "binData", "byteOrder": "middle"}}, 9130002),
        ({"$convert": {"input": 1, "to": {"type": "binData", "subtype": 99}}}, 4341107),
        ({"$convert": {"input": 1, "to": {"type": "binData", "subtype": 10}}}, 4341107),
        # Digits of other scripts, and a line feed at the end.
        ({"$toDecimal": "\u0661\u0662"}, ErrorCode.ConversionFailure),
        ({"$toDouble": "\uff11"}, ErrorCode.ConversionFailure),
        ({"$toDouble": "1\n"}, ErrorCode.ConversionFailure),
        ({"$toDecimal": "1\n"}, ErrorCode.ConversionFailure),
        ({"$toLong": "\u0661"}, ErrorCode.ConversionFailure),
        ({"$dateFromString": {"dateString": "\u0662020-01-01", "format": "%Y-%m-%d"}}, ErrorCode.ConversionFailure),
        ({"$convert": {"input": Binary(b"x"), "to": {"type": "binData", "subtype": 4}}}, ErrorCode.ConversionFailure),
        *[
            ({"$convert": {"input": given, "to": to, "format": format}}, ErrorCode.ConversionFailure)
            for given, to, format in (
                ("6g", "binData", "hex"),
                ("686", "binData", "hex"),
                ("a", "binData", "base64"),
                ("a+", "binData", "base64url"),
                (str(UUID), "binData", "uuid"),
                ("hi", {"type": "binData", "subtype": 4}, "utf8"),
                ("not-a-uuid", {"type": "binData", "subtype": 4}, "uuid"),
                (Binary(b"\xff"), "string", "utf8"),
                (Binary(UUID.bytes), "string", "uuid"),
            )
        ],
        ({"$toInt": Binary(b"\1\2\3")}, ErrorCode.ConversionFailure),
        ({"$toInt": Binary(bytes(8))}, ErrorCode.ConversionFailure),
        ({"$toDouble": Binary(b"\1\2")}, ErrorCode.ConversionFailure),
        ({"$toInt": Decimal128("NaN")}, ErrorCode.ConversionFailure),
        ({"$toLong": Decimal128("1E+30")}, ErrorCode.ConversionFailure),
        ({"$convert": {"input": True, "to": "binData"}}, ErrorCode.ConversionFailure),
        ({"$convert": {"input": 1, "to": {"subtype": 4}}}, ErrorCode.FailedToParse),
        ({"$convert": {"input": 1, "to": {"type": "binData", "subtype": "x"}}}, 4341108),
        ({"$convert": {"input": 1, "to": {"type": "binData", "subtype": 1.5}}}, 4341106),
    ],
)
def test_refusals_of_conversions(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, {}).code == code
