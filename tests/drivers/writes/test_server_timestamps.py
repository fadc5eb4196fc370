"""Timestamps that the server fills in: all differ, as MongoDB's do."""

from typing import Any

import pytest
from bson import Timestamp
from pymongo import ReplaceOne
from pymongo.database import Database
from pymongo.errors import OperationFailure

Documents = dict[str, Any]
EMPTY = Timestamp(0, 0)


def all_differ(found: list[Timestamp]) -> bool:
    return len(set(found)) == len(found) and all(stamp.time > 0 for stamp in found)


def test_inserted_documents(database: Database[Documents]) -> None:
    database.t.insert_many([{"_id": number, "a": EMPTY, "b": EMPTY} for number in range(20)])
    database.t.insert_one({"_id": 20, "a": EMPTY})
    found = [document[name] for document in database.t.find().sort("_id") for name in "ab" if name in document]
    assert all_differ(found)
    assert found == sorted(found)


def test_replacements(database: Database[Documents]) -> None:
    database.t.insert_many([{"_id": number} for number in range(3)])
    database.t.bulk_write([ReplaceOne({"_id": number}, {"a": EMPTY, "b": EMPTY}) for number in range(3)])
    database.t.replace_one({"_id": 3}, {"a": EMPTY}, upsert=True)
    database.t.find_one_and_replace({"_id": 4}, {"a": EMPTY}, upsert=True)
    assert all_differ([value for document in database.t.find({}, {"_id": 0}) for value in document.values()])


def test_current_date(database: Database[Documents]) -> None:
    database.t.insert_many([{"_id": number, "a": 0} for number in range(5)])
    stamp = {"$type": "timestamp"}
    assert database.t.update_many({}, {"$currentDate": {"a": stamp, "b": stamp}}).modified_count == 5
    database.t.update_one({"_id": 7}, {"$currentDate": {"a": stamp}}, upsert=True)
    assert all_differ([value for document in database.t.find({}, {"_id": 0}) for value in document.values()])


def test_empty_timestamps_in_id_and_below_the_top_stay(database: Database[Documents]) -> None:
    database.t.insert_one({"_id": EMPTY, "a": {"b": EMPTY}, "l": [EMPTY]})
    database.t.update_one({"_id": EMPTY}, {"$set": {"s": EMPTY}})
    assert database.t.find_one() == {"_id": EMPTY, "a": {"b": EMPTY}, "l": [EMPTY], "s": EMPTY}


def test_empty_timestamps_that_the_client_keeps(database: Database[Documents]) -> None:
    """mongorestore and mongoimport send this with every write."""
    keeping = {"bypassEmptyTsReplacement": True}
    database.command({"insert": "t", "documents": [{"_id": number, "a": EMPTY} for number in range(2)], **keeping})
    database.command({"insert": "t", "documents": [{"_id": 2, "a": EMPTY}], **keeping})
    replaced = [{"q": {"_id": number}, "u": {"b": EMPTY}, "upsert": True} for number in (0, 3, 4)]
    database.command({"update": "t", "updates": replaced, **keeping})
    database.command({"update": "t", "updates": [{"q": {"_id": 1}, "u": {"b": EMPTY}}], **keeping})
    database.command({"findAndModify": "t", "query": {"_id": 5}, "update": {"b": EMPTY}, "upsert": True, **keeping})
    operations = [
        {"insert": 0, "document": {"_id": 6, "a": EMPTY}},
        {"update": 0, "filter": {"_id": 7}, "updateMods": {"b": EMPTY}, "upsert": True},
    ]
    database.client.admin.command(
        {"bulkWrite": 1, "ops": operations, "nsInfo": [{"ns": f"{database.name}.t"}], **keeping}
    )
    assert [set(document.values()) - {document["_id"]} for document in database.t.find().sort("_id")] == [{EMPTY}] * 8
    database.command({"delete": "t", "deletes": [{"q": {}, "limit": 0}], **keeping})


def test_replacing_empty_timestamps_on_request(database: Database[Documents]) -> None:
    insert = {"insert": "t", "documents": [{"_id": 0, "a": EMPTY}]}
    database.command({**insert, "bypassEmptyTsReplacement": False})
    assert all_differ([document["a"] for document in database.t.find()])
    with pytest.raises(OperationFailure, match="bypassEmptyTsReplacement") as caught:
        database.command({**insert, "bypassEmptyTsReplacement": "yes"})
    assert caught.value.code == 14
