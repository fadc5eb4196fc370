"""Reading and building raw BSON, held against PyMongo's `bson`, which is an implementation of its own."""

import datetime
import math
import struct

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp

from mongottl.document.build import (
    EMPTY_DOCUMENT,
    DocumentBuilder,
    encode,
    encode_array,
    encode_fields,
    encode_value,
    index_name,
)
from mongottl.document.types import (
    MISSING,
    BinData,
    Date,
    DBPointer,
    JavaScript,
    Regex,
    Symbol,
    Undefined,
    Value,
    type_code_of,
)
from mongottl.document.walk import (
    ElementCursor,
    count_fields,
    decode_array,
    decode_value,
    fields,
    find_field,
    find_field_at,
    first_field_name,
    get_value,
    is_empty,
    read_embedded,
    skip_value,
)

OID = ObjectId("0123456789abcdef01234567")

# Our value, PyMongo's value for the same bytes.
COMMON: list[tuple[Value, object]] = [
    (1.5, 1.5),
    (math.inf, math.inf),
    (5e-324, 5e-324),
    ("", ""),
    ("grüße, 世界 \U0001f600", "grüße, 世界 \U0001f600"),
    ("nul\0inside", "nul\0inside"),
    (encode({}), {}),
    (encode({"a": encode({"b": 1})}), {"a": {"b": 1}}),
    ([], []),
    ([1, "x", [None], encode({"y": 2.0})], [1, "x", [None], {"y": 2.0}]),
    (BinData(b"", 5), bson.Binary(b"", 5)),
    (BinData(b"\0\1\2", 128), bson.Binary(b"\0\1\2", 128)),
    (BinData(b"plain", 0), b"plain"),
    (OID, OID),
    (True, True),
    (False, False),
    (Date(0), datetime.datetime(1970, 1, 1)),
    (Date(-1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)),
    (None, None),
    (Regex("a.b", "ims"), bson.Regex("a.b", "ims")),
    (JavaScript("f()"), bson.Code("f()")),
    (JavaScript("f()", encode({"x": 1})), bson.Code("f()", {"x": 1})),
    (-1, -1),
    (2**31 - 1, 2**31 - 1),
    (Timestamp(2**32 - 1, 7), Timestamp(2**32 - 1, 7)),
    (Int64(5), Int64(5)),
    (Int64(-(2**63)), Int64(-(2**63))),
    (Decimal128("-1.50E+20"), Decimal128("-1.50E+20")),
    (MinKey(), MinKey()),
    (MaxKey(), MaxKey()),
]

# Types that PyMongo cannot write (it reads them as something else), as the specification has their bytes.
RARE: list[tuple[Value, int, bytes]] = [
    (Undefined(), 6, b""),
    (DBPointer("a.b", b"0123456789ab"), 12, b"\4\0\0\0a.b\0" + b"0123456789ab"),
    (Symbol("sym"), 14, b"\4\0\0\0sym\0"),
    (Regex("p", "xi"), 11, b"p\0xi\0"),
    (BinData(b"\2\0\0\0ab", 2), 5, b"\6\0\0\0\2\2\0\0\0ab"),
]


def element(type_code: int, name: bytes, value: bytes) -> bytes:
    body = bytes([type_code]) + name + b"\0" + value + b"\0"
    return struct.pack("<i", len(body) + 4) + body


@pytest.mark.parametrize(("ours", "theirs"), COMMON)
def test_encodes_what_pymongo_encodes_and_reads_it_back(ours: Value, theirs: object) -> None:
    document = encode({"before": 1, "välue": ours, "after": "x"})
    assert document == bson.encode({"before": 1, "välue": theirs, "after": "x"})
    value = get_value(document, "välue")
    assert value == ours
    assert type(value) is type(ours)
    assert get_value(document, "after") == "x"


@pytest.mark.parametrize(("ours", "type_code", "data"), RARE)
def test_types_that_pymongo_does_not_write(ours: Value, type_code: int, data: bytes) -> None:
    document = element(type_code, b"a", data)
    assert encode({"a": ours}) == document
    assert get_value(document, "a") == ours
    assert encode_value(ours) == (type_code, data)
    assert skip_value(document, type_code, 7) == 7 + len(data)


def test_negative_zero_and_nan_payloads_survive() -> None:
    document = encode({"a": -0.0})
    value = get_value(document, "a")
    assert isinstance(value, float)
    assert math.copysign(1.0, value) == -1.0
    assert encode({"a": value}) == document
    payload = element(1, b"a", struct.pack("<Q", 0x7FF800000000BEEF))
    assert encode_fields(fields(payload)) == payload


def test_integers_are_written_by_their_class_and_size() -> None:
    codes = [type_code for value in (1, Int64(1), 2**31, -(2**31)) for type_code in encode_value(value)[:1]]
    assert codes == [16, 18, 18, 16]


def test_missing_writes_nothing() -> None:
    assert encode({"a": MISSING, "b": 1}) == encode({"b": 1})
    assert encode({"a": MISSING}) == EMPTY_DOCUMENT


