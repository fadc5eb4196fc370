"""Documents of a file in batches, with the place of each."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

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
        if path.exists() and not path.is_file():  # reading a pipe would wait for whoever writes
            raise DumpError(f"{path}: not a file")
        try:
            if path.suffix == ".gz":
                self._file = cast(BinaryIO, gzip.GzipFile(path))
            else:
                self._file = path.open("rb")
        except OSError as error:
            raise self.error(str(error.strerror or error)) from error

    def read(self, size: int) -> bytes:
        """At most `size` of the next bytes; none at the end."""
        try:
            return self._file.read(size)
        except EOFError as error:
            raise self.error("the compressed file ends too early") from error
        except (OSError, zlib.error) as error:
            raise self.error(str(getattr(error, "strerror", None) or error)) from error

    def close(self) -> None:
        self._file.close()

    def error(self, what: str, place: str = "") -> DumpError:
        return DumpError(f"{self.path}{', ' if place else ''}{place}: {what}")
