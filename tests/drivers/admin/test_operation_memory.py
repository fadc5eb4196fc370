"""One budget for what all running sorts, groups and joins hold: beyond it they use files earlier, or fail."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure

import mongottl
from tests.on_nodes import own_figures

pytestmark = own_figures

DOCUMENTS = 800
PAD = "x" * 12_000
# One user may have half of it: less than one sort of the collection needs.
BUDGET_MB = 4
CLIENTS = 3
# What the operations of all these clients may hold beyond the budget, so that they get on.
LEAST_BYTES = 4 * CLIENTS << 20

Client = pymongo.MongoClient[dict[str, Any]]


@contextmanager
def limited(megabytes: int, **options: Any) -> Iterator[Client]:
    """A client of a server whose operations may hold so much."""
    with (
        mongottl.start_server(operation_memory_mb=megabytes, **options) as server,
        Client(server.uri) as client,
    ):
        yield client


def held(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.admin.command("serverStatus")["mongottl"]["operationMemory"]
    return found


def filled(client: Client) -> Any:
    order = list(range(DOCUMENTS))
    random.Random(5).shuffle(order)
    client.shop.coll.insert_many([{"_id": number, "n": place, "pad": PAD} for number, place in enumerate(order)])
    client.shop.keys.insert_many([{"_id": number, "n": number, "to": number + 1} for number in range(DOCUMENTS)])
    return client.shop.coll


WINDOW = {"sortBy": {"n": 1}, "output": {"before": {"$sum": "$n", "window": {"documents": ["unbounded", "current"]}}}}
ROOTS = {"$push": "$$ROOT"}
# What may use files: by name, the collection, the pipeline, and whether explain names its use of files.
SPILLING: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "$sort": ("coll", [{"$sort": {"n": 1}}]),
    "$sort with $limit": ("coll", [{"$sort": {"n": 1}}, {"$limit": 700}]),
    "$group": ("coll", [{"$group": {"_id": "$n", "pad": {"$first": "$pad"}}}, {"$sort": {"_id": 1}}]),
    "$group with $push": ("coll", [{"$group": {"_id": "$n", "docs": ROOTS}}, {"$sort": {"_id": 1}}]),
    "$bucketAuto": ("coll", [{"$bucketAuto": {"groupBy": "$n", "buckets": 200, "output": {"docs": ROOTS}}}]),
    "$setWindowFields": ("coll", [{"$setWindowFields": WINDOW}]),
    "$lookup": (
        "keys",
        [{"$lookup": {"from": "coll", "localField": "n", "foreignField": "n", "as": "found"}}, {"$limit": 100}],
    ),
}
# What cannot.
GATHERING: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "$group of one": ("coll", [{"$group": {"_id": None, "docs": ROOTS}}]),
    "$facet": ("coll", [{"$facet": {"all": [{"$match": {}}]}}]),
    "$bucketAuto of one": ("coll", [{"$bucketAuto": {"groupBy": "$n", "buckets": 1, "output": {"docs": ROOTS}}}]),
    "$setWindowFields of all": ("coll", [{"$setWindowFields": {"output": {"docs": ROOTS}}}]),
    "$lookup of all": (
        "keys",
        [{"$limit": 1}, {"$lookup": {"from": "coll", "pipeline": [], "as": "found"}}],
    ),
    "$graphLookup": (
        "keys",
        [
            {"$limit": 1},
            {
                "$graphLookup": {
                    "from": "coll",
                    "startWith": list(range(DOCUMENTS)),
                    "connectFromField": "none",
                    "connectToField": "n",
                    "as": "found",
                }
            },
        ],
    ),
    "$densify": (
        "coll",
        [
            {"$project": {"n": 1, "key": {"$concat": ["$pad", {"$toString": "$n"}]}}},
            {"$densify": {"field": "n", "partitionByFields": ["key"], "range": {"step": 1, "bounds": "partition"}}},
        ],
    ),
    "$rankFusion": (
        "coll",
        [{"$rankFusion": {"input": {"pipelines": {"one": [{"$sort": {"n": 1}}]}}}}],
    ),
}


@pytest.fixture(scope="module")
def small() -> Iterator[Client]:
    with limited(BUDGET_MB) as client:
        filled(client)
        yield client


@pytest.fixture(scope="module")
def small_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with limited(BUDGET_MB, data_dir=str(tmp_path_factory.mktemp("data"))) as client:
        filled(client)
        yield client


@pytest.fixture(scope="module")
def large() -> Iterator[Client]:
    with limited(1_000) as client:
        filled(client)
        yield client


@pytest.mark.parametrize("name", SPILLING)
def test_one_client_that_multiplies_uses_files(small: Client, large: Client, name: str) -> None:
    check_multiplied(small, large, name)


def test_on_disk_one_client_that_multiplies_uses_files(small_on_disk: Client, large: Client) -> None:
    check_multiplied(small_on_disk, large, "$sort")


def check_multiplied(small: Client, large: Client, name: str) -> None:
    source, pipeline = SPILLING[name]
    expected = list(large.shop[source].aggregate(pipeline))
    assert held(large)["bytes"] == 0
    coll = small.shop[source]
    refused = held(small)["refused"]
    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(lambda: list(coll.aggregate(pipeline))) for _ in range(CLIENTS)]
        assert all(each.result() == expected for each in running)
    after = held(small)
    assert 0 < after["mostBytes"] <= (BUDGET_MB << 20) + LEAST_BYTES
    assert after["bytes"] == 0
    assert after["refused"] > refused


def test_a_find_uses_files_earlier(small: Client) -> None:
    plan = small.shop.coll.find().sort("n", 1).explain()["executionStats"]["executionStages"]
    assert plan["stage"] == "SORT"
    assert plan["usedDisk"]
    assert held(small)["bytes"] == 0


@pytest.mark.parametrize("name", ["$sort", "$group", "$bucketAuto", "$setWindowFields"])
def test_without_files_it_is_refused(small: Client, name: str) -> None:
    source, pipeline = SPILLING[name]
    with pytest.raises(OperationFailure, match="all running operations together") as caught:
        list(small.shop[source].aggregate(pipeline, allowDiskUse=False))
    assert caught.value.code == 292
    assert held(small)["bytes"] == 0


@pytest.mark.parametrize("name", GATHERING)
def test_stages_that_cannot_spill_fail_above_the_memory_limit(small: Client, name: str) -> None:
    source, pipeline = GATHERING[name]
    with pytest.raises(OperationFailure, match="all running operations together") as caught:
        list(small.shop[source].aggregate(pipeline))
    assert caught.value.code == 146
    assert held(small)["bytes"] == 0


def test_idle_and_closed_cursors_hold_nothing_of_it(small: Client) -> None:
    """What a cursor holds while it is idle counts as that of idle cursors."""
    cursors = [small.shop.coll.aggregate([{"$sort": {"n": 1}}], batchSize=10) for _ in range(3)]
    for cursor in cursors:
        next(cursor)
        assert held(small)["bytes"] == 0
    assert len(list(cursors[0])) == DOCUMENTS - 1
    cursors[1].close()
    assert held(small)["bytes"] == 0
    # The sort of this one runs in its getMore.
    unread = small.shop.coll.aggregate([{"$sort": {"n": 1}}], batchSize=0)
    assert next(unread)["n"] == 0
    assert held(small)["bytes"] == 0


def test_a_killed_operation_gives_its_memory_back(small: Client) -> None:
    with ThreadPoolExecutor(1) as threads:
        # A group of few keys that is fed for a long time.
        pipeline: list[dict[str, Any]] = [
            {"$unionWith": {"coll": "keys", "pipeline": [{"$set": {"many": {"$range": [0, 100_000]}}}]}},
            {"$unwind": "$many"},
            {"$group": {"_id": {"$mod": ["$many", 4_000]}, "count": {"$sum": 1}}},
        ]
        running = threads.submit(lambda: list(small.shop.keys.aggregate(pipeline)))
        while not (found := _operation(small)) or not held(small)["bytes"]:
            assert not running.done()
        small.admin.command("killOp", op=found["opid"])
        with pytest.raises(OperationFailure) as caught:
            running.result()
    assert caught.value.code == 11601
    assert held(small)["bytes"] == 0


def _operation(client: Client) -> Any:
    running = client.admin.aggregate([{"$currentOp": {}}, {"$match": {"ns": "shop.keys"}}])
    return next(iter(running), None)


def test_another_user_finds_half_of_it() -> None:
    with limited(BUDGET_MB, auth=True, user="root", password="secret") as root:
        filled(root)
        root.shop.command("createUser", "other", pwd="secret", roles=["readWrite"])
        address = root.address
        assert address is not None
        with Client(*address, username="other", password="secret", authSource="shop") as other:
            # The first has all it may; so much as the other needs is left.
            push: list[dict[str, Any]] = [
                {"$group": {"_id": None, "docs": {"$push": "$pad"}}},
                {"$project": {"n": {"$size": "$docs"}}},
            ]
            few: list[dict[str, Any]] = [{"$limit": 70}, *push]
            with ThreadPoolExecutor(4) as threads:
                running = [
                    threads.submit(lambda: list(root.shop.coll.aggregate([{"$sort": {"n": 1}}]))) for _ in range(8)
                ]
                for _ in range(3):
                    assert list(other.shop.coll.aggregate(few)) == [{"_id": None, "n": 70}]
                for each in running:
                    each.result()
        assert held(root)["bytes"] == 0
