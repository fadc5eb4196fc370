"""Sorted data: order, half-open ranges, positions, uniqueness, and the joined reads."""

import pytest

from mongottl.storage.errors import DuplicateKey
from mongottl.storage.interface import StorageEngine
from mongottl.storage.stores import FetchedEntry, KeyEntry, KeyRange, RecordStore, SortedDataInterface

LOW, HIGH = b"", b"\xff\xff"
KINDS = pytest.mark.parametrize("unique", [False, True])


def new_data(engine: StorageEngine, unique: bool, entries: list[KeyEntry]) -> SortedDataInterface:
    with engine.unit_of_work() as unit:
        data = engine.create_sorted_data("index", unique)
        data.insert(entries)
        unit.commit()
    return data


def everything(data: SortedDataInterface) -> list[KeyEntry]:
    return data.scan(KeyRange(LOW, HIGH), None, 100000)[0]


@KINDS
def test_entries_are_ordered_by_unsigned_bytes(engine: StorageEngine, unique: bool) -> None:
    keys = [b"b", b"\x80", b"", b"a\x00", b"a", b"\x7f", b"ab", b"a\xff", b"\x00", b"\xfe"]
    data = new_data(engine, unique, [(key, number + 1) for number, key in enumerate(keys)])
    assert [key for key, _ in everything(data)] == sorted(keys)
    assert [key for key, _ in data.scan(KeyRange(LOW, HIGH, False), None, 100)[0]] == sorted(keys, reverse=True)


@KINDS
@pytest.mark.parametrize("forward", [True, False])
def test_ranges_are_half_open(engine: StorageEngine, unique: bool, forward: bool) -> None:
    data = new_data(engine, unique, [(b"a", 1), (b"b", 2), (b"bb", 3), (b"c", 4), (b"d", 5)])

    def keys(low: bytes, high: bytes) -> list[bytes]:
        found = [key for key, _ in data.scan(KeyRange(low, high, forward), None, 100)[0]]
        assert data.count_range(KeyRange(low, high)) == len(found)
        return found if forward else found[::-1]

    assert keys(b"b", b"d") == [b"b", b"bb", b"c"]
    assert keys(b"b\x00", b"c\x00") == [b"bb", b"c"]
    assert keys(b"", b"a") == []
    assert keys(b"", b"a\x00") == [b"a"]
    assert keys(b"d", b"\xff") == [b"d"]
    assert keys(b"b", b"b") == []
    assert keys(b"d", b"a") == []
    assert keys(b"x", b"y") == []


@KINDS
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("forward", [True, False])
def test_batches_put_together_are_the_range(engine: StorageEngine, unique: bool, limit: int, forward: bool) -> None:
    data = new_data(engine, unique, [(b"%c" % n, n) for n in range(1, 30)])
    batches: list[KeyEntry] = []
    after: KeyEntry | None = None
    while batch := data.scan(KeyRange(b"\x05", b"\x15", forward), after, limit)[0]:
        batches.extend(batch)
        after = batch[-1]
    numbers = list(range(5, 21))
    assert [record_id for _, record_id in batches] == (numbers if forward else numbers[::-1])


@KINDS
@pytest.mark.parametrize("forward", [True, False])
def test_scans_end_where_their_keys_reach_a_number_of_bytes(engine: StorageEngine, unique: bool, forward: bool) -> None:
    entries = [(bytes([n]) * 10, n) for n in range(1, 8)]
    data = new_data(engine, unique, entries)
    ordered = entries if forward else entries[::-1]
    assert data.scan(KeyRange(LOW, HIGH, forward), None, 100, 25) == (ordered[:3], True)
    assert data.scan(KeyRange(LOW, HIGH, forward), ordered[2], 100, 30) == (ordered[3:6], True)
    assert data.scan(KeyRange(LOW, HIGH, forward), ordered[5], 100, 30) == (ordered[6:], False)
    assert data.scan(KeyRange(LOW, HIGH, forward), None, 2, 1) == (ordered[:1], True)
    assert data.scan(KeyRange(LOW, HIGH, forward), None, 2, 1000) == (ordered[:2], True)
    assert data.scan(KeyRange(LOW, HIGH, forward), ordered[6], 2, 1000) == ([], False)


