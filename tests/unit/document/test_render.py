"""Values in error messages, in mongod's two notations: of parts of commands, and of what expressions compute."""

from typing import Any

import bson
import pytest
from bson import Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.document.render import render_beginning, render_document, render_logged, render_result, render_value
from mongottl.document.types import MISSING
from mongottl.document.walk import get_value

OID = ObjectId("5f0000000000000000000001")
UUID_KEY = bson.Binary(bytes(range(0xA0, 0xB0)), 4)
UUID_TEXT = "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"


@pytest.mark.parametrize(
    ("value", "part", "result"),
    [
        (Regex("[,;]", "i"), "/[,;]/i", "/[,;]/i"),
        (DatetimeMS(0), "new Date(0)", "1970-01-01T00:00:00.000Z"),
        (DatetimeMS(951_782_400_123), "new Date(951782400123)", "2000-02-29T00:00:00.123Z"),
        (DatetimeMS(-62_167_219_200_000), "new Date(-62167219200000)", "0000-01-01T00:00:00.000Z"),
        (DatetimeMS(253_402_300_799_999), "new Date(253402300799999)", "9999-12-31T23:59:59.999Z"),
        (DatetimeMS(2**63 - 1), "new Date(9223372036854775807)", "illegal date"),
        (MinKey(), "MinKey", "MinKey"),
        (MaxKey(), "MaxKey", "MaxKey"),
        (b"\x01\xff", "BinData(0, 01FF)", 'BinData(0, "01FF")'),
        (bson.Binary(b"", 9), "BinData(9, )", 'BinData(9, "")'),
        (UUID_KEY, f'UUID("{UUID_TEXT}")', f'BinData(4, "{UUID_KEY.hex().upper()}")'),
        (
            bson.Binary(UUID_KEY[1:], 4),
            f"BinData(4, {UUID_KEY[1:].hex().upper()})",
            f'BinData(4, "{UUID_KEY[1:].hex().upper()}")',
        ),
        (bson.Binary(UUID_KEY, 3), f"BinData(3, {UUID_KEY.hex().upper()})", f'BinData(3, "{UUID_KEY.hex().upper()}")'),
        (OID, f"ObjectId('{OID}')", str(OID)),
        (1.0, "1.0", "1"),
        (123_456_789.0, "123456789.0", "1.23457e+08"),
        (-0.5, "-0.5", "-0.5"),
        (float("inf"), "inf.0", "inf"),
        (7, "7", "7"),
        (Int64(7), "7", "7"),
        (Decimal128("1.50"), "1.50", "1.50"),
        (True, "true", "true"),
        (None, "null", "null"),
        ("x", '"x"', '"x"'),
        (Timestamp(1, 2), "Timestamp(1, 2)", "Timestamp(1, 2)"),
        (Code("f()"), "f()", 'Code("f()")'),
        ([1, "a"], '[ 1, "a" ]', '[1, "a"]'),
        ([], "[]", "[]"),
        ({"a": 1, "b": {}}, "{ a: 1, b: {} }", "{a: 1, b: {}}"),
    ],
)
def test_values(value: Any, part: str, result: str) -> None:
    decoded = get_value(bson.encode({"v": value}), "v")
    assert render_value(decoded) == part
    assert render_result(decoded) == result


def test_sensitive_data_is_not_logged() -> None:
    key = bson.Binary(b"secret", 8)
    command = {"a": [{"key": key}, key], "b": bson.Binary(b"\x01", 0)}
    assert render_logged(bson.encode(command)) == '{ a: [ { key: "###" }, "###" ], b: BinData(0, 01) }'


def test_a_missing_value() -> None:
    assert render_result(MISSING) == "MISSING"


@pytest.mark.parametrize(
    ("document", "beginning"),
    [
        ({"a": 1, "b": ["x"]}, '{ a: 1, b: [ "x" ] }'),
        ({"a": 1, "b": "\u00e4" * 9_000}, '{ a: 1, b: "\u00e4\u00e4'),
        ({"a": [{"b": 1}] * 3_000}, "{ a: [ { b: 1 }, { b: 1 }, "),
        ({"a": {"b": bytes(9_000), "c": 1}}, "{ a: { b: ..., c: 1 } }"),
        ({"\u00e4" * 9_000: 1}, "{ \u00e4\u00e4"),
        ({f"f{n}": n for n in range(9_000)}, "{ f0: 0, f1: 1, "),
    ],
)
def test_the_beginning_of_a_document(document: Any, beginning: str) -> None:
    shown = render_beginning(bson.encode(document))
    assert shown.startswith(beginning)
    assert shown == render_document(bson.encode(document)) or len(shown) <= 1_003


def test_the_beginning_of_a_document_of_many_levels() -> None:
    document: Any = {"a": "x" * 9_000}
    for _ in range(50):
        document = {"a": document}
    assert render_beginning(bson.encode(document)).startswith("{ a: { a: {")


@pytest.mark.parametrize(
    ("value", "beginning"),
    [
        ([1.5] * 100_000, "[1.5, 1.5, "),
        ({"a": ["b"] * 100_000, "c": 1}, '{a: ["b", "b", '),
        ({f"f{number}": 1 for number in range(100_000)}, "{f0: 1, f1: 1, "),
        (b"\xff" * 100_000, 'BinData(0, "FFFF'),
        ("a" * 100_000, '"aaaa'),
        (Code("a" * 100_000), 'Code("aaaa'),
    ],
)
def test_of_the_value_of_an_expression_the_beginning(value: Any, beginning: str) -> None:
    text = render_result(get_value(bson.encode({"v": value}), "v"))
    assert text.startswith(beginning)
    assert text.endswith("...")
    assert len(text) == 10_003
