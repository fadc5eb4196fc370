"""The asynchronous clients over a real socket: PyMongo's AsyncMongoClient, and Motor."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pymongo import AsyncMongoClient, InsertOne, UpdateOne
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

import mongottl
from tests.on_nodes import of_replica_set

WAYS = ("", "?replicaSet=globaldb", "?directConnection=true")


async def use(client: Any, name: str, aggregate: Callable[[Any, list[dict[str, Any]]], Awaitable[Any]]) -> None:
    """What both kinds of client do alike."""
    things = client[name].things
    assert (await client.admin.command("ping"))["ok"] == 1
    await things.insert_many([{"_id": n, "a": n % 3} for n in range(500)])
    found = [d["_id"] async for d in things.find(batch_size=50)]
    assert found == list(range(500))
    assert len(await things.find({"a": 1}).to_list(None)) == 167
    assert await things.find_one({"_id": 7}) == {"_id": 7, "a": 1}
    assert (await things.update_many({"a": 1}, {"$inc": {"b": 1}})).modified_count == 167
    assert (await things.update_one({"_id": -1}, {"$set": {"a": 9}}, upsert=True)).upserted_id == -1
    assert (await things.delete_one({"_id": -1})).deleted_count == 1
    result = await things.bulk_write([InsertOne({"_id": 1000}), UpdateOne({"_id": 1}, {"$set": {"c": 1}})])
    assert (result.inserted_count, result.modified_count) == (1, 1)
    with pytest.raises(DuplicateKeyError):
        await things.insert_one({"_id": 1})
    assert await things.create_index("_ts", expireAfterSeconds=3600) == "_ts_1"
    assert (await things.index_information())["_ts_1"]["expireAfterSeconds"] == 3600
    cursor = await aggregate(things, [{"$group": {"_id": "$a", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
    assert [d async for d in cursor][-1] == {"_id": 2, "n": 166}
    assert await things.count_documents({}) == 501
    assert sorted(await client[name].list_collection_names()) == ["things"]
    async with await session(client) as started:
        await things.insert_one({"_id": 2000}, session=started)
        async with await transaction(started):
            await things.insert_one({"_id": 2001}, session=started)
            assert await things.find_one({"_id": 2001}) is None
    assert await things.find_one({"_id": 2001}) == {"_id": 2001}
    await asyncio.gather(*[things.find_one({"_id": n}) for n in range(50)])


async def session(client: Any) -> Any:
    started = client.start_session()
    return await started if asyncio.iscoroutine(started) else started


async def transaction(started: Any) -> Any:
    begun = started.start_transaction()
    return await begun if asyncio.iscoroutine(begun) else begun


@of_replica_set
@pytest.mark.parametrize("way", WAYS)
def test_pymongo_async(server: mongottl.RunningServer, database: Database[dict[str, Any]], way: str) -> None:
    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](server.uri + way) as client:
            await use(client, database.name, lambda coll, pipeline: coll.aggregate(pipeline))

    asyncio.run(main())


@of_replica_set
@pytest.mark.parametrize("way", WAYS)
def test_motor(server: mongottl.RunningServer, database: Database[dict[str, Any]], way: str) -> None:
    motor_asyncio = pytest.importorskip("motor.motor_asyncio", reason="Motor is not installed")

    async def cursor(coll: Any, pipeline: list[dict[str, Any]]) -> Any:
        return coll.aggregate(pipeline)

    async def main() -> None:
        client = motor_asyncio.AsyncIOMotorClient(server.uri + way)
        try:
            await use(client, database.name, cursor)
        finally:
            client.close()

    asyncio.run(main())
