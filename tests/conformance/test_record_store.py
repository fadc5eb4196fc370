"""Record stores: records are found by id, scanned in order, and counted."""

import pytest

from mongottl.storage.errors import WriteConflict
from mongottl.storage.interface import StorageEngine
from mongottl.storage.stores import MAX_RECORD_ID, ExpiryIndex, KeyRange, NewRecord, Record, RecordStore


def new_store(engine: StorageEngine, records: list[NewRecord] | None = None) -> RecordStore:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        if records:
            store.insert_records(records)
        unit.commit()
    return store


def numbered(count: int) -> list[NewRecord]:
    return [(b"document %d" % n, 1000 + n, 0) for n in range(1, count + 1)]


def test_insert_gives_ascending_ids_from_one(engine: StorageEngine) -> None:
    store = new_store(engine)
    with engine.unit_of_work() as unit:
        assert store.insert_records([(b"a", 1, 0), (b"b", 2, 5), (b"c", 3, -1)]) == [1, 2, 3]
        assert store.insert_record(b"d", 4, 0) == 4
        assert store.insert_records([(b"e", 5, 0)]) == [5]
        assert store.insert_records([]) == []
        unit.commit()
    assert store.scan(0, 10)[0] == [
        (1, b"a", 1, 0),
        (2, b"b", 2, 5),
        (3, b"c", 3, -1),
        (4, b"d", 4, 0),
        (5, b"e", 5, 0),
    ]


def test_ids_are_not_given_twice(engine: StorageEngine) -> None:
    store = new_store(engine, numbered(3))
    with engine.unit_of_work() as unit:
        store.delete_records(store.scan(0, 10)[0])
        unit.commit()
    with engine.unit_of_work() as unit:
        first = store.insert_record(b"x", 1, 0)
        second, third = store.insert_records([(b"y", 1, 0), (b"z", 1, 0)])
        unit.commit()
    assert 3 < first < second < third


def test_find_one_and_none(engine: StorageEngine) -> None:
    store = new_store(engine, numbered(2))
    assert store.find_record(2) == (2, b"document 2", 1002, 0)
    assert store.find_record(3) is None
    assert store.find_record(MAX_RECORD_ID) is None


@pytest.mark.parametrize("count", [0, 1, 3, 4, 63, 64, 65, 200])
def test_find_many_keeps_the_order_given_and_leaves_out_what_is_absent(engine: StorageEngine, count: int) -> None:
    store = new_store(engine, numbered(150))
    wanted = [(n * 37) % 211 + 1 for n in range(count)]
    assert [record[0] for record in store.find_records(wanted)[0]] == [n for n in wanted if n <= 150]


def test_find_many_gives_a_record_twice_when_asked_twice(engine: StorageEngine) -> None:
    store = new_store(engine, numbered(5))
    assert [record[0] for record in store.find_records([2, 2, 1, 5, 2])[0]] == [2, 2, 1, 5, 2]


def test_scan_goes_on_behind_a_position_both_ways(engine: StorageEngine) -> None:
    store = new_store(engine, numbered(10))
    assert [record[0] for record in store.scan(0, 4)[0]] == [1, 2, 3, 4]
    assert [record[0] for record in store.scan(4, 4)[0]] == [5, 6, 7, 8]
    assert [record[0] for record in store.scan(8, 4)[0]] == [9, 10]
    assert store.scan(10, 4)[0] == []
    assert [record[0] for record in store.scan(MAX_RECORD_ID, 3, False)[0]] == [10, 9, 8]
    assert [record[0] for record in store.scan(8, 3, False)[0]] == [7, 6, 5]
    assert [record[0] for record in store.scan(3, 3, False)[0]] == [2, 1]
    assert store.scan(1, 3, False)[0] == []


def test_scan_survives_what_is_deleted_and_inserted_meanwhile(engine: StorageEngine) -> None:
    store = new_store(engine, numbered(9))
    seen: list[int] = []
    after = 0
    while batch := store.scan(after, 3)[0]:
        seen.extend(record[0] for record in batch)
        after = batch[-1][0]
        with engine.unit_of_work() as unit:
            store.delete_records(batch)  # the position itself goes too
            if after == 6:
                store.delete_records(store.find_records([7])[0])
                store.insert_record(b"late", 1, 0)
            unit.commit()
    assert seen == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert store.count() == 0


