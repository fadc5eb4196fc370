"""Checksums of records: the same by every implementation, and another one for every changed bit."""

import random
from typing import Any

import google_crc32c
import pytest

from mongottl.storage.checksums import (
    StoredRow,
    checked_entries,
    checked_record,
    checked_records,
    crc32c_after,
    damaged_records,
    record_sum,
    summed_rows,
)
from mongottl.storage.interface import DamagedRecord
from mongottl.wire.crc32c import crc32c, crc32c_of_part

RECORD = (7, b"some document, long enough for several words", 1_700_000_000, 0)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, 1000])
def test_all_implementations_agree(length: int) -> None:
    data = random.Random(length).randbytes(length)
    before = 0x12345678
    assert crc32c_after(0, data) == crc32c(data) == google_crc32c.value(data)
    assert crc32c_after(before, data) == crc32c_of_part(data, 0, length, before) == google_crc32c.extend(before, data)


def test_the_sums_that_are_stored_stay_the_same() -> None:
    """They stand in data folders."""
    assert record_sum(*RECORD) == 1_717_089_686
    assert record_sum(1, b"", 0, 0) == 506_952_113
    assert record_sum((1 << 63) - 1, b"x", 1 << 33, -1) == -2_067_371_314


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
    stored: list[StoredRow] = [(5, *rows[0]), (6, b"c", *rows[1][1:])]
    assert damaged_records(stored) == [6]


def _rows(count: int, lengths: list[int]) -> list[StoredRow]:
    """Rows of a store, some of them without a sum."""
    chance = random.Random(count)
    rows: list[StoredRow] = []
    for i in range(count):
        record = (i * 7919 + 1, chance.randbytes(chance.choice(lengths)), 1_700_000_000 + i, chance.choice([0, -1, 60]))
        rows.append((*record, None if chance.random() < 0.1 else record_sum(*record)))
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


def test_records_in_each_others_places_are_found() -> None:
    """Of one length, so that what is wrong with the one is also wrong with the other."""
    rows: list[tuple[int, bytes, int, int, int]] = [(*row[:4], record_sum(*row[:4])) for row in _rows(8, [64])]
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
