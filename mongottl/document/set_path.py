"""A value put at a path of a document: what `$unwind`, `$lookup` and others do to each of theirs."""

from mypy_extensions import i64

from mongottl.document.annotated import carried
from mongottl.document.build import DocumentBuilder, encode_value
from mongottl.document.path import FieldPath
from mongottl.document.types import DOCUMENT, Value
from mongottl.document.walk import ElementCursor


def with_value(doc: bytes, path: FieldPath, value: Value) -> bytes:
    """The document with a value at a path; what is on the way and no document is replaced by one."""
    type_code, raw = encode_value(value)
    return carried(doc, set_path(doc, 0, path.part_bytes, 0, type_code, raw))


def set_path(buf: bytes, start: i64, parts: list[bytes], depth: i64, type_code: i64, raw: bytes) -> bytes:
    """The document at `start` with the value (type, bytes) at a path through documents; type 0 takes the field out.

    What is on the way and no document is replaced by one.
    """
    builder = DocumentBuilder()
    name = parts[depth]
    last = depth + 1 == len(parts)
    seen = False
    cursor = ElementCursor(buf, start)
    while cursor.next():
        if seen or not cursor.name_is(name):
            builder.append_raw_element(cursor.raw_element())
            continue
        seen = True
        if last:
            if type_code != 0:
                builder.append_raw(name, type_code, raw, 0, len(raw))
        elif cursor.type_code == DOCUMENT:
            builder.append_named(name, set_path(buf, cursor.value, parts, depth + 1, type_code, raw))
        else:
            builder.append_named(name, _nested(parts, depth + 1, type_code, raw))
    if not seen and type_code != 0:
        if last:
            builder.append_raw(name, type_code, raw, 0, len(raw))
        else:
            builder.append_named(name, _nested(parts, depth + 1, type_code, raw))
    return builder.finish()


def _nested(parts: list[bytes], depth: i64, type_code: i64, raw: bytes) -> bytes:
    builder = DocumentBuilder()
    if depth + 1 == len(parts):
        if type_code != 0:
            builder.append_raw(parts[depth], type_code, raw, 0, len(raw))
    else:
        builder.append_named(parts[depth], _nested(parts, depth + 1, type_code, raw))
    return builder.finish()
