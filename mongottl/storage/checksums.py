"""The checksums of records: CRC-32C of a document, begun with its record id, `_ts` and ttl.

So a changed bit in any of the four is found, and a record that stands in another's place. Stored as a signed number of
32 bits, which SQLite keeps in 4 bytes.

    stored row       (record id, document, `_ts`, ttl, sum)    sum: None where there is none, so that nothing is checked
    record           (record id, document, `_ts`, ttl)

google-crc32c computes CRCs by the processor's own instruction, several times faster than a table. Where it is missing,
or has no compiled code, `wire.crc32c` does it.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final, cast

from mypy_extensions import i64

from mongottl.storage.interface import DamagedRecord, FetchedEntry, NewRecord, Record
from mongottl.wire.crc32c import crc32c_of_part

StoredRow = tuple[int, bytes, int, int, int | None]
# (key, record id, document, `_ts`, ttl, sum).
StoredEntry = tuple[bytes, int, bytes, int, int, int | None]

_WORD: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000


def _of_our_own(before: int, data: bytes) -> int:
    return crc32c_of_part(data, 0, len(data), before)


def _fastest() -> Callable[[int, bytes], int]:
    """A function that continues a CRC-32C: (that of the bytes before, bytes) -> that of both."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has no compiled code
            import google_crc32c
    except ImportError:
        return _of_our_own
    if google_crc32c.implementation != "c":
        return _of_our_own
    return cast("Callable[[int, bytes], int]", google_crc32c.extend)


_extend: Final = _fastest()


def crc32c_after(before: int, data: bytes) -> int:
    """The CRC-32C of some bytes and `data` behind them. before: that of these bytes, 0 if there are none."""
    return _extend(before, data)


def record_sum(record_id: i64, document: bytes, ts: i64, ttl: i64) -> int:
    """The checksum of a record."""
    # Each factor is odd and below 2**31: no two values of 32 bits give the same word, and no product exceeds int64.
    begun: i64 = (
        ((record_id & _WORD) * 0x1E3779B1)
        ^ ((record_id >> 32) * 0x165667B1)
        ^ ((ts & _WORD) * 0x05EBCA77)
        ^ ((ts >> 32) * 0x27D4EB2F)
        ^ ((ttl & _WORD) * 0x42B2AE3D)
    ) & _WORD
    found: i64 = _extend(int(begun), document)
    return int(found - (_WORD + 1) if found & _SIGN else found)


def summed_rows(first_id: i64, records: list[NewRecord]) -> list[tuple[bytes, int, int, int]]:
    """Records without their ids, which ascend from `first_id`, each with its checksum."""
    rows: list[tuple[bytes, int, int, int]] = []
    record_id = first_id
    for document, ts, ttl in records:
        rows.append((document, ts, ttl, record_sum(record_id, document, ts, ttl)))
        record_id += 1
    return rows


def summed_updates(records: list[Record]) -> list[tuple[bytes, int, int, int, int]]:
    """Of each record: document, `_ts`, ttl, checksum, record id."""
    return [
        (document, ts, ttl, record_sum(record_id, document, ts, ttl), record_id)
        for record_id, document, ts, ttl in records
    ]


def checked_record(ident: str, row: Any) -> Record:
    """The record of a stored row. DamagedRecord if its checksum is wrong."""
    return checked_records(ident, [row])[0]


def checked_records(ident: str, rows: list[StoredRow]) -> list[Record]:
    """The records of stored rows. DamagedRecord if a checksum is wrong."""
    records: list[Record] = []
    try:
        for record_id, document, ts, ttl, stored in rows:
            if stored is not None and stored != record_sum(record_id, document, ts, ttl):
                raise DamagedRecord(ident, record_id)
            records.append((record_id, document, ts, ttl))
    except TypeError:
        # SQLite keeps the type with each value, so that a changed bit can make it another one.
        raise DamagedRecord(ident, _id_of(rows, len(records), 0)) from None
    return records


def undamaged_records(ident: str, rows: list[StoredRow]) -> list[Record]:
    """The records of those stored rows whose checksum is not wrong. DamagedRecord if there are rows, but none such."""
    records: list[Record] = []
    damaged: DamagedRecord | None = None
    for row in rows:
        try:
            records.extend(checked_records(ident, [row]))
        except DamagedRecord as error:
            damaged = error
    if damaged is not None and not records:
        raise damaged
    return records


def checked_entries(ident: str, rows: list[StoredEntry]) -> list[FetchedEntry]:
    """Index entries with the records of stored rows. DamagedRecord if a checksum is wrong."""
    entries: list[FetchedEntry] = []
    try:
        for key, record_id, document, ts, ttl, stored in rows:
            if stored is not None and stored != record_sum(record_id, document, ts, ttl):
                raise DamagedRecord(ident, record_id)
            entries.append((key, record_id, document, ts, ttl))
    except TypeError:
        raise DamagedRecord(ident, _id_of(rows, len(entries), 1)) from None
    return entries


def damaged_records(rows: list[StoredRow]) -> list[int]:
    """The ids of records whose checksum is wrong."""
    damaged: list[int] = []
    for record_id, document, ts, ttl, stored in rows:
        if stored is not None and stored != record_sum(record_id, document, ts, ttl):
            damaged.append(record_id)
    return damaged


def _id_of(rows: Any, position: int, id_at: int) -> int:
    """The record id in a row with values of wrong types."""
    found = rows[position][id_at]
    return found if isinstance(found, int) else 0
