"""Fuzzes the BSON validator with atheris: `python tests/fuzz/fuzz_validate.py [corpus folder] [libFuzzer options]`.

Invariant: whatever the bytes are,
- they pass, or are refused with InvalidBSON or Overflow, and nothing else;
- what passes can be walked, decoded, encoded, keyed, compared and sorted without an error;
- PyMongo's `bson` reads what passes (it judges a few contents more strictly than the format does).

Run it with an interpreted `mongottl`: atheris sees the branches of Python code alone.
Not collected by pytest (its name does not begin with `test_`); the property tests state the same laws for hypothesis.
"""

import contextlib
import importlib
import sys

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from mongottl.document.build import encode_fields
from mongottl.document.compare import compare_documents
from mongottl.document.keystring import encode_value
from mongottl.document.types import JavaScript, Value
from mongottl.document.validate import check_depth, validate_document
from mongottl.document.walk import ElementCursor, count_fields, fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.sort import SortPattern, parse_sort

MAX_INPUT = 1 << 16
OPTIONS: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)
PATTERN: SortPattern = parse_sort(bson.encode({"a": 1, "b.c": -1, "0.a": 1}))


def walk(value: Value) -> int:
    """The number of elements below a value, visiting each by every kind of reader."""
    if isinstance(value, list):
        return sum(1 + walk(item) for item in value)
    if isinstance(value, JavaScript) and value.scope is not None:
        return walk(value.scope)
    if not isinstance(value, bytes):
        return 0
    below = 0
    found = fields(value)
    cursor = ElementCursor(value, 0)
    for name, item in found:
        assert cursor.next()
        assert cursor.name() == name
        below += 1 + walk(item)
    assert not cursor.next()
    assert count_fields(value, 0) == len(found)
    return below


def check(data: bytes) -> bool:
    """One input; whether it passed the validator."""
    if len(data) > MAX_INPUT:
        return False
    try:
        validate_document(data)
    except CommandError as error:
        assert error.code in (ErrorCode.InvalidBSON, ErrorCode.Overflow), error
        return False
    walk(data)
    check_depth(data)
    # Names of array elements are not kept, and bools, numbers and text are, so the second time nothing changes.
    again = encode_fields(fields(data))
    validate_document(again)
    assert encode_fields(fields(again)) == again
    assert encode_value(again) == encode_value(data)
    assert compare_documents(data, 0, again, 0) == 0
    try:
        PATTERN.sort_key(data)
    except CommandError as error:
        assert error.code in (ErrorCode.BadValue, 16746), error
    # Subtype 2's inner length, UUIDs' sizes, `$ref` documents that are none: contents, not the format.
    with contextlib.suppress(BSONError, TypeError, ValueError):
        bson.decode(data, OPTIONS).items()
    return True


def main() -> None:
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
