"""Bytes from outside: what passes, and what is refused with which code."""

import struct
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp

from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
from mongottl.document.types import BinData, Date, DBPointer, JavaScript, Regex, Symbol, Undefined
from mongottl.document.validate import (
    MAX_DEPTH,
    SLICE_BYTES,
    SlicedValidation,
    check_depth,
    validate_document,
    validate_document_at,
    validate_documents,
)
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode

ALL_TYPES = encode(
    {
        "double": 1.5,
        "string": "grüße",
        "long string": "x" * 1000,
        "long foreign string": "é" * 1000,
        "document": encode({"": encode({})}),
        "array": [1, "x", []],
        "binary": BinData(b"\0\1", 128),
        "undefined": Undefined(),
        "oid": ObjectId(),
        "bools": [True, False],
        "date": Date(-1),
        "null": None,
        "regex": Regex("ä", "i"),
        "pointer": DBPointer("a.b", b"x" * 12),
        "code": JavaScript("x"),
        "symbol": Symbol("s"),
        "scoped": JavaScript("x", encode({"y": 1})),
        "int": 1,
        "timestamp": Timestamp(1, 2),
        "long": Int64(2**40),
        "decimal": Decimal128("1.1"),
        "min": MinKey(),
        "max": MaxKey(),
        "nöt ascii": 1,
    }
)


def document(*elements: bytes) -> bytes:
    body = b"".join(elements) + b"\0"
    return struct.pack("<i", len(body) + 4) + body


def string(data: bytes) -> bytes:
    return struct.pack("<i", len(data) + 1) + data + b"\0"


def refused(buf: bytes, max_depth: int = MAX_DEPTH) -> CommandError:
    with pytest.raises(CommandError) as caught:
        validate_document(buf, max_depth)
    return caught.value


@pytest.mark.parametrize(
    "value", [list(range(100_000)), ["x" * 200] * 5000, {"a": {"b": [["x"] * 1000] * 100}}, "x" * 1_000_000]
)
def test_slices_of_long_documents(value: Any) -> None:
    buf = encode({"before": 1, "value": value, "behind": 2})
    check = SlicedValidation(buf)
    steps = 1
    while not check.advance():
        steps += 1
    assert steps <= 2 if isinstance(value, str) else steps > len(buf) // (2 * SLICE_BYTES)


def test_a_document_of_all_types_passes() -> None:
    validate_document(ALL_TYPES)
    validate_document(encode({}))


def test_every_proper_prefix_and_every_longer_buffer_is_refused() -> None:
    for size in range(len(ALL_TYPES)):
        assert refused(ALL_TYPES[:size]).code == ErrorCode.InvalidBSON
    assert refused(ALL_TYPES + b"\0").code == ErrorCode.InvalidBSON


