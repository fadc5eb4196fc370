"""The documents of a .bson file: one after the other, as `mongodump` writes them."""

from collections.abc import Iterator
from typing import Final

from mongottl.document.types import MAX_DOCUMENT_BYTES
from mongottl.document.validate import validate_document
from mongottl.dump.batches import DumpFile
from mongottl.errors import CommandError

_READ_BYTES: Final = 1 << 20
_LENGTH_BYTES: Final = 4
_LEAST_BYTES: Final = 5
# Documents of the server itself may exceed the limit of clients by this, as in MongoDB.
_MOST_BYTES: Final = MAX_DOCUMENT_BYTES + 16 * 1024


def bson_documents(file: DumpFile) -> Iterator[tuple[bytes, int]]:
    """Each document with the offset of its first byte (in the unpacked file). DumpError for what is no BSON."""
    buffer = b""
    # Offset of the buffer in the file, and of the next document in the buffer.
    start = at = 0
    while True:
        left = len(buffer) - at
        size = _LENGTH_BYTES
        if left >= _LENGTH_BYTES:
            size = int.from_bytes(buffer[at : at + _LENGTH_BYTES], "little", signed=True)
            if not _LEAST_BYTES <= size <= _MOST_BYTES:
                raise file.error(f"{size} cannot be the length of a document", f"byte {start + at}")
            if left >= size:
                document = buffer[at : at + size]
                try:
                    validate_document(document)
                except CommandError as error:
                    raise file.error(error.message, f"byte {start + at}") from error
                yield document, start + at
                at += size
                continue
        more = file.read(max(_READ_BYTES, size - left), f"byte {start + at}")
        if not more:
            break
        buffer = buffer[at:] + more
        start += at
        at = 0
    if at < len(buffer):
        raise file.error(f"the file ends within a document: {len(buffer) - at} bytes are left", f"byte {start + at}")
