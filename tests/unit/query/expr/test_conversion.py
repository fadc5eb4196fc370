import uuid
from collections.abc import Callable
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, MaxKey, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

OID = ObjectId("5ab9c3da31c2ab715d421285")
UUID = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")


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
        ("$toString", 1e16, "1e+16"),
        ("$toString", False, "false"),
        ("$toString", OID, "5ab9c3da31c2ab715d421285"),
        ("$toString", DatetimeMS(1_522_170_001_538), "2018-03-27T17:00:01.538Z"),
        ("$toString", Binary(b"hi"), "aGk="),
        ("$toObjectId", "5ab9c3da31c2ab715d421285", OID),
        ("$toDate", Int64(1000), DatetimeMS(1000)),
        ("$toDate", 1500.9, DatetimeMS(1500)),
        ("$toDate", OID, DatetimeMS(0x5AB9C3DA * 1000)),
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
    ("parameters", "expected"),
    [
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
    check({"$convert": parameters}, {}, expected)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$toInt": "1.5"}, ErrorCode.ConversionFailure),
        ({"$toInt": 2.0**31}, ErrorCode.ConversionFailure),
        ({"$toInt": float("nan")}, ErrorCode.ConversionFailure),
        ({"$toInt": DatetimeMS(0)}, ErrorCode.ConversionFailure),
        ({"$toLong": 1e300}, ErrorCode.ConversionFailure),
        ({"$toDouble": "1e999"}, ErrorCode.ConversionFailure),
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
def test_errors(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, {}).code == code