MALFORMED = [
    (b"", "cut short"),
    (b"\4\0\0\0", "cut short"),
    (b"\4\0\0\0\0", "impossible length 4"),
    (b"\xff\xff\xff\xff\0", "impossible length -1"),
    (b"\xff\xff\xff\x7f\0", "impossible length 2147483647"),
    (b"\5\0\0\0\1", "does not end in NUL"),
    (b"\6\0\0\0\0\0", "ends before its length says so"),
    (b"\7\0\0\0\x0aa\0", "a field name does not end"),
    (document(b"\x42a\0"), "unknown type 0x42"),
    (document(b"\x14a\0"), "unknown type 0x14"),
    (document(b"\x80a\0"), "unknown type 0x80"),
    (document(b"\x08a\0\2"), "a bool is neither"),
    (document(b"\x10a\0\0\0\0"), "reaches beyond"),
    (document(b"\x01a\0" + b"\0" * 7), "reaches beyond"),
    (document(b"\x07a\0" + b"\0" * 11), "reaches beyond"),
    (document(b"\x13a\0" + b"\0" * 15), "reaches beyond"),
    (document(b"\x08a\0"), "reaches beyond"),
    (document(b"\x02a\0" + b"\0\0\0\0"), "a string is cut short"),
    (document(b"\x02a\0" + b"\0\0\0\0\0"), "impossible length 0"),
    (document(b"\x02a\0" + b"\xff\xff\xff\xff\0"), "impossible length -1"),
    (document(b"\x02a\0" + b"\3\0\0\0a\0"), "impossible length 3"),
    (document(b"\x02a\0" + b"\2\0\0\0ab"), "a string does not end in NUL"),
    (document(b"\x0ca\0" + string(b"a") + b"x" * 11), "reaches beyond"),
    (document(b"\x05a\0" + b"\0\0\0\0"), "binary data is cut short"),
    (document(b"\x05a\0" + b"\xff\xff\xff\xff\0"), "impossible length -1"),
    (document(b"\x05a\0" + b"\2\0\0\0\0x"), "reaches beyond"),
    (document(b"\x05a\0" + b"\xff\xff\xff\x7f\0x"), "reaches beyond"),
    (document(b"\x0ba\0" + b"x"), "a regular expression does not end"),
    (document(b"\x0ba\0" + b"x\0i"), "a regular expression does not end"),
    (document(b"\x03a\0" + b"\6\0\0\0\0"), "impossible length 6"),
    (document(b"\x04a\0" + b"\5\0\0\0\1"), "does not end in NUL"),
    (document(b"\x0fa\0" + struct.pack("<i", 13) + string(b"") + b"\5\0\0\0"), "cut short"),
    (document(b"\x0fa\0" + struct.pack("<i", 13) + string(b"") + b"\5\0\0\0\0"), "impossible length 13"),
    (document(b"\x0fa\0" + struct.pack("<i", 15) + string(b"") + b"\5\0\0\0\0"), "impossible length 15"),
    (document(b"\x0fa\0" + struct.pack("<i", 15) + string(b"") + b"\5\0\0\0\0\x0a"), "not that of its parts"),
]


@pytest.mark.parametrize(("buf", "text"), MALFORMED)
def test_malformed_documents_are_refused_by_name(buf: bytes, text: str) -> None:
    error = refused(buf)
    assert error.code == ErrorCode.InvalidBSON
    assert error.code_name == "InvalidBSON"
    assert text in error.message


@pytest.mark.parametrize(("buf", "text"), MALFORMED)
def test_malformed_documents_are_refused_inside_others_too(buf: bytes, text: str) -> None:
    # The embedded length is what the enclosing element relies on, so only its bytes change place.
    for type_code in (b"\3", b"\4"):
        assert refused(document(b"\x0a\0", type_code + b"in\0" + buf)).code == ErrorCode.InvalidBSON


def test_the_error_names_the_place() -> None:
    assert refused(document(b"\x0aok\0", b"\x08a\0\2")).message == (
        "invalid BSON: a bool is neither 0 nor 1 (at byte 11)"
    )


@pytest.mark.parametrize(
    "element",
    [
        b"\x0a\xff\0",
        b"\x02a\0" + string(b"\xff"),
        b"\x02a\0" + string(b"abcdefgh\xc3"),
        b"\x02a\0" + string(b"x" * 500 + b"\xc0\x80"),
        b"\x02a\0" + string("\ud800".encode("utf-8", "surrogatepass")),
        b"\x0da\0" + string(b"\xfe"),
        b"\x0ea\0" + string(b"\xfe"),
        b"\x0ba\0" + b"\xff\0\0",
        b"\x0ca\0" + string(b"\x80") + bytes(12),
        b"\x0fa\0" + struct.pack("<i", 16) + string(b"\xfe\xff") + EMPTY_DOCUMENT,
    ],
)
def test_text_that_is_no_utf_8_passes_and_keeps_its_bytes(element: bytes) -> None:
    validate_document(document(element))
    assert encode_fields(fields(document(element))) == document(element)


def nested_documents(levels: int) -> bytes:
    buf = encode({})
    for _ in range(levels - 1):
        buf = encode({"a": buf})
    return buf


