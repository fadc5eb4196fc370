"""Documents of a file in batches, with the place of each."""

import gzip
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from mongottl.dump.errors import DumpError

# Documents of a batch, and their bytes; the last document may exceed them.
BATCH_DOCUMENTS: Final = 500
BATCH_BYTES: Final = 2 << 20


class Batch:
    """Documents in raw BSON. places: of each in its file, as `line 7` or `byte 1043` says it."""

    def __init__(self, unit: str) -> None:
        self.documents: list[bytes] = []
        self._unit = unit
        self._numbers: list[int] = []
        self._bytes = 0

    def add(self, document: bytes, number: int) -> bool:
        """Adds a document; whether the batch is now full. number: of its line, or of its first byte."""
        self.documents.append(document)
        self._numbers.append(number)
        self._bytes += len(document)
        return self._bytes >= BATCH_BYTES or len(self.documents) >= BATCH_DOCUMENTS

    def place(self, position: int) -> str:
        return f"{self._unit} {self._numbers[position]}"


def in_batches(unit: str, documents: Iterator[tuple[bytes, int]]) -> Iterator[Batch]:
    """Batches of documents that come with their numbers; `unit` says what the numbers count."""
    batch = Batch(unit)
    for document, number in documents:
        if batch.add(document, number):
            yield batch
            batch = Batch(unit)
    if batch.documents:
        yield batch


class DumpFile:
    """A file that is read from its beginning to its end, unpacked if its name ends with `.gz`.

    DumpError if it cannot be opened, read or unpacked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # What has ended the reading, until it is raised.
        self._failed: EOFError | OSError | zlib.error | None = None
        if path.exists() and not path.is_file():  # reading a pipe would wait for whoever writes
            raise DumpError(f"{path}: not a file")
        try:
            if path.suffix == ".gz":
                self._file: gzip.GzipFile | BufferedReader = gzip.GzipFile(path)
            else:
                self._file = path.open("rb")
        except OSError as error:
            raise self.error(str(error.strerror or error)) from error

    def read(self, size: int, place: str) -> bytes:
        """`size` of the next bytes, fewer before what cannot be read or unpacked, and none at the end.

        place: where the reader is, for errors. It has used what is before that.
        """
        parts: list[bytes] = []
        while size > 0 and self._failed is None:
            try:
                part = self._file.read1(size)
            except (EOFError, OSError, zlib.error) as error:
                self._failed = error
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
        if self._failed is not None and not parts:
            raise self.error(_reason(self._failed), place) from self._failed
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()

    def error(self, what: str, place: str = "") -> DumpError:
        return DumpError(f"{self.path}{', ' if place else ''}{place}: {what}")


def _reason(error: EOFError | OSError | zlib.error) -> str:
    """Why a file cannot be read."""
    if isinstance(error, EOFError):
        return "the compressed file ends too early"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"the compressed file is damaged, here or before: {error}"
