"""Arming the timing wheel with the second at which a record expires, by `ttl.policy` or a date-field TTL index."""

import math
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.path import FieldPath
from mongottl.document.types import ARRAY, DATE, DOCUMENT, DOUBLE, INT32, INT64, INT64_MAX, INT64_MIN, Date, Value
from mongottl.document.walk import ElementCursor, decode_value, find_field_at
from mongottl.exec.service.service import ServiceContext
from mongottl.storage.interface import NewRecord
from mongottl.ttl.policy import NEVER_AT_S, NO_TTL, expires_at_s

_MS_PER_S: Final = 1000


def _arm_record(service: ServiceContext, collection: Collection, document: bytes, ts_s: int, ttl_s: int) -> None:
    """Arms the wheel for a record that was just written."""
    due_s = expires_at_s(ts_s, ttl_s, collection.default_ttl_s)
    if due_s != NEVER_AT_S and service.expiry.wheel.arm(collection.number, due_s):
        service.hooks.wake_reaper()
    for index in collection.date_ttl_indexes:
        arm_date(service, collection, index, document)


def note_written(service: ServiceContext, collection: Collection, rows: list[NewRecord]) -> None:
    """What follows the commit of a unit of work that has changed a collection: scans must read again, and the
    wheel is armed for the records that it has stored."""
    collection.writes += 1
    if collection.default_ttl_s == NO_TTL and not collection.date_ttl_indexes:
        return
    for document, ts_s, ttl_s in rows:
        _arm_record(service, collection, document, ts_s, ttl_s)


def arm_date(service: ServiceContext, collection: Collection, index: CollectionIndex, document: bytes) -> None:
    """Arms the wheel for a document in a date-field TTL index."""
    due_s = date_due_s(index, document, numbers_are_dates(service))
    if due_s is not None and service.expiry.wheel.arm(collection.number, due_s):
        service.hooks.wake_reaper()


def numbers_are_dates(service: ServiceContext) -> bool:
    """Whether a date-field TTL index takes an int, long or double as milliseconds since 1970, as Cosmos DB does.

    Source: Microsoft's "Expire data with Azure Cosmos DB for MongoDB", TTL on custom paths.
    """
    return service.dialect.numbers_are_dates


def date_due_s(index: CollectionIndex, document: bytes, with_numbers: bool) -> int | None:
    """The first whole second at which a document expires by a date-field TTL index; None if it never does.

    with_numbers: see `numbers_are_dates`.
    """
    due_ms = date_due_ms(index, document, with_numbers)
    return None if due_ms is None else -(-due_ms // _MS_PER_S)  # rounded up: never too early


def date_due_ms(index: CollectionIndex, document: bytes, with_numbers: bool) -> int | None:
    """The millisecond at which a document expires by a date-field TTL index; None if it never does.

    with_numbers: see `numbers_are_dates`. If the field is an array, its earliest date counts. Other values never
    expire.
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