def test_equal_keys_are_ordered_by_record_id_and_a_position_splits_them(engine: StorageEngine) -> None:
    data = new_data(engine, False, [(b"k", 300), (b"k", 2), (b"k", 10), (b"j", 9), (b"l", 1)])
    assert everything(data) == [(b"j", 9), (b"k", 2), (b"k", 10), (b"k", 300), (b"l", 1)]
    assert data.scan(KeyRange(b"k", b"l"), (b"k", 2), 10)[0] == [(b"k", 10), (b"k", 300)]
    assert data.scan(KeyRange(b"k", b"l", False), (b"k", 10), 10)[0] == [(b"k", 2)]
    assert data.scan(KeyRange(b"k", b"l"), (b"k", 300), 10)[0] == []
    assert data.count_range(KeyRange(b"k", b"l")) == 3


@KINDS
def test_ranges_are_cut(engine: StorageEngine, unique: bool) -> None:
    data = new_data(engine, unique, [(b"%04d" % n, n) for n in range(1, 3001)])
    assert data.entry_at(KeyRange(LOW, HIGH), None, 0) == (b"0001", 1)
    assert data.entry_at(KeyRange(LOW, HIGH), None, 2500) == (b"2501", 2501)
    assert data.entry_at(KeyRange(b"0100", b"0200"), None, 99) == (b"0199", 199)
    assert data.entry_at(KeyRange(b"0100", b"0200"), None, 100) is None
    assert data.entry_at(KeyRange(b"0100", b"0200"), (b"0150", 150), 48) == (b"0199", 199)
    assert data.entry_at(KeyRange(b"0100", b"0200"), (b"0150", 150), 49) is None
    assert data.entry_at(KeyRange(b"5", HIGH), None, 0) is None


def test_ranges_are_cut_within_a_key(engine: StorageEngine) -> None:
    data = new_data(engine, False, [(b"k", n) for n in range(1, 1001)])
    assert data.entry_at(KeyRange(b"k", b"l"), None, 500) == (b"k", 501)
    assert data.entry_at(KeyRange(b"k", b"l"), (b"k", 501), 498) == (b"k", 1000)
    assert data.entry_at(KeyRange(b"k", b"l"), (b"k", 501), 499) is None


@KINDS
def test_a_position_may_have_been_removed(engine: StorageEngine, unique: bool) -> None:
    data = new_data(engine, unique, [(b"a", 1), (b"b", 2), (b"c", 3), (b"d", 4)])
    with engine.unit_of_work() as unit:
        data.remove([(b"b", 2)])
        data.remove_one(b"c", 3)
        unit.commit()
    assert data.scan(KeyRange(LOW, HIGH), (b"b", 2), 10)[0] == [(b"d", 4)]
    assert data.scan(KeyRange(LOW, HIGH, False), (b"c", 3), 10)[0] == [(b"a", 1)]


@KINDS
def test_inserting_and_removing_twice_is_no_error(engine: StorageEngine, unique: bool) -> None:
    data = new_data(engine, unique, [(b"a", 1), (b"b", 2)])
    with engine.unit_of_work() as unit:
        data.insert([(b"0", 7), (b"a", 1), (b"c", 3), (b"b", 2), (b"d", 4), (b"d", 4)])
        data.insert_one(b"c", 3)
        data.insert([])
        unit.commit()
    assert everything(data) == [(b"0", 7), (b"a", 1), (b"b", 2), (b"c", 3), (b"d", 4)]
    with engine.unit_of_work() as unit:
        data.remove([(b"a", 1), (b"a", 1), (b"zz", 9)])
        data.remove_one(b"a", 1)
        data.remove([])
        unit.commit()
    assert everything(data) == [(b"0", 7), (b"b", 2), (b"c", 3), (b"d", 4)]


@KINDS
def test_removing_takes_the_record_id_into_account(engine: StorageEngine, unique: bool) -> None:
    data = new_data(engine, unique, [(b"a", 1)])
    with engine.unit_of_work() as unit:
        data.remove([(b"a", 2)])
        data.remove_one(b"a", 3)
        unit.commit()
    assert everything(data) == [(b"a", 1)]


