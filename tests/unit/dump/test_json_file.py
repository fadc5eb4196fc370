"""JSON files: where documents begin and end, Extended JSON of both formats, and how faults are reported."""

import gzip
import os
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util
from bson.binary import Binary
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex
from bson.timestamp import Timestamp

from mongottl.document.build import encode
from mongottl.document.types import DBPointer, JavaScript, Symbol, Undefined
from mongottl.document.types import Regex as StoredRegex
from mongottl.dump.batches import BATCH_DOCUMENTS, DumpFile, in_batches
from mongottl.dump.errors import DumpError
from mongottl.dump.json_file import json_documents

OID = ObjectId("0123456789abcdef01234567")


def read(path: Path) -> list[tuple[bytes, int]]:
    file = DumpFile(path)
    try:
        return list(json_documents(file))
    finally:
        file.close()


def documents(folder: Path, text: str | bytes) -> list[dict[str, Any]]:
    return [bson.decode(document) for document, _ in read(written(folder, text))]


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "c.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def fault(folder: Path, text: str | bytes) -> str:
    path = written(folder, text)
    with pytest.raises(DumpError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n{"a": 2}\n',
        '{"a": 1}\r\n{"a": 2}',
        '\n\n{"a":\n 1\n}\n\n{"a": 2}\n\n',
        '{"a": 1} {"a": 2}',
        '[{"a": 1},{"a": 2}]',
        ' [\n{"a": 1}\n,\n{"a": 2}\n]\n',
        '\ufeff{"a": 1}\n{"a": 2}\n',
    ],
)
def test_documents_one_a_line_over_several_lines_or_in_an_array(tmp_path: Path, text: str) -> None:
    assert documents(tmp_path, text) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("text", ["", "\n \n", "[]", " [ ] \n"])
def test_a_file_without_documents(tmp_path: Path, text: str) -> None:
    assert documents(tmp_path, text) == []


def test_each_document_has_the_line_on_which_it_begins(tmp_path: Path) -> None:
    lines = [line for _, line in read(written(tmp_path, '\n{"a": 1}\n{\n"a": 2\n}\n{"a": 3}\n'))]
    assert lines == [2, 3, 6]


def test_a_file_that_is_read_in_many_pieces(tmp_path: Path) -> None:
    long = "ü" * 3_000_000
    wanted = [{"_id": number, "s": "é" * (number % 100)} for number in range(20_000)] + [{"_id": -1, "s": long}]
    path = tmp_path / "c.json.gz"
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        for document in wanted:
            file.write(json_util.dumps(document, ensure_ascii=False) + "\n")
    found = read(path)
    assert [bson.decode(document) for document, _ in found] == wanted
    assert [line for _, line in found] == list(range(1, len(wanted) + 1))


VALUES: dict[str, Any] = {
    "double": 1.0,
    "negative zero": -0.0,
    "infinite": float("inf"),
    "string": "ü\u0000😀",
    "document": {"a": {"b": [{}]}},
    "array": [1, [2, {"c": 3}], []],
    "binary": Binary(b"\x00\x01", 0),
    "old binary": Binary(b"\x00\x01", 2),
    "uuid": Binary(bytes(range(16)), 4),
    "old uuid": Binary(bytes(range(16)), 3),
    "own binary": Binary(b"x", 0x80),
    "oid": OID,
    "bool": True,
    "date": bson.datetime_ms.DatetimeMS(1_700_000_000_123),
    "early date": bson.datetime_ms.DatetimeMS(-(2**62)),
    "null": None,
    "code": Code("f()"),
    "code with scope": Code("f()", {"a": OID}),
    "int": -7,
    "long": Int64(7),
    "large": 2**62,
    "timestamp": Timestamp(4_294_967_295, 1),
    "decimal": Decimal128("1.50E+10"),
    "min": MinKey(),
    "max": MaxKey(),
    "reference": {"$ref": "c", "$id": OID, "$db": "d", "more": 1},
    "operators": {"$set": {"a": 1}},
}


