"""The checksums of records: CRC-32C of a document, begun with its record id, `_ts` and ttl.

So a changed bit in any of the four is found, and a record that stands in another's place. Stored as a signed number of
32 bits, which SQLite keeps in 4 bytes.

    stored row       (record id, document, `_ts`, ttl, sum)    sum: None where there is none, so that nothing is checked
    record           (record id, document, `_ts`, ttl)

google-crc32c computes CRCs by the processor's own instruction, several times faster than a table. Where it is missing,
or has no compiled code, `wire.crc32c` does it.

A call costs four times what the CRC of 300 bytes does, so the sums of a batch are checked together (`_Chain`): by one
CRC over all documents with eight bytes before each. It reads them in a register of 32 bits:

    bytes       sum before │ link │ document │ its sum │ link │ document │ its sum
    register               0      begun      sum       0      begun      sum       0

Four bytes that equal the register make it 0, whatever it was; and each state can be reached from 0 by one link of four
bytes. So the register ends as 0 if every sum is right. The rest of the way maps each register to another one: a record
whose sum is wrong always changes the end, and two such cancel out as seldom as two CRCs are equal, once in 2**32.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final, cast

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from mongottl.storage.interface import DamagedRecord, FetchedEntry, NewRecord, Record
from mongottl.wire.crc32c import crc32c_of_part, registers_before

StoredRow = tuple[int, bytes, int, int, int | None]
# (key, record id, document, `_ts`, ttl, sum).
StoredEntry = tuple[bytes, int, bytes, int, int, int | None]

_WORD: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000

# The CRC whose register is 0.
_ZERO: Final = 0xFFFFFFFF
# Entry (k, b) at offset k * 2048 + b * 8: the link that brings the register from 0 to byte b in its place k.
_LINKS: Final = registers_before()
# Bytes that a chain gathers for one call. They stay in the processor's fastest caches, where to copy them is cheap.
_PIECE_BYTES: Final = 32 * 1024
# From this length on, to copy a document costs more than a call.
_LONG_BYTES: Final = 4 * 1024


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


def _begun(record_id: i64, ts: i64, ttl: i64) -> i64:
    """What the CRC of a record begins with: that of the bytes before its document, as it were."""
    # Each factor is odd and below 2**31: no two values of 32 bits give the same word, and no product exceeds int64.
    return (
        ((record_id & _WORD) * 0x1E3779B1)
        ^ ((record_id >> 32) * 0x165667B1)
        ^ ((ts & _WORD) * 0x05EBCA77)
        ^ ((ts >> 32) * 0x27D4EB2F)
        ^ ((ttl & _WORD) * 0x42B2AE3D)
    ) & _WORD


def record_sum(record_id: i64, document: bytes, ts: i64, ttl: i64) -> int:
    """The checksum of a record."""
    found: i64 = _extend(int(_begun(record_id, ts, ttl)), document)
    return int(found - (_WORD + 1) if found & _SIGN else found)


class _Chain:
    """Whether the sums of several records are right, told by one CRC over all of them (see the module)."""

    def __init__(self) -> None:
        self._crc: int = _ZERO
        self._piece = BytesWriter()
        self._before: i64 = 0
        self._in_range = True

    def add(self, record_id: i64, document: bytes, ts: i64, ttl: i64, stored: i64) -> None:
        begun: i64 = _begun(record_id, ts, ttl) ^ _WORD
        link: i64 = (
            read_i64_le(_LINKS, (begun & 0xFF) << 3)
            ^ read_i64_le(_LINKS, 2048 + ((begun >> 8 & 0xFF) << 3))
            ^ read_i64_le(_LINKS, 4096 + ((begun >> 16 & 0xFF) << 3))
            ^ read_i64_le(_LINKS, 6144 + ((begun >> 24) << 3))
        )
        piece = self._piece
        # As a signed number of 32 bits, so that interpreted code does not leave int64.
        write_i64_le(piece, self._before | (link - (link >> 31 << 32)) << 32)
        if len(document) < _LONG_BYTES:
            piece.write(document)
            if len(piece) >= _PIECE_BYTES:
                self._take()
        else:
            self._take()
            self._crc = _extend(self._crc, document)
        self._before = (stored & _WORD) ^ _WORD
        if not -_SIGN <= stored < _SIGN:
            self._in_range = False

    def _take(self) -> None:
        self._crc = _extend(self._crc, self._piece.getvalue())
        self._piece.truncate(0)

    def is_right(self) -> bool:
        """Whether the sums of all records are right. To be asked once, after the last."""
        write_i64_le(self._piece, self._before)
        self._take()
        return self._in_range and self._crc == _ZERO


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
    return _checked_singly(ident, [row])[0]


def checked_records(ident: str, rows: list[Any]) -> list[Record]:
    """The records of stored rows. DamagedRecord if a checksum is wrong."""
    if _are_right(rows):
        return [row[:4] for row in rows]
    return _checked_singly(ident, rows)


def _are_right(rows: list[StoredRow]) -> bool:
    chain = _Chain()
    try:
        for record_id, document, ts, ttl, stored in rows:
            if stored is not None:
                chain.add(record_id, document, ts, ttl, stored)
    except TypeError:
        return False  # who looks at each row tells which it is
    return chain.is_right()


def _checked_singly(ident: str, rows: list[StoredRow]) -> list[Record]:
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
            records.append(checked_record(ident, row))
        except DamagedRecord as error:
            damaged = error
    if damaged is not None and not records:
        raise damaged
    return records


def checked_entries(ident: str, rows: list[Any]) -> list[FetchedEntry]:
    """Index entries with the records of stored rows. DamagedRecord if a checksum is wrong."""
    if _entries_are_right(rows):
        return [row[:5] for row in rows]
    return [(row[0], *checked_record(ident, row[1:])) for row in rows]


def _entries_are_right(rows: list[StoredEntry]) -> bool:
    chain = _Chain()
    try:
        for _, record_id, document, ts, ttl, stored in rows:
            if stored is not None:
                chain.add(record_id, document, ts, ttl, stored)
    except TypeError:
        return False
    return chain.is_right()


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
