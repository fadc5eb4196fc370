"""Checksums of records: the same by every implementation, and another one for every changed bit."""

import random
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest

from mongottl.storage.checksums import (
    MOST_JOINED_BYTES,
    TAIL_BYTES,
    StoredRow,
    Sum,
    checked_entries,
    checked_record,
    checked_records,
    crc32c_after,
    damaged_records,
    record_sum,
    records_of,
    stored_sum,
    summed_rows,
    summed_updates,
)
from mongottl.storage.errors import DamagedRecord
from mongottl.wire.crc32c import crc32c, crc32c_of_part, register_after

RECORD = (7, b"some document, long enough for several words", 1_700_000_000, 0)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, 1000])
def test_all_implementations_agree(length: int) -> None:
    data = random.Random(length).randbytes(length)
    before = 0x12345678
    assert crc32c_after(0, data) == crc32c(data) == google_crc32c.value(data)
    assert crc32c_after(before, data) == crc32c_of_part(data, 0, length, before) == google_crc32c.extend(before, data)


def document_of(length: int, chance: random.Random) -> bytes:
    """Bytes that begin with their own length, as BSON does."""
    return length.to_bytes(4, "little") + chance.randbytes(length - 4)


SHORT = (7, document_of(40, random.Random(1)), 1_700_000_000, -1)


def test_the_register_after_a_word_is_that_after_its_bytes() -> None:
    for word in (0, 1, -1, 0x0123456789ABCDEF, -(1 << 63)):
        before = crc32c(b"before")
        expected = crc32c_after(before, word.to_bytes(8, "little", signed=True))
        assert register_after(before ^ 0xFFFFFFFF, word) ^ 0xFFFFFFFF == expected


def test_the_sums_that_are_stored_stay_the_same() -> None:
    """They stand in data folders."""
    assert record_sum(*RECORD) == 1_717_089_686
    assert record_sum(1, b"", 0, 0) == 506_952_113
    assert record_sum((1 << 63) - 1, b"x", 1 << 33, -1) == -2_067_371_314
    tail = stored_sum(7, b"\x05\0\0\0\0", 1_700_000_000, -1)
    assert isinstance(tail, bytes) and tail.hex() == "070000000000000000f15365ffffffffce008413"
    assert tail[:16] == (7).to_bytes(8, "little") + (1_700_000_000).to_bytes(4, "little") + b"\xff\xff\xff\xff"


def test_sums_are_signed_numbers_of_32_bits() -> None:
    sums = [record_sum(record_id, b"x" * record_id, record_id, 0) for record_id in range(1, 200)]
    assert min(sums) < 0 < max(sums)
    assert all(-(1 << 31) <= found < 1 << 31 for found in sums)
    assert len(set(sums)) == len(sums)