def test_canonical_extended_json_keeps_every_type(tmp_path: Path) -> None:
    assert "regex" not in VALUES  # PyMongo writes the letters of options in another order
    raw = bson.encode(VALUES)
    text = json_util.dumps(
        bson.decode(raw, bson.CodecOptions(datetime_conversion=bson.codec_options.DatetimeConversion.DATETIME_MS)),
        json_options=json_util.CANONICAL_JSON_OPTIONS,
    )
    [(document, _)] = read(written(tmp_path, text))
    assert document == raw


def test_relaxed_extended_json(tmp_path: Path) -> None:
    text = (
        '{"i": 1, "l": 3000000000, "d": 1.0, "e": 1e3, "t": {"$date": "2020-01-02T03:04:05.678Z"},'
        ' "z": {"$date": "2020-01-02T03:04:05+01:00"}, "o": {"$oid": "0123456789abcdef01234567"}}'
    )
    [(document, _)] = read(written(tmp_path, text))
    assert dict(RawBSONDocument(document)) == {
        "i": 1,
        "l": Int64(3_000_000_000),
        "d": 1.0,
        "e": 1000.0,
        "t": bson.decode(document)["t"],
        "z": bson.decode(document)["z"],
        "o": OID,
    }
    assert bson.decode(document)["t"].isoformat() == "2020-01-02T03:04:05.678000"
    assert bson.decode(document)["z"].isoformat() == "2020-01-02T02:04:05"


def test_types_that_pymongo_does_not_have(tmp_path: Path) -> None:
    text = (
        '{"s": {"$symbol": "x"}, "u": {"$undefined": true}, "r": {"$regularExpression": {"pattern": "a", "options":'
        ' "xsi"}}, "p": {"$dbPointer": {"$ref": "c", "$id": {"$oid": "0123456789abcdef01234567"}}},'
        ' "c": {"$code": "f", "$scope": {"s": {"$symbol": "y"}}}, "old": {"$regex": "b", "$options": "mi"}}'
    )
    [(document, _)] = read(written(tmp_path, text))
    assert document == encode(
        {
            "s": Symbol("x"),
            "u": Undefined(),
            "r": StoredRegex("a", "isx"),
            "p": DBPointer("c", OID.binary),
            "c": JavaScript("f", encode({"s": Symbol("y")})),
            "old": StoredRegex("b", "im"),
        }
    )


def test_extended_json_of_version_1(tmp_path: Path) -> None:
    text = (
        '{"b": {"$binary": "AAE=", "$type": "00"}, "d": {"$date": 5}, "n": {"$date": {"$numberLong": "-5"}},'
        ' "r": {"$regex": {"$in": [1]}, "$options": ""}, "q": {"$regex": "a"}}'
    )
    [(document, _)] = read(written(tmp_path, text))
    decoded = bson.decode(document)
    assert (decoded["b"], decoded["d"].microsecond, decoded["n"].year) == (b"\x00\x01", 5000, 1969)
    assert decoded["r"] == {"$regex": {"$in": [1]}, "$options": ""}  # a query operator, stored as a document
    assert decoded["q"] == {"$regex": "a"}
    assert bson.decode(bson.encode({"r": Regex("a", "i")}))  # (what is not read as such)


