"""The two expiry indexes: which records are due, in which order, and at which seconds."""

from collections.abc import Callable

from mongottl.storage.interface import StorageEngine
from mongottl.storage.stores import FIRST_DUE, DueEntry, ExpiryIndex, KeyRange, NewRecord, Record, RecordStore

Opener = Callable[[], StorageEngine]

BY_DEFAULT = ExpiryIndex.BY_DEFAULT
BY_OWN = ExpiryIndex.BY_OWN

# Ids 1 to 8: three follow the default, four have their own ttl, one never expires.
RECORDS: list[NewRecord] = [
    (b"1", 100, 0),
    (b"2", 90, 20),  # due at 110
    (b"3", 50, 0),
    (b"4", 200, 1),  # due at 201
    (b"5", 10, -1),
    (b"6", 100, 0),
    (b"7", 10, 100),  # due at 110
    (b"8", 1, 2),  # due at 3
]


def filled(engine: StorageEngine) -> RecordStore:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        store.insert_records(RECORDS)
        unit.commit()
    return store


def ids(records: list[tuple[int, bytes, int, int]]) -> list[int]:
    return [record[0] for record in records]


def test_due_by_default_includes_its_last_second_and_is_ordered(engine: StorageEngine) -> None:
    store = filled(engine)
    assert ids(store.due(BY_DEFAULT, 49, 10)) == []
    assert store.due(BY_DEFAULT, 50, 10) == [(3, b"3", 50, 0)]
    assert ids(store.due(BY_DEFAULT, 99, 10)) == [3]
    assert ids(store.due(BY_DEFAULT, 100, 10)) == [3, 1, 6]
    assert ids(store.due(BY_DEFAULT, 100, 2)) == [3, 1]
    assert [store.count_due(BY_DEFAULT, s) for s in (49, 50, 99, 100, 10**12)] == [0, 1, 1, 3, 3]
    assert [store.count() - store.count_without_due({BY_DEFAULT: s}) for s in (49, 50, 99, 10**12)] == [0, 1, 1, 3]
    assert store.count_without_due({}) == store.count()


