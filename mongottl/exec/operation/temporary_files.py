"""Temporary files for what does not fit into memory: in the data folder, or where the system keeps its own.

A file has no name from the start (or loses it at once), so nothing is left behind however the server ends. What is read
and written in one call is small enough to be a copy to or from the system's cache.
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
            # No memoryview: what mypyc makes of one cut short writes beyond its end.
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
    """folder: where they are made; None for the system's own place."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def create(self) -> SpillFile:
        # Imported when first needed: it takes longer than anything else at start-up.
        import tempfile

        try:
            return TemporaryFile(tempfile.TemporaryFile(buffering=0, prefix=PREFIX, dir=self._folder))
        except OSError as error:
            raise disk_error(error) from error


def disk_error(error: OSError) -> CommandError:
    return CommandError(ErrorCode.OutOfDiskSpace, f"temporary file cannot be written: {error.strerror}")
