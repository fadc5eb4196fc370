"""`createIndexes` reports the actual number of indexes.

Cosmos DB's documented reply to the first index on `_ts` of a new collection has `numIndexesBefore: 1` and
`numIndexesAfter: 4`. Source: Microsoft's article "Expire data with Azure Cosmos DB for MongoDB".
"""

from typing import Any

from pymongo.database import Database

TTL = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 10}


def test_the_numbers_are_those_of_the_list(cosmos: Database[dict[str, Any]]) -> None:
    reply = cosmos.command({"createIndexes": "coll", "indexes": [TTL]})
    assert reply["_t"] == "CreateIndexesResponse"
    assert (reply["numIndexesBefore"], reply["numIndexesAfter"]) == (1, 2)
    assert len(list(cosmos["coll"].list_indexes())) == 2
