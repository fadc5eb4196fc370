"""Documents and elements put together from bytes that are known already: the smallest tools of in-place rewriting.

`build` encodes values; here every part is raw BSON.
"""

from librt.strings import BytesWriter, write_i32_le
from mypy_extensions import i32, i64, u8


def frame(content: bytes) -> bytes:
    """A document (or array) of whole elements: adds the length and the end mark."""
    writer = BytesWriter()
    write_i32_le(writer, i32(len(content) + 5))
    writer.write(content)
    writer.append(0)
    return writer.getvalue()


def element(type_code: i64, name: bytes, value: bytes) -> bytes:
    """One element: type, name and the value's bytes."""
    writer = BytesWriter()
    writer.append(u8(type_code))
    writer.write(name)
    writer.append(0)
    writer.write(value)
    return writer.getvalue()


def start_document() -> BytesWriter:
    """A writer with room for the length; append whole elements, then `finish_document`."""
    writer = BytesWriter()
    write_i32_le(writer, 0)
    return writer


def finish_document(writer: BytesWriter) -> bytes:
    """The document: end mark written, length filled in."""
    writer.append(0)
    size: i64 = len(writer)
    writer[0] = u8(size & 0xFF)
    writer[1] = u8((size >> 8) & 0xFF)
    writer[2] = u8((size >> 16) & 0xFF)
    writer[3] = u8((size >> 24) & 0xFF)
    return writer.getvalue()
