"""When a document expires by a date-field TTL index."""

import math
from typing import Final

from mongottl.catalog.collection import CollectionIndex
from mongottl.document.path import FieldPath
from mongottl.document.types import ARRAY, DATE, DOCUMENT, DOUBLE, INT32, INT64, INT64_MAX, INT64_MIN, Date, Value
from mongottl.document.walk import ElementCursor, decode_value, find_field_at

_MS_PER_S: Final = 1000


def date_due_s(index: CollectionIndex, document: bytes, with_numbers: bool) -> int | None:
    """The first whole second at which a document expires by a date-field TTL index; None if it never does.

    with_numbers: see `date_due_ms`.
    """
    due_ms = date_due_ms(index, document, with_numbers)
    return None if due_ms is None else -(-due_ms // _MS_PER_S)  # rounded up: never too early


def date_due_ms(index: CollectionIndex, document: bytes, with_numbers: bool) -> int | None:
    """The millisecond at which a document expires by a date-field TTL index; None if it never does.

    with_numbers: whether an int, long or double is taken as milliseconds since 1970 (`Dialect.numbers_are_dates`). If
    the field is an array, its earliest date counts. Other values never expire.
    """
    expire_after_s = index.descriptor.expire_after_s
    if expire_after_s is None:
        return None
    earliest = _earliest_date_ms(document, 0, index.descriptor.paths[0], 0, with_numbers)
    if earliest is None:
        return None
    return earliest + expire_after_s * _MS_PER_S


def _counts(type_code: int, with_numbers: bool) -> bool:
    """Whether values of this type are dates."""
    return type_code == DATE or (with_numbers and type_code in (DOUBLE, INT32, INT64))


def _date_ms(value: Value) -> int | None:
    """A value that `_counts`, in milliseconds, rounded up; None if it is no 64-bit number."""
    if isinstance(value, Date):
        return value.ms
    if isinstance(value, float):
        return math.ceil(value) if INT64_MIN <= value <= INT64_MAX else None
    assert isinstance(value, int)
    return int(value)


def _earliest_date_ms(buf: bytes, start: int, path: FieldPath, depth: int, with_numbers: bool) -> int | None:
    type_code, pos = find_field_at(buf, start, path.part_bytes[depth])
    last = depth == path.depth - 1
    if type_code == DOCUMENT and not last:
        return _earliest_date_ms(buf, int(pos), path, depth + 1, with_numbers)
    if type_code != ARRAY:
        return _date_ms(decode_value(buf, type_code, pos)) if last and _counts(int(type_code), with_numbers) else None
    earliest: int | None = None
    if not last and path.indexes[depth + 1] >= 0:  # the index of an array's element
        earliest = _earliest_date_ms(buf, int(pos), path, depth + 1, with_numbers)
    cursor = ElementCursor(buf, pos)
    while cursor.next():
        found: int | None = None
        if last and _counts(int(cursor.type_code), with_numbers):
            found = _date_ms(cursor.decoded())
        elif not last and cursor.type_code == DOCUMENT:
            found = _earliest_date_ms(buf, int(cursor.value), path, depth + 1, with_numbers)
        if found is not None and (earliest is None or found < earliest):
            earliest = found
    return earliest