@pytest.mark.parametrize("id", ["1", '{"$oid": "0123456789abcdef01234567"}'], ids=["JSON", "Extended JSON"])
def test_fields_that_are_given_twice_are_kept(tmp_path: Path, id: str) -> None:
    [(document, _), _] = read(written(tmp_path, f'{{"_id": {id}, "a": 1, "b": {{"c": 1, "c": 2}}, "a": 2}}\n{{}}'))
    assert document.count(b"\x10a\x00") == document.count(b"\x10c\x00") == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"a": 1}\n{"a": }\n', ", line 2: Expecting value"),
        ('{"a": 1}\n\n{"a": "x', ", line 3: Unterminated string starting at"),
        ('{"a": 1}\n{"a":\n', ", line 3: the file ends within a document"),
        ('{"a": 1}\n7\n', ", line 2: an object is needed"),
        ('[{"a": 1}\n{"a": 2}]', ", line 2: a comma or ] is needed"),
        ('[{"a": 1},\n', ", line 2: the file ends where an object is needed"),
        ('[{"a": 1}\n', ", line 2: the array does not end"),
        ("[{}]\n{}", ", line 2: nothing may follow the array"),
        ('\n{"a": {"$oid": "12"}}', ", line 2: '12' is not a valid ObjectId"),
        ('{"a": {"$numberDecimal": "x"}}', ", line 1: x is no decimal"),
        ('{"a": {"$binary": {"base64": "A!A=", "subType": "00"}}}', ", line 1: $binary is not in base64"),
        ('{"a": {"$binary": "AAAAA", "$type": "00"}}', ", line 1: $binary is not in base64"),
        ('{"a": {"$date": "yesterday"}}', ", line 1: "),
        ('{"a": {"$date": "2026-01-01"}}', ", line 1: 2026-01-01 is no date and time with a time zone"),
        ('{"a": {"$date": "2026-01-01T00:00:00"}}', ", line 1: 2026-01-01T00:00:00 is no date and time"),
        ('{"a": {"$numberInt": "2147483648"}}', ", line 1: 2147483648 is no whole number of 32 bits"),
        ('{"a": {"$numberLong": "1.5"}}', ", line 1: 1.5 is no whole number"),
        ('{"a": {"$numberLong": "9223372036854775808"}}', ", line 1: "),
        ('{"a": {"$numberDouble": "one"}}', ", line 1: one is no double"),
        ('{"a": {"$binary": {"base64": 5, "subType": "00"}}}', ", line 1: "),
        ('{"a": {"$timestamp": 5}}', ", line 1: "),
        ('{"a": {"$symbol": 5}}', ", line 1: text is needed, not 5"),
        ('{"$oid": "0123456789abcdef01234567"}', ", line 1: a document is needed, not a value"),
        ('{"a": NaN}', ", line 1: NaN is no JSON"),
        ('{"a": {"$date": 1.5}}', ", line 1: 1.5 is no whole number of milliseconds"),
        ('{"a": {"$date": true}}', ", line 1: True is no whole number of milliseconds"),
        ('{"a": {"$date": null}}', ", line 1: None is no whole number of milliseconds"),
        ('{"a": {"$date": 9223372036854775808}}', ", line 1: 9.2"),
        (
            '{"a": {"$regularExpression": {"pattern": "a\\u0000b", "options": ""}}}',
            ", line 1: a regular expression may not",
        ),
        (
            '{"a": {"$regularExpression": {"pattern": "a", "options": "i\\u0000"}}}',
            ", line 1: a regular expression may",
        ),
        ('{"a": {"$regex": "a\\u0000b", "$options": ""}}', ", line 1: a regular expression may not"),
        ('{}\n{"a": 1e999}', ", line 2: 1e999 is out of the range of doubles"),
        ('{"a": -1e999}', ", line 1: -1e999 is out of the range of doubles"),
        ('{"a": [{"b": {"$x": 1E+400}}]}', ", line 1: 1E+400 is out of the range of doubles"),
        ('{"a": ' + "9" * 400 + "}", ", line 1: 9999"),
        ('{"a": ' + "9" * 5000 + "}", ", line 1: 9999"),
        ('{"a": {"$numberDouble": "1e999"}}', ", line 1: 1e999 is out of the range of doubles"),
        ('{"a\\u0000b": 1}', ", line 1: "),
        ('{"a\\u0000b": {"$oid": "0123456789abcdef01234567"}}', ", line 1: the name of a field"),
        ('{"$a\\u0000b": 1}', ", line 1: the name of a field"),
        ('{"a": "\\ud800"}', ", line 1: "),
        ('{"a": {"$x": "\\ud800"}}', ", line 1: "),
        ("[" * 100_000, ", line 1: an object is needed"),
        ('{"a":' * 100_000, ", line 1: it is nested too deeply"),
        (b'{"a": 1}\n{"a": "\xff"}\n', ", byte 16: this is not UTF-8"),
    ],
)
def test_faults_name_the_line_and_what_is_wrong(tmp_path: Path, text: str | bytes, what: str) -> None:
    assert fault(tmp_path, text).startswith(what)


