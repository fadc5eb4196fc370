"""Checksums of records: the same by every implementation, and another one for every changed bit."""

import random

import google_crc32c
import pytest

from mongottl.storage.checksums import StoredRow, checked_record, crc32c_after, damaged_records, record_sum, summed_rows
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