def nested_arrays(levels: int) -> bytes:
    buf = encode({})
    for _ in range(levels - 1):
        buf = document(b"\x040\0" + buf)
    return buf


def nested_scopes(levels: int) -> bytes:
    buf = encode({})
    for _ in range(levels - 1):
        buf = encode({"a": JavaScript("", buf)})
    return buf


@pytest.mark.parametrize("nested", [nested_documents, nested_arrays, nested_scopes])
def test_depth_is_limited(nested: Callable[[int], bytes]) -> None:
    validate_document(nested(MAX_DEPTH))
    check_depth(nested(MAX_DEPTH))
    error = refused(nested(MAX_DEPTH + 1))
    assert error.code == ErrorCode.Overflow
    assert "exceeded depth limit of 180" in error.message
    with pytest.raises(CommandError) as caught:
        check_depth(nested(MAX_DEPTH + 1))
    assert caught.value.code == ErrorCode.Overflow
    validate_document(nested(7), 7)
    assert refused(nested(8), 7).code == ErrorCode.Overflow


def test_a_million_levels_do_no_harm() -> None:
    opening = b"\xff\xff\xff\x7f\x03\0"
    assert refused(opening * 1_000_000).code == ErrorCode.InvalidBSON
    levels = 20_000
    buf = b"".join(struct.pack("<i", 5 + 7 * (levels - i)) + b"\x03a\0" for i in range(levels))
    assert refused(buf + b"\5\0\0\0\0" + b"\0" * levels).code in (ErrorCode.Overflow, ErrorCode.InvalidBSON)


def test_documents_behind_each_other_are_checked_in_place() -> None:
    first, second = encode({"a": 1}), encode({"b": "x"})
    buf = b"head" + first + second
    middle = validate_document_at(buf, 4, len(buf))
    assert middle == 4 + len(first)
    assert validate_document_at(buf, middle, len(buf)) == len(buf)
    with pytest.raises(CommandError):
        validate_document_at(buf, middle, len(buf) - 1)
    for start, limit in ((-1, 5), (0, len(buf) + 1)):
        with pytest.raises(ValueError, match="outside"):
            validate_document_at(buf, start, limit)


def test_duplicate_names_array_names_and_inner_binary_lengths_are_valid() -> None:
    # Duplicate names, names of array elements, and the inner length of binary subtype 2.
    validate_document(document(b"\x0aa\0", b"\x0aa\0", b"\x0a\0", b"\x0a$x.y\0"))
    validate_document(document(b"\x04a\0" + document(b"\x0a7\0", b"\x0ax\0")))
    validate_document(document(b"\x05a\0" + b"\1\0\0\0\2x"))


def test_documents_of_pymongo_are_valid() -> None:
    validate_document(bson.encode({"a": [1, {"b": bson.Code("x", {"y": 1})}], "c": bson.DBRef("x", 1)}))


def test_several_documents_are_checked_up_to_a_length_in_bytes() -> None:
    document, longer = encode({"a": 1}), encode({"a": "x" * 100})
    size = len(document)
    documents = [document, document, document, longer, document]
    assert validate_documents([]) == 0
    assert validate_documents(documents) == 5
    assert validate_documents(documents, 3) == 5
    assert validate_documents(documents, 0, size) == 1
    assert validate_documents(documents, 0, size + 1) == 2
    assert validate_documents(documents, 1, len(longer) - 1) == 3
    assert validate_documents(documents, 3, len(longer)) == 4


@pytest.mark.parametrize("position", [0, 1, 2])
def test_an_invalid_document_among_several_is_refused(position: int) -> None:
    documents = [encode({"a": 1})] * 3
    documents[position] = documents[position][:-1] + b"\1"
    with pytest.raises(CommandError) as caught:
        validate_documents(documents)
    assert caught.value.code == ErrorCode.InvalidBSON
    assert validate_documents(documents, position + 1) == 3
