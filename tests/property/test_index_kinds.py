"""Whatever is written, an index of any kind holds exactly the keys of the documents that are there."""

from typing import Any

import pytest
from bson import encode as bson_encode
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.catalog.collection import CollectionIndex
from mongottl.catalog.key_ranges import ALL_KEYS
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.exec.write.writes import delete_batch, update_record
from tests.planning import Bench
from tests.query_samples import Samples


def assert_exact(bench: Bench, index: CollectionIndex) -> None:
    assert index.data is not None
    stored, _ = index.data.scan(ALL_KEYS, None, 100_000)
    expected: list[tuple[bytes, int]] = []
    for record in bench.collection.store.scan(0, 100_000)[0]:
        expected.extend((key, record[0]) for key in index.keys_of(record[1]))
        assert index.arrays.holds(index.keys.array_paths)
    assert stored == sorted(expected)


def check_sample(seed: int, arrays: bool, writes: int) -> None:
    samples = Samples(seed, arrays)
    bench = Bench()
    bench.index(samples.pattern(), **({"sparse": True} if samples.chance(0.3) else {}))
    pattern, options = samples.wildcard()
    bench.index(pattern, **options)
    hashed = samples.hashed(samples.pattern())
    bench.index(hashed)
    for number in range(writes):
        records = bench.collection.store.scan(0, 1000)[0]
        victim = samples.random.choice(records) if records else None
        choice = samples.random.random()
        try:
            if choice < 0.5 or victim is None:
                bench.insert_one({"_id": number, **samples.document()})
            elif choice < 0.85:
                document: dict[str, Any] = {"_id": get_value(victim[1], "_id"), **samples.document()}
                update_record(bench.op, bench.collection, victim, bson_encode(document))
            else:
                delete_batch(bench.op, bench.collection, [victim])
        except CommandError as error:
            assert error.code in (171, 16766, 7246301)  # arrays where an index takes none
    for index in bench.collection.indexes:
        assert_exact(bench, index)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_indexes_follow_every_write(seed: int, arrays: bool) -> None:
    check_sample(seed, arrays, 30)


@pytest.mark.parametrize("seed", range(3))
def test_indexes_follow_many_writes(seed: int) -> None:
    check_sample(seed, seed % 2 == 0, 200)
