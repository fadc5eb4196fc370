"""Where data goes that does not fit into memory: what stages need of temporary files, which `exec` brings along."""

from mypy_extensions import mypyc_attr

from mongottl.document.types import Int64, Value


@mypyc_attr(allow_interpreted_subclasses=True)
class SpillFile:
    """Bytes that are put behind each other and read back from any place."""

    def append(self, data: bytes) -> int:
        """Puts bytes at the end; the place where they begin."""
        raise NotImplementedError

    def read(self, place: int, size: int) -> bytes:
        """`size` bytes from a place on; fewer where the end comes first."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives the space back. May be called more than once."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SpillSpace:
    """Makes such files."""

    def create(self) -> SpillFile:
        """A new, empty file. OutOfDiskSpace (14031) where there is no room, from here and from `append`."""
        raise NotImplementedError


class SpillStatistics:
    """What explain shows of a stage that may use the disk."""

    def __init__(self) -> None:
        self.spills = 0
        self.records = 0
        self.bytes = 0

    def describe(self) -> dict[str, Value]:
        """As a pipeline's stage shows it."""
        return {
            "usedDisk": self.spills > 0,
            "spills": Int64(self.spills),
            "spilledBytes": Int64(self.bytes),
            "spilledRecords": Int64(self.records),
            "spilledDataStorageSize": Int64(self.bytes),
        }
