"""Values deeper than anything that may be sent: every recursion ends with an error, and none with the stack."""

from collections.abc import Callable
from typing import Any

import pytest

from mongottl.document.build import DocumentBuilder, encode, encode_array, encode_value
from mongottl.document.compare import compare_documents, compare_values
from mongottl.document.keystring import encode_raw
from mongottl.document.keystring import encode_value as key_of
from mongottl.document.memory_size import size_of
from mongottl.document.types import ARRAY, DOCUMENT, Value
from mongottl.document.walk import decode_array, is_deeper
from mongottl.errors import CommandError, ErrorCode


def nested_list(levels: int) -> Value:
    value: Value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def nested_document(levels: int, type_code: int = DOCUMENT) -> bytes:
    """Raw documents (or arrays) in each other, each under the name "0"."""
    raw = b"\x05\0\0\0\0"
    for _ in range(levels - 1):
        raw = (len(raw) + 8).to_bytes(4, "little") + bytes([type_code]) + b"0\0" + raw + b"\0"
    return raw


DEEP = 20_000
USES: list[Callable[[], Any]] = [
    lambda: encode({"a": nested_list(DEEP)}),
    lambda: encode_value(nested_list(DEEP)),
    lambda: key_of(nested_list(DEEP)),
    lambda: key_of(nested_document(DEEP)),
    lambda: encode_raw(nested_document(DEEP), DOCUMENT, 0),
    lambda: encode_raw(nested_document(DEEP, ARRAY), ARRAY, 0),
    lambda: compare_values(nested_list(DEEP), nested_list(DEEP)),
    lambda: compare_documents(nested_document(DEEP), 0, nested_document(DEEP), 0),
    lambda: decode_array(nested_document(DEEP, ARRAY), 0),
    lambda: size_of(nested_list(DEEP)),
]


@pytest.mark.parametrize("use", USES, ids=range(len(USES)))
def test_too_deep(use: Callable[[], Any]) -> None:
    with pytest.raises(CommandError) as refused:
        use()
    assert refused.value.code == ErrorCode.Overflow


def test_deep_enough() -> None:
    for levels in (1, 2, 100, 200):
        raw, array = nested_document(levels), nested_document(levels, ARRAY)
        value = nested_list(levels)
        assert encode_value(value)[1] == array
        assert compare_values(decode_array(array, 0), value) == 0
        assert encode_raw(array, ARRAY, 0) == key_of(value)
        assert compare_documents(raw, 0, nested_document(levels), 0) == 0


@pytest.mark.parametrize("type_code", [DOCUMENT, ARRAY])
def test_is_deeper(type_code: int) -> None:
    for levels in (1, 2, 50, 199, 200, 201, 400):
        raw = nested_document(levels, type_code)
        for limit in (1, 2, 50, 200):
            assert is_deeper(raw, 0, limit) is (levels > limit)
            with_more = encode({"x": "y" * 5000, "a": [1, {"b": raw}], "z": b"\x05\0\0\0\0"})
            assert is_deeper(with_more, 0, limit + 3) is (levels > limit)


def shared_list(value: Value) -> Value:
    """Forty lists that hold the one before twice: 2^40 values to write out, forty to hold."""
    for _ in range(40):
        value = [value, value]
    return value


def shared_document() -> bytes:
    value = encode({"a": "x" * (1 << 20)})
    for _ in range(40):
        builder = DocumentBuilder()
        builder.append("a", value)
        builder.append("b", value)
        value = builder.finish()
    return value


@pytest.mark.parametrize(
    "use",
    [
        lambda: encode({"a": shared_list("x" * (1 << 20))}),
        lambda: encode_value(shared_list("x" * (1 << 20))),
        lambda: encode_array([shared_list("x" * (1 << 20))]),
        shared_document,
    ],
)
def test_one_value_a_million_times(use: Callable[[], Any]) -> None:
    with pytest.raises(CommandError) as refused:
        use()
    assert refused.value.code == 13548
