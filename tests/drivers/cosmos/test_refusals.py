"""Every refusal of the dialect `cosmos` that has a name: in force by default, and switched off while the server runs.

A row of `cosmos_choices.REFUSALS` needs a sample here: a request that the account refuses, and takes once it is
allowed.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pymongo
import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from mongottl.config.cosmos_choices import REFUSALS
from tests.on_nodes import own_account
from tests.on_store import has_all_keys, needs_one_machine, stays_in_its_place

pytestmark = own_account

Client = pymongo.MongoClient[dict[str, Any]]
Shop = Database[dict[str, Any]]
RETRYABLE = "EnableMongoRetryableWrites"
# What some store refuses as well when the dialect allows it, with the mark of its tests.
REFUSED_BY_STORES = {
    "unique-without-shard-key": has_all_keys,
    "shard-key-change": stays_in_its_place,
    "cross-collection-transaction": needs_one_machine,
}


class Sample:
    """request: what is refused, with this code. setup: makes what is there before. capabilities: of the account."""

    def __init__(
        self,
        code: int,
        request: Callable[[Shop, mongottl.RunningServer], object],
        setup: Callable[[Shop], object] = lambda shop: None,
        capabilities: tuple[str, ...] = (),
    ) -> None:
        self.code = code
        self.request = request
        self.setup = setup
        self.capabilities = capabilities


def command(*arguments: Any, **fields: Any) -> Callable[[Shop, mongottl.RunningServer], object]:
    return lambda shop, server: shop.command(*arguments, **fields)


def index(key: dict[str, Any], **options: Any) -> Callable[[Shop, mongottl.RunningServer], object]:
    return command("createIndexes", "orders", indexes=[{"key": key, "name": "x", **options}])


def sharded(shop: Shop) -> None:
    shop.command({"customAction": "CreateCollection", "collection": "orders", "shardKey": "customer"})
    shop.orders.insert_one({"_id": 1, "customer": "ann"})


def filled(shop: Shop) -> None:
    shop.orders.insert_one({"_id": 1, "a": [1]})


def nested(levels: int) -> dict[str, Any]:
    """A document with so many levels of documents, itself included."""
    document: dict[str, Any] = {}
    for _ in range(levels - 1):
        document = {"a": document}
    return document


def transaction(*names: str, seconds: int = 0) -> Callable[[Shop, mongottl.RunningServer], object]:
    """A transaction that inserts into these collections, and then takes some time."""

    def run(shop: Shop, server: mongottl.RunningServer) -> None:
        with shop.client.start_session() as session, session.start_transaction():
            for name in names:
                shop[name].insert_one({"_id": 5, "customer": "bob"}, session=session)
            if seconds:
                server.clock.advance(seconds)

    return run


def retried_batch(shop: Shop, server: mongottl.RunningServer) -> None:
    with Client(server.uri, retryWrites=True) as client:
        client.shop.things.insert_many([{"_id": 1}, {"_id": 2}], ordered=False)


def watched(shop: Shop, server: mongottl.RunningServer) -> None:
    for watchable in (shop, shop.client):
        with watchable.watch(max_await_time_ms=1) as stream:
            shop.orders.delete_one({"_id": 1})
            shop.orders.insert_one({"_id": 1})
            assert [stream.next()["operationType"] for _ in range(2)] == ["delete", "insert"]


def joined_texts(shop: Shop, server: mongottl.RunningServer) -> None:
    """In a new connection: PyMongo refuses replies beyond the length that its `hello` was told."""
    with Client(server.uri) as client:
        list(client.shop.orders.aggregate([{"$group": {"_id": None, "all": {"$push": "$text"}}}]))


def insert(*documents: dict[str, Any]) -> Callable[[Shop, mongottl.RunningServer], object]:
    return lambda shop, server: shop.orders.insert_many(documents)


SAMPLES: dict[str, list[Sample]] = {
    "sort-without-index": [Sample(2, lambda shop, server: list(shop.orders.find().sort("a")), filled)],
    "late-unique-index": [Sample(67, index({"a": 1}, unique=True), filled)],
    "unique-without-shard-key": [
        Sample(67, index({"a": 1}, unique=True), sharded, ("EnableUniqueIndexReIndex",)),
    ],
    "index-kinds": [
        Sample(115, index({"a": "text"})),
        Sample(115, index({"a": "2d"})),
        Sample(115, index({"a": "hashed"})),
        Sample(115, index({"a": 1}, partialFilterExpression={"b": 1})),
        Sample(197, index({"a": 1}, collation={"locale": "de"})),
        Sample(197, index({"$**": 1}, wildcardProjection={"a": 1})),
        Sample(67, index({"a": 1, "b.$**": 1})),
    ],
    "index-limits": [
        Sample(67, index({f"f{n}": 1 for n in range(9)})),
        Sample(67, index({"a.b.c.d.e.f.g": 1})),
        Sample(
            67,
            index({"g": 1}),
            lambda shop: shop.command(
                "createIndexes", "orders", indexes=[{"key": {f"f{n}": 1}, "name": f"f{n}"} for n in range(500)]
            ),
        ),
        Sample(
            67,
            index({"g": 1}, unique=True),
            lambda shop: shop.command(
                "createIndexes",
                "orders",
                indexes=[{"key": {f"f{n}": 1}, "name": f"f{n}", "unique": True} for n in range(10)],
            ),
        ),
        Sample(
            2,
            index({"b": 1}, expireAfterSeconds=60),
            lambda shop: shop.orders.create_index("a", expireAfterSeconds=60),
            ("EnableTtlOnCustomPath",),
        ),
        Sample(2, index({"b": 1}, expireAfterSeconds=0), capabilities=("EnableTtlOnCustomPath",)),
        Sample(
            67,
            index({"a": -1}, expireAfterSeconds=60),
            lambda shop: shop.orders.create_index("a", unique=True, partialFilterExpression={"b": 1}),
            ("EnableTtlOnCustomPath", "EnablePartialUniqueIndex"),
        ),
    ],
    "missing-features": [
        Sample(115, command("collMod", "orders"), filled),
        Sample(
            40324,
            command("aggregate", "orders", pipeline=[{"$bucketAuto": {"groupBy": "$a", "buckets": 1}}], cursor={}),
        ),
        Sample(2, command("find", "orders", collation={"locale": "de"})),
        Sample(2, command("find", "orders", filter={"$where": "this.a"})),
    ],
    "missing-shard-key": [
        Sample(61, insert({"_id": 2}), sharded),
        Sample(61, insert({"_id": 2}, {"_id": 3, "customer": ["bob"]}), sharded),
        Sample(61, lambda shop, server: shop.orders.update_many({"_id": 2}, {"$set": {"a": 1}}, upsert=True), sharded),
    ],
    "shard-key-change": [
        Sample(66, lambda shop, server: shop.orders.update_many({"_id": 1}, {"$set": {"customer": "bob"}}), sharded),
        Sample(66, lambda shop, server: shop.orders.update_many({"_id": 1}, {"$unset": {"customer": 1}}), sharded),
    ],
    "untargeted-write": [Sample(61, lambda shop, server: shop.orders.delete_one({"_id": 1}), sharded)],
    "update-pipeline": [Sample(9, lambda shop, server: shop.orders.update_one({}, [{"$set": {"a": 1}}]), filled)],
    "array-literal-comparison": [
        Sample(2, command("find", "orders", filter={"$expr": {operator: ["$a", [1, 2]]}}), filled)
        for operator in ("$cmp", "$eq", "$gt", "$gte", "$lt", "$lte", "$ne")
    ]
    + [
        Sample(2, command("find", "orders", projection={"b": {"$eq": [[], "$a"]}}), filled),
        Sample(2, command("find", "orders", projection={"b": {"$ne": ["$a", {"$literal": [1]}]}}), filled),
        Sample(2, command("aggregate", "orders", pipeline=[{"$set": {"b": {"$eq": ["$a", []]}}}], cursor={})),
    ],
    "cross-collection-transaction": [Sample(50841, transaction("orders", "items"))],
    "sharded-transaction": [Sample(50841, transaction("orders"), sharded)],
    "unordered-retryable-write": [Sample(2, retried_batch, capabilities=(RETRYABLE,))],
    "bare-watch": [
        Sample(
            2,
            command("aggregate", "orders", pipeline=[{"$changeStream": {}}], cursor={}),
            filled,
        )
    ],
    "database-watch": [Sample(14, watched, filled)],
    "time-limits": [Sample(2, transaction("orders", seconds=6))],
    "size-limits": [
        Sample(2, insert({"_id": "x" * 1024})),
        Sample(2, insert(nested(130) | {"_id": 1})),
        Sample(2, insert({"_id": 2, "customer": "x" * 2049}), sharded),
        Sample(16, command("insert", "orders", documents=[{"_id": n} for n in range(1001)])),
        Sample(
            10334,
            joined_texts,
            lambda shop: [shop.orders.insert_one({"_id": n, "text": "x" * 1_500_000}) for n in range(4)],
        ),
    ],
    "collection-names": [
        Sample(73, command("create", "a#b")),
        Sample(73, command({"customAction": "CreateCollection", "collection": "a b"})),
    ],
    "create-existing": [Sample(48, command("create", "orders"), filled)],
}


@pytest.fixture(scope="module")
def cosmos() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(dialect="cosmos") as running:
        yield running


@pytest.fixture
def shop(cosmos: mongottl.RunningServer) -> Iterator[Shop]:
    with Client(cosmos.uri) as client:
        yield client.shop
        client.admin.command("configureCosmos", {"capabilities": [], "allow": []})
        client.drop_database("shop")


def code_of(failed: OperationFailure) -> Any:
    details = failed.details
    assert details is not None
    return details["writeErrors"][0]["code"] if details.get("writeErrors") else details["code"]


def test_every_refusal_has_a_sample() -> None:
    assert list(SAMPLES) == list(REFUSALS)
    assert all(SAMPLES.values())


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        pytest.param(name, sample, id=f"{name}-{number}", marks=REFUSED_BY_STORES.get(name, ()))
        for name, samples in SAMPLES.items()
        for number, sample in enumerate(samples)
    ],
)
def test_a_refusal_is_in_force_until_it_is_allowed(
    shop: Shop, cosmos: mongottl.RunningServer, name: str, sample: Sample
) -> None:
    admin = shop.client.admin
    admin.command("configureCosmos", {"capabilities": [*sample.capabilities]})
    sample.setup(shop)
    with pytest.raises(OperationFailure) as caught:
        sample.request(shop, cosmos)
    assert code_of(caught.value) == sample.code
    was = admin.command("configureCosmos", {"allow": [name]})["was"]
    sample.request(shop, cosmos)
    admin.command("configureCosmos", was)


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_others_being_allowed_changes_nothing(shop: Shop, cosmos: mongottl.RunningServer, name: str) -> None:
    """Each has its own name: what another one allows is still refused."""
    sample = SAMPLES[name][0]
    others = [other for other in REFUSALS if other != name]
    settings = {"capabilities": [*sample.capabilities], "allow": others}
    shop.client.admin.command("configureCosmos", settings)
    sample.setup(shop)
    with pytest.raises(OperationFailure) as caught:
        sample.request(shop, cosmos)
    assert code_of(caught.value) == sample.code
