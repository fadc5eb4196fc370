"""Documents as the page shows them: relaxed Extended JSON that can be read again, on lines, shortened."""

import json
from typing import Any

import bson
import pytest

from mongottl.document.types import ObjectId
from mongottl.dump.extended_json import document_of, no_constant, real_number, whole_number
from mongottl.server.web.extended_json import MAX_VALUE_CHARACTERS, shown

OID = ObjectId("0123456789abcdef01234567")
VALUES: list[tuple[Any, str]] = [
    (1, "1"),
    (bson.Int64(-(2**63)), "-9223372036854775808"),
    (1.0, "1.0"),
    (-0.5, "-0.5"),
    (1e300, "1e+300"),
    (float("nan"), '{"$numberDouble": "NaN"}'),
    (float("-inf"), '{"$numberDouble": "-Infinity"}'),
    (True, "true"),
    (None, "null"),
    ("", '""'),
    ('<b>"\\\n\t\0', r'"<b>\"\\\n\t\u0000"'),
    ("käse 🧀", '"käse 🧀"'),
    ("a\u202eb\u2066", r'"a\u202eb\u2066"'),
    (OID, '{"$oid": "0123456789abcdef01234567"}'),
    (bson.datetime_ms.DatetimeMS(0), '{"$date": "1970-01-01T00:00:00Z"}'),
    (bson.datetime_ms.DatetimeMS(253402300799999), '{"$date": "9999-12-31T23:59:59.999Z"}'),
    (bson.datetime_ms.DatetimeMS(253402300800000), '{"$date": {"$numberLong": "253402300800000"}}'),
    (bson.datetime_ms.DatetimeMS(-1), '{"$date": {"$numberLong": "-1"}}'),
    (bson.Decimal128("1.50"), '{"$numberDecimal": "1.50"}'),
    (b"ab", '{"$binary": {"base64": "YWI=", "subType": "00"}}'),
    (bson.Binary(b"ab", 128), '{"$binary": {"base64": "YWI=", "subType": "80"}}'),
    (bson.Binary(bytes(range(16)), 4), '{"$uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f"}'),
    (bson.Binary(b"abc", 4), '{"$binary": {"base64": "YWJj", "subType": "04"}}'),
    (bson.Regex('a"/', "i"), r'{"$regularExpression": {"pattern": "a\"/", "options": "i"}}'),
    (bson.Timestamp(5, 6), '{"$timestamp": {"t": 5, "i": 6}}'),
    (bson.Code("f()"), '{"$code": "f()"}'),
    (bson.Code("f()", {"x": [1]}), '{"$code": "f()", "$scope": {"x": [1]}}'),
    (bson.DBRef("c", 5), '{"$ref": "c", "$id": 5}'),
    (bson.MinKey(), '{"$minKey": 1}'),
    (bson.MaxKey(), '{"$maxKey": 1}'),
    ({}, "{}"),
    ([], "[]"),
    ([1, {"a": [2]}], '[1, {"a": [2]}]'),
]


def read(text: str) -> bytes:
    decoder = json.JSONDecoder(
        object_pairs_hook=document_of, parse_float=real_number, parse_int=whole_number, parse_constant=no_constant
    )
    document: bytes = decoder.decode(text)
    return document


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_values_are_written_so_that_they_can_be_read_again(value: Any, text: str) -> None:
    document = bson.encode({"a": value})
    assert shown(document, 10_000) == ('{"a": ' + text + "}", False)
    assert read('{"a": ' + text + "}") == document


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x06a\0", '{"$undefined": true}'),
        (b"\x0ea\0\x02\0\0\0x\0", '{"$symbol": "x"}'),
        (b"\x0ca\0\x04\0\0\0d.c\0" + OID.binary, f'{{"$dbPointer": {{"$ref": "d.c", "$id": {{"$oid": "{OID}"}}}}}}'),
    ],
)
def test_values_that_drivers_cannot_write(raw: bytes, text: str) -> None:
    document = (len(raw) + 5).to_bytes(4, "little") + raw + b"\0"
    assert shown(document, 10_000) == ('{"a": ' + text + "}", False)
    assert read('{"a": ' + text + "}") == document


def test_long_documents_are_shown_on_several_lines() -> None:
    document = bson.encode(
        {"_id": 1, "items": [{"sku": "x" * 40, "tags": ["a", "b"]}, {"sku": "y" * 40}], "n": {"m": 2}}
    )
    text, shortened = shown(document, 10_000)
    assert text.splitlines() == [
        "{",
        '  "_id": 1,',
        '  "items": [',
        f'    {{"sku": "{"x" * 40}", "tags": ["a", "b"]}},',
        f'    {{"sku": "{"y" * 40}"}}',
        "  ],",
        '  "n": {"m": 2}',
        "}",
    ]
    assert not shortened and read(text) == document


@pytest.mark.parametrize("character", ["a", "ü", "🧀", "\udc80"])
def test_long_texts_are_cut(character: str) -> None:
    data = (character * 5000).encode("utf-8", "surrogateescape")
    raw = (
        b"\x02a\0" + (len(data) + 1).to_bytes(4, "little") + data + b"\0" + b"\x10" + data[: len(data)] + b"\0\5\0\0\0"
    )
    text, shortened = shown((len(raw) + 5).to_bytes(4, "little") + raw + b"\0", 10**6)
    cut = f'"{character * MAX_VALUE_CHARACTERS}…" /* {len(data):,} bytes */'
    assert shortened and f'"a": {cut}' in text and f"{cut}: 5" in text


def test_texts_up_to_the_limit_are_whole() -> None:
    document = bson.encode({"a": "🧀" * MAX_VALUE_CHARACTERS, "b": b"x" * MAX_VALUE_CHARACTERS})
    text, shortened = shown(document, 10**6)
    assert not shortened and read(text) == document


@pytest.mark.parametrize("limit", [1, 100, 5000])
def test_a_document_ends_where_it_has_enough_characters(limit: int) -> None:
    deep: Any = 1
    for _ in range(170):
        deep = {"deeper": deep}
    for document in (
        {"n": list(range(100_000))},
        {f"f{number}": "text" for number in range(10_000)},
        {"d": deep, "e": 1},
    ):
        text, shortened = shown(bson.encode(document), limit)
        assert shortened and "…" in text and len(text) < 2 * limit + 3 * 400