def test_many_stores_are_asked_at_once_for_what_is_due(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        for ident in ("other", "empty"):
            engine.create_record_store(ident)
        engine.record_store("other").insert_records([(b"1", 300, 0), (b"2", 10, 5)])
        unit.commit()
    filled(engine)
    for seconds, counts in (
        ({BY_DEFAULT: 49, BY_OWN: 2}, [0, 0, 0]),
        ({BY_DEFAULT: 50}, [1, 0, 0]),
        ({BY_OWN: 14}, [1, 0, 0]),
        ({BY_OWN: 15}, [1, 0, 1]),
        ({BY_DEFAULT: 100, BY_OWN: 110}, [6, 0, 1]),
        ({BY_DEFAULT: 300, BY_OWN: 201}, [7, 0, 2]),
        ({}, [0, 0, 0]),
    ):
        wanted = [(ident, seconds) for ident in ("records", "empty", "other")]
        assert engine.count_due(wanted) == counts
        assert engine.have_due(wanted) == [count > 0 for count in counts]
    assert engine.have_due([("other", {BY_OWN: 15}), ("records", {BY_OWN: 2}), ("records", {BY_OWN: 3})]) == [
        True,
        False,
        True,
    ]
    assert engine.count_due([]) == engine.have_due([]) == []


def test_many_indexes_are_asked_at_once_for_keys(engine: StorageEngine) -> None:
    long = b"k" * 5000
    with engine.unit_of_work() as unit:
        for ident, unique in (("a", False), ("b", True), ("c", False)):
            engine.create_sorted_data(ident, unique)
        engine.sorted_data("a", False).insert([(b"d", 1), (b"f", 2)])
        engine.sorted_data("b", True).insert([(b"e", 1), (long, 2)])
        unit.commit()
    for low, high, found in (
        (b"a", b"d", [False, False, False]),
        (b"a", b"e", [True, False, False]),
        (b"e", b"f", [False, True, False]),
        (b"d", b"f", [True, True, False]),
        (long, long + b"k", [False, True, False]),
        (long + b"k", b"z", [False, False, False]),
    ):
        for forward in (True, False):
            key_range = KeyRange(low, high, forward)
            wanted = [("a", False, key_range), ("b", True, key_range), ("c", False, key_range)]
            assert engine.have_keys(wanted) == found
    assert engine.have_keys([]) == []


def test_due_by_own_includes_its_last_second_and_is_ordered(engine: StorageEngine) -> None:
    store = filled(engine)
    assert ids(store.due(BY_OWN, 2, 10)) == []
    assert store.due(BY_OWN, 3, 10) == [(8, b"8", 1, 2)]
    assert ids(store.due(BY_OWN, 110, 10)) == [8, 2, 7]
    assert ids(store.due(BY_OWN, 110, 2)) == [8, 2]
    assert ids(store.due(BY_OWN, 201, 10)) == [8, 2, 7, 4]
    assert [store.count_due(BY_OWN, s) for s in (2, 3, 109, 110, 200, 201)] == [0, 1, 1, 3, 3, 4]
    assert [store.count() - store.count_without_due({BY_OWN: s}) for s in (2, 3, 109, 110, 200, 201)] == [
        0,
        1,
        1,
        3,
        3,
        4,
    ]


def test_due_entries_come_in_bounded_batches(engine: StorageEngine) -> None:
    store = filled(engine)
    assert store.due_entries(BY_DEFAULT, (-1, 0), 100, 10) == [(50, 3), (100, 1), (100, 6)]
    assert store.due_entries(BY_DEFAULT, (-1, 0), 99, 10) == [(50, 3)]
    assert store.due_entries(BY_DEFAULT, (-1, 0), 100, 2) == [(50, 3), (100, 1)]
    assert store.due_entries(BY_DEFAULT, (100, 1), 100, 2) == [(100, 6)]
    assert store.due_entries(BY_DEFAULT, (100, 6), 100, 2) == store.due_entries(BY_DEFAULT, (101, 0), 100, 2) == []
    assert store.due_entries(BY_OWN, (-1, 0), 201, 10) == [(3, 8), (110, 2), (110, 7), (201, 4)]
    assert store.due_entries(BY_OWN, (110, 2), 200, 10) == [(110, 7)]
    assert store.due_entries(BY_OWN, (3, 8), 201, 2) == [(110, 2), (110, 7)]
    assert store.due_entries(BY_OWN, FIRST_DUE, 201, 1) == [(3, 8)]
    assert store.due_entries(BY_OWN, (4, 0), 201, 1) == [(110, 2)]
    assert store.due_entries(BY_OWN, (110, 0), 201, 1) == [(110, 2)]


def test_distinct_seconds_come_in_bounded_batches(engine: StorageEngine) -> None:
    store = filled(engine)
    assert store.due_seconds(BY_DEFAULT, 0, 10) == [50, 100]
    assert store.due_seconds(BY_DEFAULT, 0, 1) == [50]
    assert store.due_seconds(BY_DEFAULT, 50, 10) == [100]
    assert store.due_seconds(BY_DEFAULT, 100, 10) == []
    assert store.due_seconds(BY_OWN, 0, 10) == [3, 110, 201]
    assert store.due_seconds(BY_OWN, 0, 2) == [3, 110]
    assert store.due_seconds(BY_OWN, 110, 2) == [201]
    assert store.due_seconds(BY_OWN, 201, 2) == []


def test_distinct_seconds_of_many_records(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        store.insert_records([(b"", n % 7, 0 if n % 2 else 1 + n % 3) for n in range(2000)])
        unit.commit()
    assert store.due_seconds(BY_DEFAULT, -1, 100) == list(range(7))
    assert store.due_seconds(BY_OWN, -1, 100) == list(range(1, 10))


def test_updates_and_deletions_move_records_between_the_indexes(engine: StorageEngine) -> None:
    store = filled(engine)
    with engine.unit_of_work() as unit:
        store.update_records(store.find_records([1, 2, 5])[0], [(1, b"1", 100, 7), (2, b"2", 95, 0), (5, b"5", 11, 0)])
        store.delete_records(store.find_records([3, 8])[0])
        unit.commit()
    assert ids(store.due(BY_DEFAULT, 1000, 10)) == [5, 2, 6]
    assert ids(store.due(BY_OWN, 1000, 10)) == [1, 7, 4]
    assert store.due_seconds(BY_DEFAULT, 0, 10) == [11, 95, 100]
    assert store.due_seconds(BY_OWN, 0, 10) == [107, 110, 201]


def test_an_empty_store_has_nothing_due(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        unit.commit()
    assert store.due(BY_DEFAULT, 10**12, 5) == store.due(BY_OWN, 10**12, 5) == []
    assert store.due_seconds(BY_DEFAULT, -1, 5) == store.due_seconds(BY_OWN, -1, 5) == []
    assert store.count_due(BY_DEFAULT, 10**12) == store.count_due(BY_OWN, 10**12) == 0


def test_reaping_in_batches_empties_the_store(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        store.insert_records([(b"x" * (n % 5), n // 10, 0) for n in range(300)])
        unit.commit()
    while batch := store.due(BY_DEFAULT, 19, 64):
        with engine.unit_of_work() as unit:
            store.delete_records(batch)
            unit.commit()
    assert store.count() == 100
    assert store.due_seconds(BY_DEFAULT, -1, 5) == [20, 21, 22, 23, 24]


def counted(store: RecordStore, index: ExpiryIndex, last: int, limit: int) -> list[int]:
    """The number of records in each part of a count up to a second."""
    parts = []
    at: tuple[int, int] | None = FIRST_DUE
    while at is not None:
        number, at = store.count_due_after(index, at, last, limit)
        parts.append(number)
    return parts


def test_counting_in_parts(engine: StorageEngine) -> None:
    store = filled(engine)
    assert counted(store, BY_DEFAULT, 100, 10) == [3]
    assert counted(store, BY_DEFAULT, 100, 2) == [2, 1]
    assert counted(store, BY_DEFAULT, 100, 1) == [1, 1, 1, 0]
    assert counted(store, BY_DEFAULT, 49, 1) == [0]
    assert counted(store, BY_OWN, 200, 2) == [2, 1]
    assert counted(store, BY_OWN, 10**12, 3) == [3, 1]
    assert store.count_due_after(BY_DEFAULT, (50, 3), 100, 10) == (2, None)
    assert store.count_due_after(BY_DEFAULT, (100, 1), 100, 10) == (1, None)
    assert store.count_due_after(BY_DEFAULT, (100, 1), 99, 10) == (0, None)
    assert store.count_due_after(BY_OWN, (110, 2), 110, 1) == (1, (110, 7))


def test_counting_many_records_of_few_seconds_in_parts(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        store.insert_records([(b"", n % 3, 0 if n % 2 else 1 + n % 5) for n in range(3000)])
        unit.commit()
    assert counted(store, BY_DEFAULT, 1, 333) == [333, 333, 333, 1]
    assert counted(store, BY_DEFAULT, 2, 500) == [500, 500, 500, 0]
    for last in range(8):
        assert sum(counted(store, BY_OWN, last, 77)) == store.count_due(BY_OWN, last)


def taken(
    engine: StorageEngine, store: RecordStore, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int
) -> list[Record]:
    with engine.unit_of_work() as unit:
        records = store.take_due(index, after, until_s, limit)
        unit.commit()
    return records


def test_due_records_are_taken_in_the_order_of_their_index(engine: StorageEngine) -> None:
    store = filled(engine)
    assert taken(engine, store, BY_DEFAULT, FIRST_DUE, 49, 10) == []
    assert taken(engine, store, BY_DEFAULT, FIRST_DUE, 100, 2) == [(3, b"3", 50, 0), (1, b"1", 100, 0)]
    assert taken(engine, store, BY_OWN, (3, 8), 200, 10) == [(2, b"2", 90, 20), (7, b"7", 10, 100)]
    assert (store.count(), store.size_bytes()) == (4, 4)
    assert ids(store.scan(0, 10)[0]) == [4, 5, 6, 8]
    assert ids(taken(engine, store, BY_DEFAULT, (100, 1), 100, 10)) == [6]
    assert ids(taken(engine, store, BY_OWN, FIRST_DUE, 201, 10)) == [8, 4]
    assert ids(store.scan(0, 10)[0]) == [5]
    assert store.count_due(BY_DEFAULT, 10**12) == store.count_due(BY_OWN, 10**12) == 0


def test_taken_records_are_limited_by_their_bytes(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        store.insert_records([(b"x" * 100, 5, 0) for _ in range(10)])
        unit.commit()
    with engine.unit_of_work() as unit:
        # The one that reaches the limit is the last.
        assert ids(store.take_due(BY_DEFAULT, FIRST_DUE, 5, 10, 200)) == [1, 2]
        assert ids(store.take_due(BY_DEFAULT, FIRST_DUE, 5, 10, 201)) == [3, 4, 5]
        assert ids(store.take_due(BY_DEFAULT, FIRST_DUE, 5, 10, 1)) == [6]
        assert ids(store.take_due(BY_DEFAULT, (5, 7), 5, 10, 1)) == [8]
        unit.commit()
    assert ids(store.scan(0, 10)[0]) == [7, 9, 10]


def test_taken_records_are_back_after_a_rollback(engine: StorageEngine) -> None:
    store = filled(engine)
    with engine.unit_of_work():
        assert ids(store.take_due(BY_OWN, FIRST_DUE, 201, 10)) == [8, 2, 7, 4]
        assert store.count() == 4
    assert (store.count(), store.size_bytes()) == (8, 8)
    assert ids(store.due(BY_OWN, 201, 10)) == [8, 2, 7, 4]