def test_a_duplicate_says_who_holds_the_key(engine: StorageEngine) -> None:
    data = new_data(engine, True, [(b"a", 1), (b"b", 2)])
    with engine.unit_of_work() as unit:
        with pytest.raises(DuplicateKey) as caught:
            data.insert_one(b"b", 5)
        assert (caught.value.key, caught.value.existing_record_id, caught.value.position) == (b"b", 2, 0)
        data.insert_one(b"c", 5)
        unit.commit()
    assert everything(data) == [(b"a", 1), (b"b", 2), (b"c", 5)]


def test_a_duplicate_in_a_batch_leaves_nothing_of_the_batch_and_the_unit_goes_on(engine: StorageEngine) -> None:
    data = new_data(engine, True, [(b"a", 1), (b"m", 2), (b"n", 20)])
    with engine.unit_of_work() as unit:
        data.insert_one(b"b", 3)
        with pytest.raises(DuplicateKey) as caught:
            # (a, 1) and (b, 3) are there already and must stay; z is never reached.
            data.insert([(b"x", 4), (b"a", 1), (b"y", 5), (b"b", 3), (b"w", 8), (b"m", 6), (b"z", 7)])
        assert (caught.value.key, caught.value.existing_record_id, caught.value.position) == (b"m", 2, 5)
        assert everything(data) == [(b"a", 1), (b"b", 3), (b"m", 2), (b"n", 20)]
        data.insert([(b"x", 4), (b"y", 5)])
        unit.commit()
    assert everything(data) == [(b"a", 1), (b"b", 3), (b"m", 2), (b"n", 20), (b"x", 4), (b"y", 5)]


def test_a_duplicate_within_one_batch(engine: StorageEngine) -> None:
    data = new_data(engine, True, [])
    with engine.unit_of_work() as unit:
        with pytest.raises(DuplicateKey) as caught:
            data.insert([(b"a", 1), (b"b", 2), (b"a", 3)])
        assert (caught.value.key, caught.value.existing_record_id, caught.value.position) == (b"a", 1, 2)
        unit.commit()
    assert everything(data) == []


def test_the_same_key_for_several_records_is_fine_when_not_unique(engine: StorageEngine) -> None:
    data = new_data(engine, False, [(b"a", 1), (b"a", 2)])
    with engine.unit_of_work() as unit:
        data.insert_one(b"a", 3)
        unit.commit()
    assert everything(data) == [(b"a", 1), (b"a", 2), (b"a", 3)]


@KINDS
@pytest.mark.parametrize("count", [0, 1, 3, 4, 64, 65, 130])
def test_find_exact_keeps_the_order_of_the_keys(engine: StorageEngine, unique: bool, count: int) -> None:
    entries = [(b"%03d" % n, n) for n in range(1, 100)]
    if not unique:
        entries += [(key, number + 1000) for key, number in entries]
    data = new_data(engine, unique, entries)
    wanted = [b"%03d" % ((n * 37) % 131) for n in range(count)]
    expected = [entry for key in wanted for entry in sorted(entries) if entry[0] == key]
    assert data.find_exact(wanted) == expected


def with_records(engine: StorageEngine, unique: bool) -> tuple[RecordStore, SortedDataInterface]:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        data = engine.create_sorted_data("index", unique)
        ids = store.insert_records([(b"document %d" % n, n, 0) for n in range(20)])
        data.insert([(b"%02d" % ((n * 7) % 20), record_id) for n, record_id in enumerate(ids)])
        unit.commit()
    return store, data


@KINDS
@pytest.mark.parametrize("forward", [True, False])
def test_scan_fetch_is_scan_with_records(engine: StorageEngine, unique: bool, forward: bool) -> None:
    store, data = with_records(engine, unique)
    after: KeyEntry | None = None
    count = 0
    while entries := data.scan(KeyRange(b"03", b"15", forward), after, 5)[0]:
        fetched = data.scan_fetch(store, KeyRange(b"03", b"15", forward), after, 5)[0]
        assert [(key, record_id) for key, record_id, _, _, _ in fetched] == entries
        assert [row[1:] for row in fetched] == store.find_records([record_id for _, record_id in entries])[0]
        after = entries[-1]
        count += len(entries)
    assert count == 12
    assert data.scan_fetch(store, KeyRange(b"03", b"15", forward), after, 5)[0] == []