def test_update_replaces_document_and_facts(engine: StorageEngine) -> None:
    store = new_store(engine, numbered(100))
    old = store.find_records([7, 3, 50])[0]
    new: list[Record] = [(7, b"seven", 9, 4), (3, b"", 8, -1), (50, b"x" * 5000, 7, 0)]
    with engine.unit_of_work() as unit:
        store.update_records(old, new)
        store.update_records([], [])
        unit.commit()
    assert store.find_records([7, 3, 50])[0] == new
    assert store.find_record(8) == (8, b"document 8", 1008, 0)
    with engine.unit_of_work() as unit:
        store.update_record(new[0], (7, b"again", 10, 0))
        unit.commit()
    assert store.find_record(7) == (7, b"again", 10, 0)


def test_count_and_size_follow_every_write(engine: StorageEngine) -> None:
    store = new_store(engine)
    assert (store.count(), store.size_bytes()) == (0, 0)
    with engine.unit_of_work() as unit:
        store.insert_records([(b"aa", 1, 0), (b"bbb", 1, 0), (b"", 1, 0)])
        assert (store.count(), store.size_bytes()) == (3, 5)
        store.insert_record(b"cccc", 1, 0)
        assert (store.count(), store.size_bytes()) == (4, 9)
        store.update_record((1, b"aa", 1, 0), (1, b"a", 1, 0))
        store.update_records([(2, b"bbb", 1, 0)], [(2, b"bbbbbb", 1, 0)])
        assert (store.count(), store.size_bytes()) == (4, 11)
        store.delete_records([(2, b"bbbbbb", 1, 0), (3, b"", 1, 0)])
        store.delete_record((4, b"cccc", 1, 0))
        store.delete_records([])
        unit.commit()
    assert (store.count(), store.size_bytes()) == (1, 1)


def test_documents_are_any_bytes(engine: StorageEngine) -> None:
    documents = [b"", b"\x00", bytes(range(256)), b"\xff" * 3000, b"SELECT '", b"\x00" * (1 << 20)]
    store = new_store(engine, [(document, 0, 0) for document in documents])
    assert [record[1] for record in store.scan(0, 10)[0]] == documents


def test_facts_at_the_ends_of_their_ranges(engine: StorageEngine) -> None:
    records: list[NewRecord] = [(b"", 0, 2**31 - 1), (b"", 2**40, 2**31 - 1), (b"", -5, 0), (b"", 2**40, -1)]
    store = new_store(engine, records)
    assert [record[1:] for record in store.scan(0, 10)[0]] == records
    assert store.due_seconds(ExpiryIndex.BY_OWN, -(2**62), 10) == [2**31 - 1, 2**40 + 2**31 - 1]


def test_writes_to_missing_records_conflict_and_rollback_restores_the_counters(engine: StorageEngine) -> None:
    store = new_store(engine, numbered(3))
    count, size = store.count(), store.size_bytes()
    gone = (9, b"gone", 1, 0)
    one = store.scan(0, 1)[0][0]
    for attempt in range(4):
        with pytest.raises(WriteConflict), engine.unit_of_work() as unit:
            if attempt == 0:
                store.update_records([one, gone], [(1, b"longer than before", 1, 0), gone])
            elif attempt == 1:
                store.update_record(gone, gone)
            elif attempt == 2:
                store.delete_records([one, gone])
            else:
                store.delete_record(gone)
            unit.commit()
        assert (store.count(), store.size_bytes()) == (count, size)
        assert store.scan(0, 1)[0] == [one]


STALE = (
    (2, b"document 3", 1002, 0),  # other bytes of the same length
    (2, b"document 2 and more", 1002, 0),
    (2, b"document 2", 1003, 0),  # another _ts
    (2, b"document 2", 1002, 7),  # another ttl
    (2, b"", 1002, 0),
)


@pytest.mark.parametrize("stale", STALE)
def test_writes_to_records_changed_since_the_read_conflict(engine: StorageEngine, stale: Record) -> None:
    store = new_store(engine, numbered(3))
    first, second, third = before = store.scan(0, 10)[0]
    count, size = store.count(), store.size_bytes()
    changed: Record = (2, b"lost update", 2000, 0)
    for attempt in range(4):
        with pytest.raises(WriteConflict), engine.unit_of_work() as unit:
            if attempt == 0:
                store.update_record(stale, changed)
            elif attempt == 1:
                store.update_records([first, stale, third], [(1, b"longer than before", 1, 0), changed, third])
            elif attempt == 2:
                store.delete_record(stale)
            else:
                store.delete_records([first, stale, third])
            unit.commit()
        assert (store.count(), store.size_bytes()) == (count, size)
        assert store.scan(0, 10)[0] == before
        assert store.count_due(ExpiryIndex.BY_DEFAULT, 10_000) == 3
    with engine.unit_of_work() as unit:
        store.update_record(second, changed)
        unit.commit()
    assert store.find_record(2) == changed


