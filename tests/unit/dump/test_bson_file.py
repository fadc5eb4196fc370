"""BSON files: documents with their offsets, and how faults are reported."""

import gzip
from pathlib import Path

import bson
import pytest

from mongottl.dump.batches import DumpFile
from mongottl.dump.bson_file import bson_documents
from mongottl.dump.errors import DumpError


def read(path: Path) -> list[tuple[bytes, int]]:
    file = DumpFile(path)
    try:
        return list(bson_documents(file))
    finally:
        file.close()


@pytest.mark.parametrize("packed", [False, True])
def test_documents_with_the_offsets_of_their_first_bytes(tmp_path: Path, packed: bool) -> None:
    wanted = [bson.encode({"_id": number, "s": "x" * (number * 7 % 300_000)}) for number in range(200)]
    path = tmp_path / ("c.bson.gz" if packed else "c.bson")
    data = b"".join(wanted)
    path.write_bytes(gzip.compress(data) if packed else data)
    found = read(path)
    assert [document for document, _ in found] == wanted
    assert all(data[offset:].startswith(document) for document, offset in found)


def test_a_packed_file_that_ends_too_early(tmp_path: Path) -> None:
    path = tmp_path / "c.bson.gz"
    path.write_bytes(gzip.compress(bson.encode({"a": "b"}) * 3)[:-9])
    with pytest.raises(DumpError, match=r"c\.bson\.gz, byte \d+: the compressed file ends too early"):
        read(path)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "c.bson"
    path.write_bytes(b"")
    assert read(path) == []


GOOD = bson.encode({"a": 1})


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (GOOD + GOOD[:-1], "byte 12: the file ends within a document: 11 bytes are left"),
        (GOOD + b"\x01", "byte 12: the file ends within a document: 1 bytes are left"),
        (GOOD + b"\x04\x00\x00\x00", "byte 12: 4 cannot be the length of a document"),
        (GOOD + b"\xff\xff\xff\xff", "byte 12: -1 cannot be the length of a document"),
        (GOOD + b"\x00\x00\x00\x7f" + bytes(100), "byte 12: 2130706432 cannot be the length of a document"),
        (GOOD + GOOD[:4] + b"\x77" + GOOD[5:], "byte 12: "),
        (GOOD + GOOD[:-1] + b"\x01", "byte 12: "),
    ],
)
def test_faults_name_the_offset_and_what_is_wrong(tmp_path: Path, data: bytes, what: str) -> None:
    path = tmp_path / "c.bson"
    path.write_bytes(data)
    with pytest.raises(DumpError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, {what}")