def test_every_changed_bit_changes_the_sum() -> None:
    record_id, document, ts, ttl = RECORD
    right = record_sum(*RECORD)
    for bit in range(8 * len(document)):
        changed = bytearray(document)
        changed[bit // 8] ^= 1 << bit % 8
        assert record_sum(record_id, bytes(changed), ts, ttl) != right
    for bit in range(32):
        assert record_sum(record_id ^ 1 << bit, document, ts, ttl) != right
        assert record_sum(record_id, document, ts ^ 1 << bit, ttl) != right
        assert record_sum(record_id, document, ts, ttl ^ 1 << bit) != right
    assert record_sum(record_id, document, ttl, ts) != right


@pytest.mark.parametrize(
    "stored",
    [
        (7, b"other document", 1, 0),
        (7, "a text", 1, 0),
        (7, None, 1, 0),
        (7, b"document", 1.5, 0),
        (7, b"document", 1, None),
        (8, b"document", 1, 0),
    ],
)
def test_a_record_that_is_not_as_it_was_written_is_refused(stored: tuple[object, ...]) -> None:
    found = record_sum(7, b"document", 1, 0)
    with pytest.raises(DamagedRecord, match=f"record {stored[0]} of things is damaged"):
        checked_record("things", (*stored, found))
    assert checked_record("things", (7, b"document", 1, 0, found)) == (7, b"document", 1, 0)
    assert checked_record("things", (7, b"other", 1, 0, None)) == (7, b"other", 1, 0)


def test_sums_of_a_batch_are_those_of_its_records() -> None:
    rows = summed_rows(5, [(b"a", 1, 0), (b"b", 2, 3)])
    assert rows == [(b"a", 1, 0, record_sum(5, b"a", 1, 0)), (b"b", 2, 3, record_sum(6, b"b", 2, 3))]
    stored: list[Any] = [(5, *rows[0]), (6, b"c", *rows[1][1:])]
    assert damaged_records(stored) == [6]
    document = b"\x05\0\0\0\0"
    assert summed_rows(5, [(document, 1, 0)]) == [(document, 1, 0, stored_sum(5, document, 1, 0))]
    assert summed_updates([(5, document, 1, 0)]) == [(document, 1, 0, stored_sum(5, document, 1, 0), 5)]


@pytest.mark.parametrize(
    ("document", "ts", "ttl", "has_tail"),
    [
        (b"\x05\0\0\0\0", 0, 0, True),
        (b"\x05\0\0\0\0", (1 << 32) - 1, (1 << 31) - 1, True),
        (b"\x05\0\0\0\0", 1, -(1 << 31), True),
        (b"\x05\0\0\0\0", 1 << 32, 0, False),
        (b"\x05\0\0\0\0", -1, 0, False),
        (b"\x05\0\0\0\0", 1, 1 << 31, False),
        (b"\x05\0\0\0\0", 1, -(1 << 31) - 1, False),
        (b"\x05\0\0\0", 1, 0, False),
        (b"\x06\0\0\0\0", 1, 0, False),
        (b"", 1, 0, False),
        (document_of(MOST_JOINED_BYTES, random.Random(2)), 1, 0, True),
        (document_of(MOST_JOINED_BYTES + 1, random.Random(2)), 1, 0, False),
    ],
)
def test_a_record_has_a_tail_if_that_can_tell_and_cut_it(document: bytes, ts: int, ttl: int, has_tail: bool) -> None:
    found = stored_sum(1, document, ts, ttl)
    assert isinstance(found, bytes) == has_tail
    row = (1, document, ts, ttl, found)
    assert checked_record("things", row) == checked_records("things", [row])[0] == row[:4]
    if isinstance(found, bytes):
        assert records_of(document + found, 1, True) == ([row[:4]], len(document), len(document))


def _joined(rows: list[Any]) -> tuple[bytes, int]:
    """What SQLite gives for these rows."""
    return b"".join([row[1] + row[4] for row in rows]), len(rows)


def _rows_with_tails(count: int) -> list[Any]:
    chance = random.Random(count)
    rows: list[Any] = []
    for i in range(count):
        record = (i * 3 + 1, document_of(chance.choice([5, 20, 300, 4096, 8000]), chance), 1_700_000_000 + i, i % 3 - 1)
        rows.append((*record, stored_sum(*record)))
    return rows


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_joined_records_are_cut(count: int) -> None:
    rows = _rows_with_tails(count)
    lengths = [len(row[1]) for row in rows]
    expected = [row[:4] for row in rows]
    assert records_of(*_joined(rows), True) == (expected, max(lengths, default=0), sum(lengths))
    rows.reverse()
    assert records_of(*_joined(rows), False) == (expected[::-1], max(lengths, default=0), sum(lengths))
    if count > 1:
        assert records_of(*_joined(rows), True) is None


def test_every_changed_bit_of_joined_records_is_found() -> None:
    rows = _rows_with_tails(3)
    joined, count = _joined(rows)
    for bit in range(8 * len(joined)):
        changed = bytearray(joined)
        changed[bit // 8] ^= 1 << bit % 8
        assert records_of(bytes(changed), count, True) is None
    assert records_of(joined, count + 1, True) is None


def test_a_part_of_joined_records_is_none() -> None:
    rows = _rows_with_tails(5)
    joined, count = _joined(rows)
    for length in range(len(joined)):
        assert records_of(joined[:length], count, True) is None
    for i in range(5):
        assert records_of(_joined(rows[:i] + rows[i + 1 :])[0], count, True) is None
    moved = [*rows[:2], rows[3], rows[2], rows[4]]
    assert records_of(*_joined(moved), True) is None
    assert records_of(joined + b"1234", count, True) is None  # a number behind them, as text
    # Right by its CRC, but nothing that could be cut.
    for length in (-1, 0, 4, 100, (1 << 31) - 1):
        data = length.to_bytes(4, "little", signed=True) + bytes(20)
        whole = data + (crc32c_after(0xFFFFFFFF, data) ^ 0xFFFFFFFF).to_bytes(4, "little")
        assert records_of(whole, 1, True) is None


def test_every_changed_bit_of_a_tail_is_found() -> None:
    record_id, document, ts, ttl = SHORT
    tail = stored_sum(*SHORT)
    assert isinstance(tail, bytes)
    for bit in range(8 * TAIL_BYTES):
        changed = bytearray(tail)
        changed[bit // 8] ^= 1 << bit % 8
        _refused([(record_id, document, ts, ttl, bytes(changed))], record_id)
    for other in (b"", tail[:-1], tail + b"\0", record_sum(8, document, ts, ttl)):
        _refused([(record_id, document, ts, ttl, other)], record_id)
    # A number is right as well: rows of an older folder have it.
    row = (record_id, document, ts, ttl, record_sum(*SHORT))
    assert checked_records("things", [row]) == [SHORT]


def _rows(count: int, lengths: list[int]) -> list[StoredRow]:
    """Rows of a store: some without a sum, some with a tail."""
    chance = random.Random(count)
    rows: list[StoredRow] = []
    for i in range(count):
        record = (i * 7919 + 1, chance.randbytes(chance.choice(lengths)), 1_700_000_000 + i, chance.choice([0, -1, 60]))
        if chance.random() < 0.5 and len(record[1]) >= 5:
            record = (record[0], document_of(len(record[1]), chance), *record[2:])
        found: Sum | None = None
        if chance.random() >= 0.1:
            found = stored_sum(*record) if chance.random() < 0.8 else record_sum(*record)
        rows.append((*record, found))
    return rows


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 512])
@pytest.mark.parametrize("lengths", [[0, 1, 5], [300], [2000, 2001], [10, 4095, 4096, 40_000]])
def test_records_of_right_sums_are_those_of_their_rows(count: int, lengths: list[int]) -> None:
    rows = _rows(count, lengths)
    assert checked_records("things", rows) == [row[:4] for row in rows]
    entries = [(b"key", *row) for row in rows]
    assert checked_entries("things", entries) == [entry[:5] for entry in entries]


def _refused(rows: list[StoredRow], record_id: int) -> None:
    with pytest.raises(DamagedRecord, match=f"record {record_id} of things is damaged"):
        checked_records("things", rows)
    with pytest.raises(DamagedRecord, match=f"record {record_id} of things is damaged"):
        checked_entries("things", [(b"key", *row) for row in rows])


def test_every_changed_bit_of_a_batch_is_found_and_its_record_named() -> None:
    rows = [(*row[:4], record_sum(*row[:4])) for row in _rows(6, [20, 5000])]
    for i, (record_id, document, ts, ttl, stored) in enumerate(rows):
        for bit in range(0, 8 * len(document), 1 if len(document) < 100 else 997):
            changed = bytearray(document)
            changed[bit // 8] ^= 1 << bit % 8
            _refused([*rows[:i], (record_id, bytes(changed), ts, ttl, stored), *rows[i + 1 :]], record_id)
        for bit in range(32):
            _refused([*rows[:i], (record_id, document, ts ^ 1 << bit, ttl, stored), *rows[i + 1 :]], record_id)
            _refused([*rows[:i], (record_id, document, ts, ttl ^ 1 << bit, stored), *rows[i + 1 :]], record_id)
        for bit in range(63):
            other = record_id ^ 1 << bit
            _refused([*rows[:i], (other, document, ts, ttl, stored), *rows[i + 1 :]], other)
            _refused([*rows[:i], (record_id, document, ts, ttl, stored ^ 1 << bit), *rows[i + 1 :]], record_id)


@pytest.mark.parametrize("sum_of", [record_sum, stored_sum])
def test_records_in_each_others_places_are_found(sum_of: Callable[[int, bytes, int, int], Sum]) -> None:
    """Of one length, so that what is wrong with the one is also wrong with the other."""
    chance = random.Random(8)
    records = [(i * 7919 + 1, document_of(64, chance), 1_700_000_000 + i, i % 3 - 1) for i in range(8)]
    rows: list[tuple[int, bytes, int, int, Sum]] = [(*record, sum_of(*record)) for record in records]
    for i in range(len(rows)):
        for j in range(i):
            moved: list[StoredRow] = list(rows)
            moved[i], moved[j] = (rows[i][0], *rows[j][1:]), (rows[j][0], *rows[i][1:])
            _refused(moved, rows[j][0])
            moved[i], moved[j] = (*rows[i][:4], rows[j][4]), (*rows[j][:4], rows[i][4])
            _refused(moved, rows[j][0])


@pytest.mark.parametrize(
    "row", [(2, "a text", 1, 0, 5), (2, None, 1, 0, 5), (2, b"", 1.5, 0, 5), (2, b"", 1, None, 5), (2, b"", 1, 0, 1.5)]
)
def test_a_value_of_another_type_in_a_batch_is_found_and_its_record_named(row: Any) -> None:
    _refused([(1, b"", 1, 0, record_sum(1, b"", 1, 0)), row, (3, b"", 1, 0, None)], 2)