def test_encode_refuses_non_bson_values() -> None:
    with pytest.raises(TypeError, match="not a BSON value: object"):
        encode({"a": object()})


def test_duplicate_fields_keep_their_order_and_the_first_is_found() -> None:
    pairs: list[tuple[str, Value]] = [("a", 1), ("b", "x"), ("a", 2.0), ("", None)]
    document = encode_fields(pairs)
    assert fields(document) == pairs
    assert get_value(document, "a") == 1
    assert get_value(document, "") is None
    assert count_fields(document, 0) == 4


def test_find_field_compares_whole_names() -> None:
    document = encode({"ab": 1, "abc": 2, "a": 3, "": 4})
    assert [get_value(document, name) for name in ("a", "ab", "abc", "abcd", "b", "")] == [3, 1, 2, MISSING, MISSING, 4]
    assert find_field(document, b"x") == (0, -1)
    assert find_field(EMPTY_DOCUMENT, b"") == (0, -1)
    assert get_value(document, "a\0") is MISSING


def test_embedded_documents_are_read_in_place() -> None:
    inner = encode({"x": "y"})
    document = encode({"skip": "zz", "in": inner, "list": [inner, 5]})
    type_code, pos = find_field(document, b"in")
    assert type_code == 3
    assert read_embedded(document, pos) == inner
    assert decode_value(document, *find_field_at(document, pos, b"x")) == "y"
    assert decode_array(document, find_field(document, b"list")[1]) == [inner, 5]


def test_cursor_gives_names_types_and_raw_elements() -> None:
    document = encode({"a": 1, "bc": "x", "": [1]})
    cursor = ElementCursor(document, 0)
    seen = []
    raw = b""
    while cursor.next():
        seen.append((cursor.name(), cursor.name_bytes(), cursor.type_code, cursor.decoded()))
        raw += cursor.raw_element()
        assert cursor.name_is(cursor.name_bytes())
        assert not cursor.name_is(b"b")
        assert not cursor.name_is(b"bd")
    assert seen == [("a", b"a", 16, 1), ("bc", b"bc", 2, "x"), ("", b"", 4, [1])]
    assert raw == document[4:-1]
    assert cursor.type_code == 0
    assert not cursor.next()


def test_builder_splices_elements_unread() -> None:
    source = encode({"a": "x", "b": Symbol("y")})
    cursor = ElementCursor(source, 0)
    builder = DocumentBuilder()
    builder.append("first", 1)
    builder.append("absent", MISSING)
    assert cursor.next()
    builder.append_raw_element(cursor.raw_element())
    assert cursor.next()
    builder.append_raw(b"renamed", cursor.type_code, source, cursor.value, cursor.end)
    builder.append_named(b"last", None)
    assert builder.finish() == encode({"first": 1, "a": "x", "renamed": Symbol("y"), "last": None})


def test_arrays_are_named_by_position() -> None:
    values: list[Value] = [0] * 1100
    assert encode_array(values) == bson.encode({str(i): 0 for i in range(1100)})
    assert [index_name(i) for i in (0, 1023, 1024, 99999)] == [b"0", b"1023", b"1024", b"99999"]


def test_long_documents_have_their_length() -> None:
    document = encode({"a": "x" * 70_000, "b": BinData(b"y" * 70_000), "c": {"d": "z" * 70_000}})
    assert len(document) == int.from_bytes(document[:4], "little")
    assert bson.decode(document)["c"] == {"d": "z" * 70_000}


def test_deep_nesting_round_trips() -> None:
    document = EMPTY_DOCUMENT
    for _ in range(99):
        document = encode({"a": [document]}) if len(document) % 2 else encode({"a": document})
    theirs = bson.decode(document)
    assert bson.encode(theirs) == document
    depth = 0
    value: Value = document
    while isinstance(value, (bytes, list)) and value not in ([], EMPTY_DOCUMENT):
        value = value[0] if isinstance(value, list) else get_value(value, "a")
        depth += 1
    assert depth >= 99


def test_small_questions() -> None:
    assert is_empty(EMPTY_DOCUMENT)
    assert not is_empty(encode({"a": 1}))
    assert first_field_name(EMPTY_DOCUMENT) == ""
    assert first_field_name(encode({"find": "c", "b": 1})) == "find"
    assert count_fields(EMPTY_DOCUMENT, 0) == 0


def test_unknown_type_codes_are_errors() -> None:
    document = element(0x42, b"a", b"")
    with pytest.raises(ValueError, match="unknown BSON type 66"):
        fields(document)
    with pytest.raises(ValueError, match="unknown BSON type 66"):
        find_field(document, b"b")


def test_every_type_is_skipped_over() -> None:
    values = [ours for ours, _ in COMMON] + [ours for ours, _, _ in RARE]
    document = encode_fields([(f"f{i}", value) for i, value in enumerate(values)])
    found = fields(document)
    assert [name for name, _ in found] == [f"f{i}" for i in range(len(values))]
    assert [type_code_of(value) for _, value in found] == [type_code_of(value) for value in values]
    assert encode_fields(found) == document