def long_key(number: int) -> bytes:
    """A key of which some begin alike and are longer than what an index of PostgreSQL takes."""
    return b"%02d" % (number // 3) + (b"x" * 3000 + b"%d" % number if number % 3 else b"")


@KINDS
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("limit", [1, 4, 1000])
@pytest.mark.parametrize("max_bytes", [1, 25, 100_000])
def test_ranges_are_scanned_one_after_the_other(
    engine: StorageEngine, unique: bool, forward: bool, limit: int, max_bytes: int
) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        data = engine.create_sorted_data("index", unique)
        ids = store.insert_records([(b"document %d" % n, n, 0) for n in range(60)])
        data.insert([(long_key(n if unique else n // 2), record_id) for n, record_id in enumerate(ids)])
        unit.commit()
    bounds = [(0, 1), (2, 9), (9, 9), (9, 10), (12, 13), (30, 31), (40, 58), (70, 80)]
    ranges = [KeyRange(long_key(low), long_key(high) + b"\0" * (low == high), forward) for low, high in bounds]
    if not forward:
        ranges.reverse()
    expected = [row for each in ranges for row in data.scan_fetch(store, each, None, 1000)[0]]
    assert len(expected) > 20
    assert data.first_with_entries(ranges) == next(n for n, each in enumerate(ranges) if data.scan(each, None, 1)[0])
    assert data.first_with_entries([KeyRange(long_key(70), long_key(80)), KeyRange(b"a", b"b")]) == -1
    found: list[FetchedEntry] = []
    place = 0
    after: KeyEntry | None = None
    while place < len(ranges):
        rows, done, more = data.scan_fetch_ranges(store, ranges[place:], after, limit, max_bytes)
        assert len(rows) <= limit
        assert sum(len(row[2]) for row in rows[:-1]) < max_bytes
        assert rows or place + done == len(ranges)
        found += rows
        place += done
        after = rows[-1][:2] if more else None
    assert found == expected


def test_fetch_exact_finds_one_record_or_none(engine: StorageEngine) -> None:
    store, data = with_records(engine, True)
    assert data.fetch_exact(store, b"07") == (2, b"document 1", 1, 0)
    assert data.fetch_exact(store, b"7") is None
    assert data.fetch_exact(store, b"") is None


def test_joined_reads_follow_the_record_store_given(engine: StorageEngine) -> None:
    store, data = with_records(engine, True)
    with engine.unit_of_work() as unit:
        other = engine.create_record_store("other")
        other.insert_records([(b"other %d" % n, n, 5) for n in range(20)])
        unit.commit()
    for _ in range(2):
        assert data.fetch_exact(store, b"07") == (2, b"document 1", 1, 0)
        assert data.fetch_exact(other, b"07") == (2, b"other 1", 1, 5)
        assert data.scan_fetch(other, KeyRange(b"07", b"08"), None, 3)[0] == [(b"07", 2, b"other 1", 1, 5)]
        assert data.scan_fetch(store, KeyRange(b"07", b"08"), None, 3)[0] == [(b"07", 2, b"document 1", 1, 0)]


def test_reads_within_a_unit_see_its_writes(engine: StorageEngine) -> None:
    store, data = with_records(engine, True)
    with engine.unit_of_work():
        record_id = store.insert_record(b"new", 1, 0)
        data.insert_one(b"new", record_id)
        assert data.fetch_exact(store, b"new") == (record_id, b"new", 1, 0)
        assert data.scan(KeyRange(b"n", b"o"), None, 3)[0] == [(b"new", record_id)]
        # left without commit
    assert data.fetch_exact(store, b"new") is None
    assert data.scan(KeyRange(b"n", b"o"), None, 3)[0] == []
