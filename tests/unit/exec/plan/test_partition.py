"""Which partition a filter names, for an engine that keeps partitions apart."""

from typing import Any

import pytest

from mongottl.catalog.collection import Collection
from mongottl.catalog.options import NO_OPTIONS
from mongottl.document.keystring import encode_value
from mongottl.exec.plan.partition import named_partition
from mongottl.storage.memory.engine import MemoryEngine
from tests.planning import match_of

NOT_NAMED = [
    {},
    {"n": 5},
    {"region": {"$gt": "north"}},
    {"region": {"$in": ["north", "south"]}},
    {"region": None},
    {"region": ["north"]},
    {"$or": [{"region": "north"}, {"n": 5}]},
    {"region.x": "north"},
]


def collection(path: str, is_partitioned: bool = True) -> Collection:
    engine = MemoryEngine()
    with engine.unit_of_work() as work:
        store = engine.create_partitioned_store("records")
        work.commit()
    store.is_partitioned = is_partitioned
    return Collection("shop", "orders", 1, bytes(16), NO_OPTIONS.provisioned(path, None), store)


@pytest.mark.parametrize("filter", [{"region": "north"}, {"n": {"$gt": 5}, "region": {"$eq": "north"}}])
def test_an_equality_on_the_shard_key_names_a_partition(filter: dict[str, Any]) -> None:
    assert named_partition(collection("region"), match_of(filter)) == encode_value("north")


@pytest.mark.parametrize("filter", NOT_NAMED)
def test_other_filters_name_none(filter: dict[str, Any]) -> None:
    assert named_partition(collection("region"), match_of(filter)) is None


def test_no_filter_and_other_collections_name_none() -> None:
    match = match_of({"region": "north"})
    assert named_partition(collection("region"), None) is None
    assert named_partition(collection("region", is_partitioned=False), match) is None
    assert named_partition(collection("", is_partitioned=False), match) is None


def test_equal_numbers_are_of_one_partition() -> None:
    shard_key = collection("n").shard_key
    assert shard_key is not None
    values = [named_partition(collection("n"), match_of({"n": value})) for value in (1, 1.0)]
    assert values[0] == values[1] == encode_value(1)
