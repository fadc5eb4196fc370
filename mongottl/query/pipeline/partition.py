"""Partitions of documents in a temporary file, by the key of their group, for `$group` beyond the memory limit.

    level 0:  [0] [1] [2] … [15]     by four bits of a checksum of the key
    level 1:      [1.0] [1.1] …      a part that is still too large, by the next four

Within a part documents keep their order.
"""

import zlib
from typing import Final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from mongottl.document.annotated import encoded_metadata, with_encoded_metadata
from mongottl.query.spill import SpillFile, SpillStatistics

PARTS: Final = 16
MAX_LEVEL: Final = 7  # the checksum has no more bits
_CHUNK_BYTES: Final = 64 << 10


def part_of(key: bytes, level: int) -> int:
    """The number of the part of a key at a level."""
    return (zlib.crc32(key) >> (4 * level)) & (PARTS - 1)


class Partitions:
    """Writes documents to their parts. statistics: counts them."""

    def __init__(self, file: SpillFile, level: int, statistics: SpillStatistics) -> None:
        self._file: Final = file
        self._statistics: Final = statistics
        self.level: Final = level
        self._writers: Final = [BytesWriter() for _ in range(PARTS)]
        self._chunks: Final[list[list[tuple[int, int]]]] = [[] for _ in range(PARTS)]

    def put(self, key: bytes, document: bytes) -> None:
        part = part_of(key, self.level)
        writer = self._writers[part]
        write_keyed(writer, key, document)
        self._statistics.records += 1
        if len(writer) >= _CHUNK_BYTES:
            self._write(part)

    def finish(self) -> list[list[tuple[int, int]]]:
        """The chunks of each part, in order: (offset in the file, size)."""
        for part in range(PARTS):
            if len(self._writers[part]):
                self._write(part)
        return self._chunks

    def _write(self, part: int) -> None:
        data = self._writers[part].getvalue()
        self._writers[part] = BytesWriter()
        self._statistics.bytes += len(data)
        self._chunks[part].append((self._file.append(data), len(data)))


def write_keyed(writer: BytesWriter, key: bytes, document: bytes) -> None:
    """Writes one key and document of a chunk."""
    metadata = encoded_metadata(document)
    write_i32_le(writer, i32(len(key)))
    write_i32_le(writer, i32(len(document)))
    write_i32_le(writer, i32(len(metadata)))
    writer.write(key)
    writer.write(document)
    writer.write(metadata)


def read_chunk(data: bytes) -> list[tuple[bytes, bytes]]:
    """The keys and documents of a chunk."""
    found: list[tuple[bytes, bytes]] = []
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        key_at: i64 = at + 12
        document_at: i64 = key_at + i64(read_i32_le(data, at))
        metadata_at: i64 = document_at + i64(read_i32_le(data, at + 4))
        at = metadata_at + i64(read_i32_le(data, at + 8))
        document = data[document_at:metadata_at]
        if metadata_at < at:
            document = with_encoded_metadata(document, data[metadata_at:at])
        found.append((data[key_at:document_at], document))
    return found
