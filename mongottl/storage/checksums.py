"""The checksums of records: CRC-32C of a document, its record id, `_ts` and ttl.

So a changed bit in any of the four is found, and a record that stands in another's place.

    stored row       (record id, document, `_ts`, ttl, sum)    sum: None where there is none, so that nothing is checked
    record           (record id, document, `_ts`, ttl)

google-crc32c computes CRCs by the processor's own instruction, several times faster than a table. Where it is missing,
or has no compiled code, `wire.crc32c` does it.

A sum is one of two kinds. A *tail* is 20 bytes, and what SQLite writes one after the other for many rows, documents
and tails, is checked by one CRC and cut into records again, without a call for each row:

    document │ record id   │ `_ts`   │ ttl    │ end        little-endian
             │ 8 bytes     │ 4       │ 4      │ 4

    bytes      document │ record id, `_ts`, ttl │ end │ document │ record id, …
    register 0                              …       0                         …

A CRC reads bytes in a register of 32 bits. Four bytes that equal the register make it 0, whatever it was: so `end` is
what the register is before it, and if every record is right the register ends as 0. The rest of the way maps each
register to another one: a record whose sum is wrong always changes the end, and two such cancel out as seldom as two
CRCs are equal, once in 2**32.

A *number* is of 32 bits, signed, which SQLite keeps in 4 bytes: the CRC of the document, begun with a word that the
other three give. It is the sum of records that a tail cannot identify or cut: whose document does not begin with its
own length, or is long, which gains nothing by being written after others; and of all that were written by format 2.

A call costs four times what the CRC of 300 bytes does, so the sums of rows that are read one by one are checked
together as well (`_Chain`), by one CRC over all documents. Numbers have eight bytes before each document:

    bytes       sum before │ link │ document │ its sum │ link │ document │ its sum
    register               0      begun      sum       0      begun      sum       0

since each state of the register can be reached from 0 by one link of four bytes.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final, cast

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from mongottl.storage.errors import DamagedRecord
from mongottl.storage.stores import FetchedEntry, NewRecord, Record
from mongottl.wire.crc32c import crc32c_of_part, register_after, registers_before

Sum = int | bytes
StoredRow = tuple[int, bytes, int, int, Sum | None]
# (key, record id, document, `_ts`, ttl, sum).
StoredEntry = tuple[bytes, int, bytes, int, int, Sum | None]

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

TAIL_BYTES: Final = 20
# Documents have a tail up to this length. From about here on, to copy a document once more costs what a row does.
MOST_JOINED_BYTES: Final = 8 * 1024
_LEAST_DOCUMENT_BYTES: Final = 5


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
    """The CRC-32C of some bytes and `data` after them. before: that of these bytes, 0 if there are none."""
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


def has_tail(document: bytes, ts: i64, ttl: i64) -> bool:
    """Whether the sum of a record is a tail."""
    length: i64 = len(document)
    return (
        _LEAST_DOCUMENT_BYTES <= length <= MOST_JOINED_BYTES
        and i64(read_i32_le(document, 0)) == length
        and 0 <= ts <= _WORD
        and -_SIGN <= ttl < _SIGN
    )


def stored_sum(record_id: int, document: bytes, ts: int, ttl: int) -> Sum:
    """The sum to store for a record: a tail where it has one, else a number."""
    if not has_tail(document, ts, ttl):
        return record_sum(record_id, document, ts, ttl)
    word: i64 = ttl << 32 | ts
    register: i64 = _extend(_ZERO, document) ^ _WORD
    register = register_after(register_after(register, record_id), word)
    tail = BytesWriter()
    write_i64_le(tail, record_id)
    write_i64_le(tail, word)
    write_i32_le(tail, i32(register - (register >> 31 << 32)))
    return tail.getvalue()


def records_of(joined: bytes, count: int, ascends: bool) -> tuple[list[Record], int, int] | None:
    """The records of documents that are joined with their tails, the length of the longest document, and of all.

    count: how many rows there are, since SQLite joins none whose value is NULL. ascends: whether their ids do, or else
    descend. None if a checksum is wrong, or these are not tails.
    """
    if _extend(_ZERO, joined) != _ZERO:
        return None
    records: list[object] = []
    size: i64 = len(joined)
    position: i64 = 0
    longest: i64 = 0
    last: i64 = -1
    # Most records have the `_ts` of the one before: they share the number object.
    ts: i64 = -1
    ts_object: object = 0
    while position < size:
        if position + _LEAST_DOCUMENT_BYTES > size:
            return None
        length: i64 = i64(read_i32_le(joined, position))
        end: i64 = position + length
        if length < _LEAST_DOCUMENT_BYTES or end + TAIL_BYTES > size:
            return None
        record_id: i64 = read_i64_le(joined, end)
        if last >= 0 and (record_id <= last) == ascends:
            return None
        last = record_id
        word: i64 = read_i64_le(joined, end + 8)
        if length > longest:
            longest = length
        if word & _WORD != ts:
            ts = word & _WORD
            ts_object = int(ts)
        record: tuple[object, object, object, object] = (
            int(record_id),
            joined[position:end],
            ts_object,
            int(word >> 32),
        )
        records.append(record)
        position = end + TAIL_BYTES
    if len(records) != count:
        return None
    return cast("list[Record]", records), int(longest), len(joined) - TAIL_BYTES * len(records)


class _Chain:
    """Whether the sums of several records are right, by one CRC over all of them (see the module)."""

    def __init__(self) -> None:
        self._crc: int = _ZERO
        self._piece = BytesWriter()
        self._before: i64 = 0
        self._in_range = True

    def add(self, record_id: int, document: bytes, ts: int, ttl: int, stored: Sum) -> None:
        if isinstance(stored, bytes):
            self._add_tail(record_id, document, ts, ttl, stored)
        else:
            self._add_number(record_id, document, ts, ttl, stored)

    def _add_tail(self, record_id: i64, document: bytes, ts: i64, ttl: i64, tail: bytes) -> None:
        # What a tail says twice, once in itself and once in the columns.
        if (
            len(tail) != TAIL_BYTES
            or not has_tail(document, ts, ttl)
            or read_i64_le(tail, 0) != record_id
            or read_i64_le(tail, 8) != ttl << 32 | ts
        ):
            self._in_range = False
            return
        write_i64_le(self._piece, self._before)
        self._add_document(document)
        self._piece.write(tail)
        self._before = 0

    def _add_number(self, record_id: i64, document: bytes, ts: i64, ttl: i64, stored: i64) -> None:
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
        self._add_document(document)
        self._before = (stored & _WORD) ^ _WORD
        if not -_SIGN <= stored < _SIGN:
            self._in_range = False

    def _add_document(self, document: bytes) -> None:
        piece = self._piece
        if len(document) < _LONG_BYTES:
            piece.write(document)
            if len(piece) >= _PIECE_BYTES:
                self._take()
        else:
            self._take()
            self._crc = _extend(self._crc, document)

    def _take(self) -> None:
        self._crc = _extend(self._crc, self._piece.getvalue())
        self._piece.truncate(0)

    def is_right(self) -> bool:
        """Whether the sums of all records are right. To be asked once, after the last."""
        write_i64_le(self._piece, self._before)
        self._take()
        return self._in_range and self._crc == _ZERO


def _is_right(record_id: int, document: bytes, ts: int, ttl: int, stored: Sum) -> bool:
    if isinstance(stored, bytes):
        return stored == stored_sum(record_id, document, ts, ttl)
    return stored == record_sum(record_id, document, ts, ttl)


def _bound(found: Sum) -> int | bytearray:
    """A sum as a parameter of SQLite: the sqlite3 module asks for an adapter of each value of type bytes, which takes
    it 0.1 µs, but for none of bytearray."""
    return bytearray(found) if isinstance(found, bytes) else found


def summed_rows(first_id: i64, records: list[NewRecord]) -> list[tuple[bytes, int, int, int | bytearray]]:
    """Records without their ids, which ascend from `first_id`, each with its checksum."""
    rows: list[tuple[bytes, int, int, int | bytearray]] = []
    record_id = first_id
    for document, ts, ttl in records:
        rows.append((document, ts, ttl, _bound(stored_sum(record_id, document, ts, ttl))))
        record_id += 1
    return rows


def summed_updates(records: list[Record]) -> list[tuple[bytes, int, int, int | bytearray, int]]:
    """Of each record: document, `_ts`, ttl, checksum, record id."""
    return [
        (document, ts, ttl, _bound(stored_sum(record_id, document, ts, ttl)), record_id)
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
        return False  # the caller then checks each row and finds which it is
    return chain.is_right()


def _checked_singly(ident: str, rows: list[StoredRow]) -> list[Record]:
    records: list[Record] = []
    try:
        for record_id, document, ts, ttl, stored in rows:
            if stored is not None and not _is_right(record_id, document, ts, ttl, stored):
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
        if stored is not None and not _is_right(record_id, document, ts, ttl, stored):
            damaged.append(record_id)
    return damaged


def _id_of(rows: Any, position: int, id_at: int) -> int:
    """The record id in a row with values of wrong types."""
    found = rows[position][id_at]
    return found if isinstance(found, int) else 0
