"""Temporary files for sorts and groups that exceed their memory: in the data directory, or the system's default one.

A file has no directory entry (or loses it at once), so no files remain however the server ends. Each read or write is
small enough to be a copy from or to the system's page cache.
"""

import errno
import os
from collections.abc import Callable
from typing import IO, Final

from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.state.open_files import is_last
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
    """Creates temporary files. folder: their directory; None for the system's default.

    They leave the last file descriptors that the system allows to the server's other files. close_one: closes some
    temporary file that nobody uses at present, for another one; False if there is none.
    """

    def __init__(self, folder: str | None, close_one: Callable[[], bool] | None = None) -> None:
        self._folder = folder
        self._close_one = close_one

    def create(self) -> SpillFile:
        """A new file. OutOfDiskSpace (14031) if it cannot be made, or too many are open."""
        while True:
            try:
                return self._created()
            except OSError as error:
                full = error.errno in (errno.EMFILE, errno.ENFILE)
                if not full or self._close_one is None or not self._close_one():
                    raise disk_error(error) from error

    def _created(self) -> SpillFile:
        # Imported when first needed, because the import is slow.
        import tempfile

        file = tempfile.TemporaryFile(buffering=0, prefix=PREFIX, dir=self._folder)  # noqa: SIM115  # returned open
        if is_last(file.fileno()):
            file.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return TemporaryFile(file)


class OperationFiles(SpillSpace):
    """The temporary files of one operation, and then of its cursor, by what they have together.

    size_bytes: of those that are not closed.
    """

    def __init__(self, space: SpillSpace) -> None:
        self._space = space
        self.size_bytes = 0

    def create(self) -> SpillFile:
        return _CountedFile(self, self._space.create())


class _CountedFile(SpillFile):
    def __init__(self, files: OperationFiles, file: SpillFile) -> None:
        self._files = files
        self._file = file
        self._size_bytes = 0

    def append(self, data: bytes) -> int:
        offset = self._file.append(data)
        self._size_bytes += len(data)
        self._files.size_bytes += len(data)
        return offset

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size)

    def close(self) -> None:
        self._file.close()
        self._files.size_bytes -= self._size_bytes
        self._size_bytes = 0


class CursorSpace(SpillSpace):
    """The one temporary file of an idle cursor, which all that spill share; it is removed when they have closed their
    parts. A large number of idle cursors needs few open files.

    size_bytes: of the file.
    """

    def __init__(self, space: SpillSpace) -> None:
        self._space = space
        self._file: SpillFile | None = None
        self._parts = 0
        self.size_bytes = 0

    def create(self) -> SpillFile:
        if self._file is None:
            self._file = self._space.create()
        self._parts += 1
        return _SharedFile(self)

    def append(self, data: bytes) -> int:
        assert self._file is not None
        offset = self._file.append(data)
        self.size_bytes = offset + len(data)
        return offset

    def read(self, offset: int, size: int) -> bytes:
        assert self._file is not None
        return self._file.read(offset, size)

    def end_part(self) -> None:
        self._parts -= 1
        if self._parts == 0:
            self.close()

    def close(self) -> None:
        """Removes the file. May be called more than once."""
        file = self._file
        self._file = None
        self.size_bytes = 0
        if file is not None:
            file.close()


class _SharedFile(SpillFile):
    def __init__(self, space: CursorSpace) -> None:
        self._space = space
        self._closed = False

    def append(self, data: bytes) -> int:
        return self._space.append(data)

    def read(self, offset: int, size: int) -> bytes:
        return self._space.read(offset, size)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._space.end_part()


def disk_error(error: OSError) -> CommandError:
    return CommandError(ErrorCode.OutOfDiskSpace, f"temporary file cannot be written: {error.strerror}")
