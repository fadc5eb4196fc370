"""`max_bytes`: the limit of the total length of a batch, and how a reader learns whether there is more."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mongottl.storage.interface import StorageEngine
from mongottl.storage.stores import (
    MAX_RECORD_ID,
    NO_BYTE_LIMIT,
    ExpiryIndex,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
)

Opener = Callable[[], StorageEngine]

LENGTHS = (10, 20, 300, 5, 5, 0, 40, 1000, 1, 1)


def filled(engine: StorageEngine, records: list[NewRecord]) -> tuple[RecordStore, SortedDataInterface]:
    """A store with these records, and sorted data with one entry for each, in the opposite order."""
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        data = engine.create_sorted_data("keys", False)
        ids = store.insert_records(records)
        data.insert([(b"%06d" % (1000 - record_id), record_id) for record_id in ids])
        unit.commit()
    return store, data


def of_lengths(*lengths: int) -> list[NewRecord]:
    return [(b"x" * length, 1000 + place, 0) for place, length in enumerate(lengths)]


def ids(records: list[Record]) -> list[int]:
    return [record[0] for record in records]


def test_a_scan_ends_with_the_record_that_reaches_the_limit(engine: StorageEngine) -> None:
    store, _ = filled(engine, of_lengths(*LENGTHS))
    for after, max_bytes, expected in (
        (0, 1, [1]),  # one at least
        (0, 10, [1]),
        (0, 11, [1, 2]),
        (0, 30, [1, 2]),
        (0, 31, [1, 2, 3]),
        (2, 299, [3]),
        (3, 11, [4, 5, 6, 7]),
        (7, 1, [8]),
    ):
        records, more = store.scan(after, 100, True, max_bytes)
        assert (ids(records), more) == (expected, True)
    assert ids(store.scan(0, 2, True, 31)[0]) == [1, 2]  # the number is a limit too
    assert ids(store.scan(MAX_RECORD_ID, 100, False, 3)[0]) == [10, 9, 8]
    assert ids(store.scan(8, 100, False, 45)[0]) == [7, 6, 5]
    records, more = store.scan(8, 100, True, 3)
    assert (ids(records), more) == ([9, 10], False)
    assert store.scan(10, 100, True, 1) == ([], False)
    assert store.scan(1, 100, False, 1) == ([], False)


def test_index_scans_and_expiry_scans_end_likewise(engine: StorageEngine) -> None:
    store, data = filled(engine, of_lengths(*LENGTHS))
    rows, more = data.scan_fetch(store, KeyRange(b"", b"~"), None, 100, 3)
    assert ([row[1] for row in rows], more) == ([10, 9, 8], True)
    rows, more = data.scan_fetch(store, KeyRange(b"", b"~"), (b"%06d" % 992, 8), 100, 45)
    assert ([row[1] for row in rows], more) == ([7, 6, 5], True)
    rows, more = data.scan_fetch(store, KeyRange(b"", b"~", False), None, 100, 31)
    assert ([row[1] for row in rows], more) == ([1, 2, 3], True)
    rows, more = data.scan_fetch(store, KeyRange(b"", b"%06d" % 992), None, 100, 5)
    assert ([row[1] for row in rows], more) == ([10, 9], False)
    assert data.scan_fetch(store, KeyRange(b"", b"%06d" % 990), None, 100, 1) == ([], False)
    assert ids(store.due(ExpiryIndex.BY_DEFAULT, 1006, 100, 31)) == [1, 2, 3]
    assert ids(store.due(ExpiryIndex.BY_DEFAULT, 1001, 100, 10_000)) == [1, 2]
    with engine.unit_of_work() as unit:
        for record in store.scan(0, 100)[0]:
            store.update_record(record, (record[0], record[1], 1000 - record[0], 10))
        unit.commit()
    assert ids(store.due(ExpiryIndex.BY_OWN, 1009, 100, 1001)) == [10, 9, 8]
    assert ids(store.due(ExpiryIndex.BY_OWN, 1009, 100, 1)) == [10]
    assert store.due(ExpiryIndex.BY_OWN, 999, 100, 1) == []


@pytest.mark.parametrize("count", [2, 3, 40, 200])
def test_look_ups_tell_how_many_ids_they_have_answered(engine: StorageEngine, count: int) -> None:
    store, _ = filled(engine, of_lengths(*[100] * count))
    wanted = [n for n in range(count + 5, 0, -1) if n % 7]
    there = [n for n in wanted if n <= count]
    assert store.find_records(wanted, 101)[0] == [store.find_record(n) for n in there[:2]]
    assert store.find_records(wanted, 1)[1] == wanted.index(there[0]) + 1
    found: list[int] = []
    left = wanted
    while left:
        records, taken = store.find_records(left, 350)
        assert len(records) <= 4
        assert taken > 0
        found.extend(ids(records))
        left = left[taken:]
    assert found == there
    twice = [1, 1, 2, 2, 1, 1]
    assert store.find_records(twice, 150) == ([store.find_record(1)] * 2, 2)
    assert store.find_records([count + 1, count + 2], 1) == ([], 2)


def test_a_record_counts_as_often_as_it_is_given(engine: StorageEngine) -> None:
    """A multikey index has several entries for one record. The whole store is smaller than the limits here."""
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        data = engine.create_sorted_data("keys", False)
        store.insert_records(of_lengths(100, 5))
        data.insert([(b"%06d" % number, 1) for number in range(50)])
        unit.commit()
    rows, more = data.scan_fetch(store, KeyRange(b"", b"~"), None, 40, 250)
    assert ([row[0] for row in rows], more) == ([b"000000", b"000001", b"000002"], True)
    rows, more = data.scan_fetch(store, KeyRange(b"", b"~", False), None, 40, 250)
    assert ([row[0] for row in rows], more) == ([b"000049", b"000048", b"000047"], True)
    records, taken = store.find_records([1] * 40, 250)
    assert (ids(records), taken) == ([1, 1, 1], 3)


def test_byte_limits_apply_to_records_of_an_earlier_process(persistent: Opener) -> None:
    engine = persistent()
    filled(engine, of_lengths(*[10] * 300, 5000, *[10] * 300, 4000, *[10] * 50))
    engine.close()
    engine = persistent()
    store = engine.record_store("records")
    data = engine.sorted_data("keys", False)
    for _ in range(2):  # the second time, the engine knows the lengths
        assert ids(store.scan(299, 256, True, 4990)[0]) == [300, 301]
        rows, _ = data.scan_fetch(store, KeyRange(b"", b"~"), None, 256, 4000)
        assert rows[-1][1] == 602
        after, more, batches = 0, True, 0
        while more:
            records, more = store.scan(after, 256, True, 4990)
            assert sum([len(record[1]) for record in records[:-1]]) < 4990
            after = records[-1][0]
            batches += 1
        assert (after, batches) == (652, 4)
    with engine.unit_of_work() as unit:
        store.insert_record(b"x" * 9000, 1000, 0)
        store.update_record(records[-1], (652, b"x" * 9000, 1000, 0))
        unit.commit()
    assert ids(store.scan(650, 256, True, 4990)[0]) == [651, 652]
    assert ids(store.scan(652, 256, True, 4990)[0]) == [653]
    engine.close()


@pytest.mark.parametrize("seed", range(5))
def test_reading_on_gives_everything_once_whatever_the_limits(engine: StorageEngine, seed: int) -> None:
    generator = random.Random(seed)
    lengths = [generator.choice((0, 1, 50, 50, 3000)) for _ in range(400)]
    store, data = filled(engine, of_lengths(*lengths))
    every, end = store.scan(0, 1000)
    assert (len(every), end) == (400, False)
    for forward in (True, False):
        expected = every if forward else every[::-1]
        position = 0 if forward else MAX_RECORD_ID
        read: list[Record] = []
        more = True
        while more:
            limit, max_bytes = generator.randint(1, 90), generator.choice((1, 60, 4000, NO_BYTE_LIMIT))
            records, more = store.scan(position, limit, forward, max_bytes)
            assert records or not more
            read.extend(records)
            position = records[-1][0] if records else position
        assert read == expected
        after: KeyEntry | None = None
        fetched: list[FetchedEntry] = []
        more = True
        while more:
            limit, max_bytes = generator.randint(1, 90), generator.choice((1, 60, 4000, NO_BYTE_LIMIT))
            rows, more = data.scan_fetch(store, KeyRange(b"", b"~", forward), after, limit, max_bytes)
            assert rows or not more
            fetched.extend(rows)
            after = rows[-1][:2] if rows else after
        assert [row[1:] for row in fetched] == expected[::-1]


@pytest.mark.parametrize("kind", ["memory", "sqlite-memory", "sqlite-file"])
def test_an_entry_without_a_record_is_no_end(
    engine_opener: Callable[[str, Path], StorageEngine], kind: str, tmp_path: Path
) -> None:
    engine = engine_opener(kind, tmp_path / "data")
    store, data = filled(engine, of_lengths(*[1] * 20))
    with engine.unit_of_work() as unit:
        store.delete_records(store.scan(4, 12)[0])  # entries 5 to 16 stay
        unit.commit()
    for limit in (1, 3, 4, 5, 100):
        for forward in (True, False):
            after: KeyEntry | None = None
            found: list[int] = []
            more = True
            while more:
                rows, more = data.scan_fetch(store, KeyRange(b"", b"~", forward), after, limit, 2)
                assert rows or not more
                found.extend([row[1] for row in rows])
                after = rows[-1][:2] if rows else after
            assert found == ([20, 19, 18, 17, 4, 3, 2, 1] if forward else [1, 2, 3, 4, 17, 18, 19, 20])
    engine.close()
