"""Temporary files for sorts and groups that exceed their memory: in the data directory, or the system's default one.

A file has no directory entry (or loses it at once), so no files remain however the server ends. Each read or write is
small enough to be a copy from or to the system's page cache.
"""

from typing import IO, Final

from mongottl.errors import CommandError, ErrorCode
from mongottl.query.spill import SpillFile, SpillSpace

PREFIX: Final = "mongottl-spill-"


class TemporaryFile(SpillFile):
    def __init__(self, file: IO[bytes]) -> None:
        self._file: IO[bytes] | None = file
        self._end = 0

    def append(self, data: bytes) -> int:
        file = self._open()
        offset = self._end
        try:
            file.seek(offset)
            # No memoryview: mypyc's code for a slice of one writes beyond its end.
            written = file.write(data)
            while written < len(data):
                written += file.write(data[written:])
        except OSError as error:
            raise disk_error(error) from error
        self._end = offset + len(data)
        return offset

    def read(self, offset: int, size: int) -> bytes:
        file = self._open()
        file.seek(offset)
        data = file.read(size)
        while len(data) < size and offset + len(data) < self._end:
            data += file.read(size - len(data))
        return data

    def close(self) -> None:
        file = self._file
        self._file = None
        if file is not None:
            file.close()

    def _open(self) -> IO[bytes]:
        file = self._file
        if file is None:
            raise ValueError("a closed temporary file")
        return file


class TemporaryFiles(SpillSpace):
    """Creates temporary files. folder: their directory; None for the system's default."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def create(self) -> SpillFile:
        # Imported when first needed, because the import is slow.
        import tempfile

        try:
            return TemporaryFile(tempfile.TemporaryFile(buffering=0, prefix=PREFIX, dir=self._folder))
        except OSError as error:
            raise disk_error(error) from error


def disk_error(error: OSError) -> CommandError:
    return CommandError(ErrorCode.OutOfDiskSpace, f"temporary file cannot be written: {error.strerror}")
