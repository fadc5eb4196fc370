"""Temporary files of stages for data beyond the memory limit: the interface, which `exec` implements."""

from typing import Final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64, mypyc_attr

from mongottl.document.annotated import encoded_metadata, with_encoded_metadata
from mongottl.document.types import Int64, Value

_LENGTH_BYTES: Final = 4


@mypyc_attr(allow_interpreted_subclasses=True)
class SpillFile:
    """A temporary file: append bytes, read them at any offset."""

    def append(self, data: bytes) -> int:
        """Appends bytes; returns their offset."""
        raise NotImplementedError

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes from an offset on; fewer at the end of the file."""
        raise NotImplementedError

    def close(self) -> None:
        """Deletes the file. May be called more than once."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SpillSpace:
    """Creates temporary files."""

    def create(self) -> SpillFile:
        """A new, empty file. OutOfDiskSpace (14031) if the disk is full, also from `append`."""
        raise NotImplementedError


class SpilledDocuments:
    """Documents in a temporary file, which are returned in the order in which they were added."""

    def __init__(self, file: SpillFile) -> None:
        self._file: Final = file
        # Offset and size of each list of documents, the next one last.
        self._chunks: list[tuple[int, int]] = []

    def put(self, documents: list[bytes]) -> None:
        """Adds documents, which `take` returns together."""
        writer = BytesWriter()
        for document in documents:
            metadata = encoded_metadata(document)
            write_i32_le(writer, i32(len(metadata)))
            writer.write(metadata)
            write_i32_le(writer, i32(len(document)))
            writer.write(document)
        data = writer.getvalue()
        self._chunks.insert(0, (self._file.append(data), len(data)))

    def take(self) -> list[bytes]:
        """The next documents; [] if there are no more."""
        if not self._chunks:
            return []
        offset, size = self._chunks.pop()
        data = self._file.read(offset, size)
        documents: list[bytes] = []
        position: i64 = 0
        while position < i64(len(data)):
            parts: list[bytes] = []
            for _ in range(2):
                length: i64 = i64(read_i32_le(data, position))
                position += _LENGTH_BYTES
                parts.append(data[position : position + length])
                position += length
            documents.append(with_encoded_metadata(parts[1], parts[0]))
        return documents


class SpillStatistics:
    """explain's statistics of the use of temporary files by a stage."""

    def __init__(self) -> None:
        self.spills = 0
        self.records = 0
        self.bytes = 0

    def describe(self) -> dict[str, Value]:
        """The fields in explain's output of a pipeline stage."""
        return {
            "usedDisk": self.spills > 0,
            "spills": Int64(self.spills),
            "spilledBytes": Int64(self.bytes),
            "spilledRecords": Int64(self.records),
            "spilledDataStorageSize": Int64(self.bytes),
        }
