"""Temporary files of stages for data beyond the memory limit: the interface, which `exec` implements."""

from mypy_extensions import mypyc_attr

from mongottl.document.types import Int64, Value


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
