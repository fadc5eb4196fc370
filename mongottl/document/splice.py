"""Assembling documents and elements from encoded parts. (`build` encodes values.)"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le
from mypy_extensions import i32, i64, u8

_LONG_BYTES: Final = 64 * 1024


def frame(content: bytes) -> bytes:
    """A document (or array) of encoded elements: adds the length and the final NUL."""
    if len(content) >= _LONG_BYTES:  # which a writer would copy twice and more
        return b"".join((int32_bytes(len(content) + 5), content, b"\0"))
    writer = BytesWriter()
    write_i32_le(writer, i32(len(content) + 5))
    writer.write(content)
    writer.append(0)
    return writer.getvalue()


def element(type_code: i64, name: bytes, value: bytes) -> bytes:
    """One encoded element: type, name and the value's bytes."""
    writer = BytesWriter()
    writer.append(u8(type_code))
    writer.write(name)
    writer.append(0)
    writer.write(value)
    return writer.getvalue()


def int32_bytes(number: i64) -> bytes:
    """An int32 as an element's value."""
    writer = BytesWriter()
    write_i32_le(writer, i32(number))
    return writer.getvalue()


def start_document() -> BytesWriter:
    """A writer with room for the length; append whole elements, then `finish_document`."""
    writer = BytesWriter()
    write_i32_le(writer, 0)
    return writer


def finish_document(writer: BytesWriter) -> bytes:
    """The document: writes the final NUL and fills in the length."""
    writer.append(0)
    size: i64 = len(writer)
    writer[0] = u8(size & 0xFF)
    writer[1] = u8((size >> 8) & 0xFF)
    writer[2] = u8((size >> 16) & 0xFF)
    writer[3] = u8((size >> 24) & 0xFF)
    return writer.getvalue()
