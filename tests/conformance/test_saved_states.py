"""Saved states: what `restore_state` brings back, and which engines have them. Random ones are in `test_model`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mongottl.storage.interface import StorageEngine
from mongottl.storage.stores import ExpiryIndex, KeyRange, RecordStore, SortedDataInterface

END = b"\xff" * 9
SAVING = ("memory", "contract-memory", "suspending-contract-memory")

Opener = Callable[[str, Path], StorageEngine]


@pytest.fixture(params=SAVING)
def saving(request: pytest.FixtureRequest, engine_opener: Opener, tmp_path: Path) -> Iterator[StorageEngine]:
    opened = engine_opener(request.param, tmp_path)
    yield opened
    opened.close()


def create(engine: StorageEngine, ident: str, count: int) -> tuple[RecordStore, SortedDataInterface]:
    """A store of `count` records, of which every third has a `ttl`, and a unique index."""
    with engine.unit_of_work() as unit:
        store = engine.create_record_store(ident)
        data = engine.create_sorted_data(f"{ident} index", True)
        ids = store.insert_records([(b"%d" % n, n % 50, 7 if n % 3 == 0 else 0) for n in range(count)])
        data.insert([(b"%08d" % n, n) for n in ids])
        unit.commit()
    return store, data


def picture(engine: StorageEngine) -> dict[str, object]:
    """All that can be read."""
    seen: dict[str, object] = {"catalog": engine.catalog_entries()}
    for ident in sorted(engine.idents()):
        if ident.endswith("index"):
            data = engine.sorted_data(ident, True)
            entries = data.scan(KeyRange(b"", END), None, 10**6)[0]
            assert data.find_exact([key for key, _ in entries]) == entries
            seen[ident] = entries
        else:
            store = engine.record_store(ident)
            facts = (
                store.count(),
                store.size_bytes(),
                store.due_seconds(ExpiryIndex.BY_DEFAULT, -1, 10**6),
                store.due_seconds(ExpiryIndex.BY_OWN, -1, 10**6),
            )
            due = (store.due(ExpiryIndex.BY_DEFAULT, 10**9, 10**6), store.due(ExpiryIndex.BY_OWN, 10**9, 10**6))
            seen[ident] = (store.scan(0, 10**6)[0], facts, due)
    return seen


def change(engine: StorageEngine, store: RecordStore, data: SortedDataInterface) -> None:
    """Inserts, updates and deletes records in every part of the store."""
    records = store.scan(0, 10**6)[0]
    with engine.unit_of_work() as unit:
        store.update_records(records[::5], [(n, b"changed", 900, 3) for n, *_ in records[::5]])
        store.delete_records(records[1::5])
        data.remove([(b"%08d" % n, n) for n, *_ in records[1::5]])
        ids = store.insert_records([(b"new", 60, 0)] * 300)
        data.insert([(b"new %d" % n, n) for n in ids])
        unit.commit()


def steps_of_freeing(engine: StorageEngine) -> int:
    """Frees what nothing has any more; in how many steps."""
    steps = 1
    while engine.drop_some(100):
        steps += 1
    return steps


@pytest.mark.parametrize("count", [0, 3, 5000, 9000])
def test_a_state_is_restored_any_number_of_times(saving: StorageEngine, count: int) -> None:
    store, data = create(saving, "records", count)
    before = picture(saving)
    state = saving.save_state()
    for _ in range(3):
        change(saving, store, data)
        if count:
            assert picture(saving) != before
        assert saving.restore_state(state) == {"records", "records index"}
        assert picture(saving) == before
    assert saving.restore_state(state) == set()
    assert saving.record_store("records") is store
    assert saving.sorted_data("records index", True) is data


def test_several_states_do_not_change_each_other(saving: StorageEngine) -> None:
    store, data = create(saving, "records", 2000)
    seen = []
    for number in range(4):
        with saving.unit_of_work() as unit:
            saving.put_catalog_entry("number", b"%d" % number)
            unit.commit()
        seen.append((saving.save_state(), picture(saving)))
        change(saving, store, data)
    for place in (2, 0, 3, 1, 1, 3):
        state, expected = seen[place]
        saving.restore_state(state)
        assert picture(saving) == expected
        change(saving, store, data)
    for state, _ in seen[:3]:
        saving.release_state(state)
    while saving.drop_some(100):
        pass
    saving.restore_state(seen[3][0])
    assert picture(saving) == seen[3][1]


def test_idents_that_were_dropped_or_created_since_are_brought_back_and_dropped(saving: StorageEngine) -> None:
    create(saving, "large", 3000)
    create(saving, "small", 3)
    before = picture(saving)
    state = saving.save_state()
    for _ in range(2):
        with saving.unit_of_work() as unit:
            for ident in saving.idents():
                saving.drop_ident(ident)
            saving.put_catalog_entry("new", b"entry")
            unit.commit()
        create(saving, "later", 2000)
        create(saving, "small", 1)
        while saving.drop_some(100):
            pass
        saving.restore_state(state)
        assert picture(saving) == before
        while saving.drop_some(100):
            pass
        assert picture(saving) == before
        assert saving.statistics()["dropped_idents"] == 0
    # They can be written to as before.
    change(saving, saving.record_store("large"), saving.sorted_data("large index", True))


def test_restoring_a_state_during_a_drop_in_steps_restores_all_rows(saving: StorageEngine) -> None:
    create(saving, "records", 3000)
    before = picture(saving)
    state = saving.save_state()
    with saving.unit_of_work() as unit:
        saving.drop_ident("records")
        saving.drop_ident("records index")
        unit.commit()
    saving.drop_some(100)
    saving.restore_state(state)
    while saving.drop_some(100):
        pass
    assert picture(saving) == before


def test_a_unit_that_is_rolled_back_after_a_state_was_saved_leaves_nothing(saving: StorageEngine) -> None:
    store, data = create(saving, "records", 2000)
    before = picture(saving)
    state = saving.save_state()
    records = store.scan(0, 10**6)[0]
    with saving.unit_of_work():
        store.delete_records(records[:1500])
        data.remove([(b"%08d" % n, n) for n, *_ in records[:1500]])
        store.update_records(records[1600:1700], [(n, b"longer than before", 5, 5) for n, *_ in records[1600:1700]])
        store.insert_records([(b"new", 1, 0)] * 1000)
        saving.drop_ident("records index")
    assert picture(saving) == before
    saving.restore_state(state)
    assert picture(saving) == before


def test_record_ids_given_since_are_given_again(saving: StorageEngine) -> None:
    store, _ = create(saving, "records", 10)
    state = saving.save_state()
    for _ in range(2):
        with saving.unit_of_work() as unit:
            assert store.insert_records([(b"x", 1, 0)] * 3) == [11, 12, 13]
            unit.commit()
        saving.restore_state(state)


def test_a_released_state_is_freed_in_steps(saving: StorageEngine) -> None:
    store, data = create(saving, "records", 5000)
    state = saving.save_state()
    change(saving, store, data)
    now = picture(saving)
    saving.release_state(state)
    assert steps_of_freeing(saving) > 10
    assert picture(saving) == now


def test_dropping_in_steps_keeps_rows_of_the_restored_state(saving: StorageEngine) -> None:
    store, data = create(saving, "records", 20_000)
    before = picture(saving)
    state = saving.save_state()
    records = store.scan(0, 10)[0]
    for drops in (False, True, False):
        store, data = saving.record_store("records"), saving.sorted_data("records index", True)
        with saving.unit_of_work() as unit:
            store.update_records(records[:5], [(n, b"changed", 900, 3) for n, *_ in records[:5]])
            store.delete_records(records[5:])
            data.remove([(b"%08d" % n, n) for n, *_ in records[5:]])
            unit.commit()
        if drops:
            with saving.unit_of_work() as unit:
                saving.drop_ident("records")
                saving.drop_ident("records index")
                unit.commit()
        saving.restore_state(state)
        assert steps_of_freeing(saving) < 40  # a block or two of each index, of a hundred
        assert picture(saving) == before


def test_rows_of_an_abandoned_state_are_freed_in_steps(saving: StorageEngine) -> None:
    store, data = create(saving, "records", 5000)
    before = picture(saving)
    state = saving.save_state()
    change(saving, store, data)
    second = saving.save_state()
    with saving.unit_of_work() as unit:
        store.insert_record(b"forked from the second state", 1, 0)
        data.insert([(b"forked", 9999)])
        unit.commit()
    saving.restore_state(state)
    saving.release_state(second)
    assert steps_of_freeing(saving) > 10
    assert picture(saving) == before


def test_rows_shared_by_a_state_and_a_dropped_store_are_freed_in_steps(saving: StorageEngine) -> None:
    store, data = create(saving, "records", 5000)
    first = saving.save_state()
    with saving.unit_of_work() as unit:
        store.insert_record(b"new", 1, 0)
        data.insert([(b"new", 9999)])
        unit.commit()
    second = saving.save_state()
    saving.restore_state(first)
    saving.release_state(first)
    with saving.unit_of_work() as unit:
        saving.drop_ident("records")
        saving.drop_ident("records index")
        unit.commit()
    steps_of_freeing(saving)
    saving.release_state(second)
    assert steps_of_freeing(saving) > 50


def test_states_are_saved_and_restored_outside_units_of_work(saving: StorageEngine) -> None:
    state = saving.save_state()
    error = (RuntimeError, AssertionError)
    with saving.unit_of_work():
        with pytest.raises(error):
            saving.save_state()
        with pytest.raises(error):
            saving.restore_state(state)
    saving.release_state(state)
    with pytest.raises(AssertionError):
        saving.restore_state(state)


def test_an_engine_that_saves_no_states_says_so(engine: StorageEngine, engine_kind: str) -> None:
    assert engine.saves_states == (engine_kind in SAVING)
    if not engine.saves_states:
        with pytest.raises((RuntimeError, AssertionError)):
            engine.save_state()
