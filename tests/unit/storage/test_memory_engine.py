"""The memory engine beyond one block of records and one dict of keys; the conformance suite has what is common."""

import random
from collections.abc import Iterator

import pytest

from mongottl.storage.errors import DataDirectoryError, DuplicateKey, EngineUnavailable
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.stores import MAX_RECORD_ID, ExpiryIndex, KeyRange, Record, RecordStore, SortedDataInterface

END = b"\xff" * 9


@pytest.fixture
def engine() -> Iterator[StorageEngine]:
    opened = open_engine("memory:")
    yield opened
    opened.close()


def create(engine: StorageEngine) -> tuple[RecordStore, SortedDataInterface]:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        data = engine.create_sorted_data("unique", True)
        unit.commit()
    return store, data


def everything(store: RecordStore, limit: int, forward: bool) -> list[Record]:
    found: list[Record] = []
    position = 0 if forward else MAX_RECORD_ID
    while batch := store.scan(position, limit, forward)[0]:
        assert len(batch) <= limit
        found.extend(batch)
        position = batch[-1][0]
    return found


def picture(store: RecordStore) -> tuple[list[Record], int, int, list[Record], list[Record], list[int], list[int]]:
    return (
        everything(store, 256, True),
        store.count(),
        store.size_bytes(),
        store.due(ExpiryIndex.BY_DEFAULT, 10**9, 10**6),
        store.due(ExpiryIndex.BY_OWN, 10**9, 10**6),
        store.due_seconds(ExpiryIndex.BY_DEFAULT, -1, 10**6),
        store.due_seconds(ExpiryIndex.BY_OWN, -1, 10**6),
    )