def _read_all(engine: StorageEngine, store: RecordStore, how: str) -> list[Record]:
    """The records 1 to 8 by one of the reads that return several."""
    if how == "scan":
        return store.scan(0, 10)[0]
    if how == "find_records":
        return store.find_records(list(range(1, 9)))[0]
    if how == "due":
        return store.due(ExpiryIndex.BY_DEFAULT, 10_000, 10)
    entries, _ = engine.sorted_data("by_id", True).scan_fetch(store, KeyRange(b"", b"\xff"), None, 10)
    return [entry[1:] for entry in entries]


@pytest.mark.parametrize("how", ["scan", "find_records", "due", "scan_fetch"])
@pytest.mark.parametrize("change", ["one", "several", "delete", "same unit", "rolled back"])
def test_a_batch_conflicts_if_one_of_its_records_was_changed_after_it_was_read(
    engine: StorageEngine, how: str, change: str
) -> None:
    store = new_store(engine, numbered(8))
    with engine.unit_of_work() as unit:
        engine.create_sorted_data("by_id", True).insert([(b"%d" % number, number) for number in range(1, 9)])
        unit.commit()
    fifth: Record = (5, b"document 5", 1005, 0)
    changed: Record = (5, b"document 9", 1005, 0)
    read = _read_all(engine, store, how)
    assert read[4] == fifth
    if change in ("one", "several", "delete"):
        with engine.unit_of_work() as unit:
            if change == "one":
                store.update_record(fifth, changed)
            elif change == "several":
                store.update_records(read[:6], [*read[:4], changed, read[5]])
            else:
                store.delete_record(fifth)
                engine.sorted_data("by_id", True).remove_one(b"5", 5)
            unit.commit()
    elif change == "rolled back":
        with engine.unit_of_work():
            store.update_record(fifth, changed)
            read = _read_all(engine, store, how)
        assert read[4] == changed
    for delete in (False, True):
        with pytest.raises(WriteConflict), engine.unit_of_work() as unit:
            if change == "same unit":
                store.update_record(fifth, changed)
            if delete:
                store.delete_records(read)
            else:
                store.update_records(read, read)
            unit.commit()
    read = _read_all(engine, store, how)
    with engine.unit_of_work() as unit:
        store.update_records(read[1:6], read[1:6])
        store.delete_records(read[:7])
        unit.commit()
    assert store.scan(0, 10)[0] == read[7:]


def test_records_equal_to_those_stored_are_accepted_whatever_objects_they_are(engine: StorageEngine) -> None:
    store = new_store(engine, [(b"x" * 100_000, 1000, 60), (b"y", 2**40, -1)])
    for record in store.scan(0, 10)[0]:
        record_id, document, ts, ttl = record
        again: Record = (int(str(record_id)), bytes(bytearray(document)), int(str(ts)), int(str(ttl)))
        with engine.unit_of_work() as unit:
            store.update_record(again, (record_id, b"z", ts, ttl))
            unit.commit()
    with engine.unit_of_work() as unit:
        store.delete_records([(1, b"z", 1000, 60), (2, b"z", 2**40, -1)])
        unit.commit()
    assert store.count() == 0


def test_a_unit_of_work_reads_its_own_writes_before_it_changes_them_again(engine: StorageEngine) -> None:
    store = new_store(engine, numbered(1))
    first: Record = (1, b"document 1", 1001, 0)
    second: Record = (1, b"twice", 1002, 0)
    with engine.unit_of_work() as unit:
        store.update_record(first, second)
        store.update_record(second, (1, b"thrice", 1003, 0))
        unit.commit()
    with pytest.raises(WriteConflict), engine.unit_of_work() as unit:
        store.update_record((1, b"thrice", 1003, 0), second)
        store.update_record((1, b"thrice", 1003, 0), first)
        unit.commit()
    assert store.find_record(1) == (1, b"thrice", 1003, 0)


def test_a_write_outside_a_unit_of_work_is_refused(engine: StorageEngine) -> None:
    store = new_store(engine, numbered(1))
    for write in range(3):
        with pytest.raises((AssertionError, RuntimeError)):
            if write == 0:
                store.insert_record(b"x", 1, 0)
            elif write == 1:
                store.insert_records([(b"x", 1, 0), (b"y", 1, 0)])
            else:
                store.delete_records(store.scan(0, 1)[0])
    assert [record[0] for record in store.scan(0, 10)[0]] == [1]