@pytest.mark.parametrize("other", ["", ', "o": {"$oid": "0123456789abcdef01234567"}'], ids=["JSON", "Extended JSON"])
def test_numbers_have_the_types_that_mongoimport_gives_them(tmp_path: Path, other: str) -> None:
    numbers = {
        "0": 0,
        "-0": 0,
        "-0.0": -0.0,
        "2147483647": 2**31 - 1,
        "2147483648": Int64(2**31),
        "-9223372036854775808": Int64(-(2**63)),
        "9218868437227405312": Int64(0x7FF0_0000_0000_0000),  # the bytes of an infinite double
        "9223372036854775807": Int64(2**63 - 1),
        "9223372036854775808": 2.0**63,
        "-123456789012345678901234567890": -123456789012345678901234567890.0,
        "1e-999": 0.0,
        "1e308": 1e308,
        "1e5": 1e5,
    }
    for text, value in numbers.items():
        [document] = documents(tmp_path, f'{{"a": {text}{other}}}')
        assert (document["a"], type(document["a"])) == (value, type(value)), text
        assert str(document["a"]) == str(value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    os.mkfifo(path)
    with pytest.raises(DumpError, match="not a file"):
        DumpFile(path)


def test_a_packed_file_that_ends_too_early_or_is_none(tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    packed = gzip.compress(b'{"a": 1}\n' * 1000)
    path.write_bytes(packed[:-9])
    with pytest.raises(DumpError, match=r"c\.json\.gz, line 9\d\d: the compressed file ends too early"):
        read(path)
    path.write_bytes(packed[:-8] + b"abcd" + packed[-4:])
    with pytest.raises(DumpError, match=r"c\.json\.gz, line \d+: .* is damaged, here or before: CRC check failed"):
        read(path)
    path.write_bytes(packed + b"more")
    with pytest.raises(DumpError, match=r"c\.json\.gz, line \d+: .* Not a gzipped file"):
        read(path)
    path.write_bytes(b'{"a": 1}')
    with pytest.raises(DumpError, match=r"c\.json\.gz, line 1: .* Not a gzipped file"):
        read(path)


def test_a_packed_file_is_used_up_to_where_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    # Bytes that cannot be compressed, so that little is behind the damage.
    lines = [b'{"a": "%s"}\n' % os.urandom(1000).hex().encode() for _ in range(1000)]
    packed = gzip.compress(b"".join(lines))
    path.write_bytes(packed[: len(packed) // 2])
    file = DumpFile(path)
    found = 0
    with pytest.raises(DumpError, match="the compressed file ends too early") as caught:
        for _ in json_documents(file):
            found += 1
    file.close()
    assert 450 < found < 550 and f", line {found + 1}: " in str(caught.value)


def test_batches_are_bounded(tmp_path: Path) -> None:
    file = DumpFile(written(tmp_path, '{"a": 1}\n' * (BATCH_DOCUMENTS + 1)))
    batches = list(in_batches("line", json_documents(file)))
    file.close()
    assert [len(batch.documents) for batch in batches] == [BATCH_DOCUMENTS, 1]
    assert batches[1].place(0) == f"line {BATCH_DOCUMENTS + 1}"
