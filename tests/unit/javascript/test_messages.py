"""Values in messages to and from script processes."""

from typing import Any

import pytest

from mongottl.document.build import encode, encode_array
from mongottl.document.types import DOCUMENT, MISSING, Decimal128, Int64, ObjectId, Undefined, Value
from mongottl.javascript.messages import END, LIST, RUN, decode, encode_parts

LONG = "ä" * 100_000
SMALL = encode({"a": 1})


def ignore(size: int) -> None:
    pass


@pytest.mark.parametrize(
    "value",
    [
        5,
        Int64(5),
        1.5,
        "text",
        LONG,
        None,
        ObjectId("0123456789abcdef01234567"),
        Decimal128("1.50"),
        SMALL,
        encode({"a": LONG}),
        [],
        [[]],
        [1, [2, [3, SMALL], []], LONG, SMALL, [LONG]],
        list(range(5000)),
        [["a", float(i)] for i in range(1000)],
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_value_is_decoded_as_it_was(value: Any) -> None:
    message = b"header" + b"".join(encode_parts(value))
    sizes: list[int] = []
    found = decode(message, 6, sizes.append)
    assert found == value
    assert type(found) is type(value)
    assert sum(sizes) <= len(message)


def test_a_missing_value_is_undefined() -> None:
    found = decode(b"".join(encode_parts([MISSING, [MISSING]])), 0, ignore)
    assert isinstance(found, list)
    assert isinstance(found[0], Undefined)
    assert isinstance(found[1], list)
    assert isinstance(found[1][0], Undefined)


def test_a_long_list_is_encoded_and_decoded_in_parts() -> None:
    values: list[Value] = [float(i) for i in range(100_000)]
    parts = list(encode_parts(values))
    assert max(map(len, parts)) < 16_384
    sizes: list[int] = []
    assert decode(b"".join(parts), 0, sizes.append) == values
    assert len(sizes) == len(parts) - 2


def test_a_long_document_is_a_part_that_is_not_copied() -> None:
    document = encode({"a": LONG})
    assert any(part is document for part in encode_parts([SMALL, document]))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        bytes([LIST]),
        bytes([END]),
        bytes([DOCUMENT]) + b"\xff\xff\xff\x7f" + SMALL,
        bytes([LIST, RUN]) + b"\x40\x00\x00\x00" + encode_array([1]) + bytes([END]),
        bytes([0x70]) + b"\x00\x00\x00\x00",
    ],
)
def test_a_malformed_message(message: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        decode(message, 0, ignore)