def test_batches_of_any_length_go_on_in_the_next_block(engine: StorageEngine) -> None:
    store, _ = create(engine)
    inserted: list[Record] = []
    for length in (250, 4, 3, 255, 1, 256, 257, 1, 700, 2):
        with engine.unit_of_work() as unit:
            ids = store.insert_records([(b"%d" % n, n, 0) for n in range(length)])
            unit.commit()
        inserted.extend((record_id, b"%d" % n, n, 0) for n, record_id in enumerate(ids))
        assert everything(store, 100, True) == inserted
        assert store.find_records(ids)[0] == inserted[-length:]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_units_of_work_committed_and_rolled_back(engine: StorageEngine, seed: int) -> None:
    random_ = random.Random(seed)
    store, _ = create(engine)
    model: dict[int, Record] = {}
    for step in range(30):
        before = dict(model)
        seen = picture(store) if step % 8 == 0 else None
        with engine.unit_of_work() as unit:
            for _ in range(random_.randrange(1, 4)):
                action = random_.randrange(4)
                if action <= 1:
                    new = [
                        (
                            random_.randbytes(random_.randrange(9)),
                            random_.randrange(5),
                            random_.choice([0, 0, -1, 7]),
                        )
                        for _ in range(random_.choice([1, 3, 90, 500]))
                    ]
                    for record_id, (document, ts, ttl) in zip(store.insert_records(new), new, strict=True):
                        model[record_id] = (record_id, document, ts, ttl)
                elif model:
                    ids = random_.sample(sorted(model), random_.randrange(1, len(model) + 1))
                    if random_.random() < 0.5:
                        # A run, as scans give them.
                        ids = sorted(model)[len(ids) // 3 : len(ids)]
                    old = [model[record_id] for record_id in ids]
                    if action == 2:
                        ts = random_.randrange(5)
                        changed: list[Record] = [(r[0], r[1] + b"!", ts, random_.choice([0, -1, 3])) for r in old]
                        store.update_records(old, changed)
                        model.update((record[0], record) for record in changed)
                    else:
                        store.delete_records(old)
                        for record_id in ids:
                            del model[record_id]
            if random_.random() < 0.6:
                unit.commit()
                seen = None
            else:
                model = before
        assert seen is None or picture(store) == seen
        expected = [model[record_id] for record_id in sorted(model)]
        limit = random_.choice([1 + len(model) // 50, 256, 10_000])
        assert everything(store, limit, True) == expected
        assert everything(store, limit, False) == expected[::-1]
        assert store.count() == len(model)
        assert store.size_bytes() == sum(len(record[1]) for record in expected)
        by_default = sorted([r for r in expected if r[3] == 0], key=lambda r: (r[2], r[0]))
        by_own = sorted([r for r in expected if r[3] > 0], key=lambda r: (r[2] + r[3], r[0]))
        assert store.due(ExpiryIndex.BY_DEFAULT, 10**9, 10**6) == by_default
        assert store.due(ExpiryIndex.BY_OWN, 10**9, 10**6) == by_own
        assert store.count_due(ExpiryIndex.BY_DEFAULT, 2) == len([r for r in by_default if r[2] <= 2])
        wanted = random_.sample(range(1, 3000), 50)
        assert store.find_records(wanted)[0] == [model[n] for n in wanted if n in model]


def test_survivors_of_a_large_purge_are_found_and_take_little(engine: StorageEngine) -> None:
    store, _ = create(engine)
    with engine.unit_of_work() as unit:
        store.insert_records([(b"%d" % n, 1, -1 if n % 100 == 0 else 5) for n in range(5000)])
        unit.commit()
    with engine.unit_of_work() as unit:
        store.delete_records(store.due(ExpiryIndex.BY_OWN, 6, 10_000))
        unit.commit()
    left = everything(store, 7, True)
    assert [record[1] for record in left] == [b"%d" % n for n in range(0, 5000, 100)]
    assert everything(store, 7, False) == left[::-1]
    assert store.scan(left[3][0], 2)[0] == left[4:6]
    assert store.find_records([1, 2, 101])[0] == [left[0], left[1]]
    with engine.unit_of_work():
        store.update_record(left[4], (left[4][0], b"changed", 2, 9))
        store.delete_record(left[5])
        store.insert_record(b"new", 1, 0)
        assert store.find_record(left[5][0]) is None
        # left without commit
    assert everything(store, 256, True) == left


def test_a_map_that_has_spread_still_refuses_duplicates_and_rolls_back(engine: StorageEngine) -> None:
    store, data = create(engine)
    keys = [random.Random(4).randbytes(8) + b"%05d" % n for n in range(12_000)]
    with engine.unit_of_work() as unit:
        ids = store.insert_records([(b"", 1, 0)] * len(keys))
        data.insert(list(zip(keys, ids, strict=True)))
        unit.commit()
    assert data.count_range(KeyRange(b"", END)) == len(keys)
    assert [data.fetch_exact(store, keys[n]) for n in (0, 8192, 11_999)] == store.find_records([1, 8193, 12_000])[0]
    with engine.unit_of_work():
        with pytest.raises(DuplicateKey) as caught:
            data.insert([(b"fresh", 12_001), (keys[700], 12_002)])
        assert (caught.value.existing_record_id, caught.value.position) == (701, 1)
        assert data.find_exact([b"fresh"]) == []
        data.remove(list(zip(keys[:9000], ids[:9000], strict=True)))
        assert data.find_exact([keys[0], keys[9000]]) == [(keys[9000], 9001)]
    assert data.find_exact(keys[:3]) == [(keys[0], 1), (keys[1], 2), (keys[2], 3)]
    assert data.count_range(KeyRange(b"", END)) == len(keys)


def test_a_dropped_ident_comes_back_with_a_rollback_and_is_not_given_back_then(engine: StorageEngine) -> None:
    store, data = create(engine)
    with engine.unit_of_work() as unit:
        ids = store.insert_records([(b"x", n, 0) for n in range(3000)])
        data.insert([(b"%05d" % n, n) for n in ids])
        unit.commit()
    with engine.unit_of_work():
        engine.clear()
        assert engine.statistics()["dropped_idents"] == 2
    assert not engine.drop_some(1000)
    assert store.count() == len(everything(store, 256, True)) == data.count_range(KeyRange(b"", END)) == 3000
    assert engine.statistics()["idents"] == 2
    assert engine.statistics()["database_bytes"] > 3000


def test_a_data_directory_is_refused(tmp_path: object) -> None:
    with pytest.raises(DataDirectoryError, match="cannot use a data directory"):
        open_engine(f"memory:{tmp_path}")


def test_a_closed_engine_is_unavailable() -> None:
    engine = open_engine("memory:")
    store, data = create(engine)
    engine.close()
    engine.close()
    for read in range(4):
        with pytest.raises(EngineUnavailable, match="closed"):
            if read == 0:
                store.scan(0, 1)[0]
            elif read == 1:
                data.fetch_exact(store, b"x")
            elif read == 2:
                engine.statistics()
            else:
                store.insert_record(b"x", 1, 0)
    with pytest.raises(EngineUnavailable, match="closed"), engine.unit_of_work():
        pass
    engine.flush()
    engine.maintain()
