"""collectionUUID of reads, writes and changes of the catalogue."""

from typing import Any
from uuid import uuid4

import pytest
from bson import Binary
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.drivers.refusals import refusal

Documents = dict[str, Any]

COMMANDS: list[Documents] = [
    {"find": "c"},
    {"find": "c", "filter": {"_id": 1}},
    {"count": "c"},
    {"distinct": "c", "key": "a"},
    {"aggregate": "c", "pipeline": [], "cursor": {}},
    {"insert": "c", "documents": [{"_id": 2}]},
    {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"b": 1}}}]},
    {"delete": "c", "deletes": [{"q": {"_id": 5}, "limit": 1}]},
    {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"b": 2}}},
    {"createIndexes": "c", "indexes": [{"key": {"b": 1}, "name": "b_1"}]},
    {"dropIndexes": "c", "index": "a_1"},
    {"collMod": "c"},
]


def uuid_of(database: Database[Documents], name: str) -> Binary:
    [found] = database.command({"listCollections": 1, "filter": {"name": name}})["cursor"]["firstBatch"]
    uuid = found["info"]["uuid"]
    return Binary.from_uuid(uuid) if not isinstance(uuid, Binary) else uuid


@pytest.fixture
def two(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_one({"_id": 1, "a": 1})
    database.c.create_index("a")
    database.other.insert_one({"_id": 1})
    database.command({"create": "v", "viewOn": "c", "pipeline": []})
    return database


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_right_one_is_taken_and_others_refused(two: Database[Documents], command: Documents) -> None:
    name = next(iter(command))
    assert refusal(two, {**command, "collectionUUID": uuid_of(two, "other")}) == 361
    assert refusal(two, {**command, name: "none", "collectionUUID": uuid_of(two, "c")}) == 361
    assert refusal(two, {**command, name: "v", "collectionUUID": uuid_of(two, "c")}) == 361
    assert refusal(two, {**command, "collectionUUID": Binary(b"x", 4)}) == 207
    assert refusal(two, {**command, "collectionUUID": "x"}) == 14
    assert two.c.count_documents({}) == 1
    assert two.c.find_one() == {"_id": 1, "a": 1}
    assert refusal(two, {**command, "collectionUUID": uuid_of(two, "c")}) == 0


def test_details(two: Database[Documents]) -> None:
    uuid = uuid_of(two, "other")
    with pytest.raises(OperationFailure) as caught:
        two.command({"find": "c", "collectionUUID": uuid})
    expected = {"db": two.name, "collectionUUID": uuid, "expectedCollection": "c", "actualCollection": "other"}
    details = caught.value.details or {}
    assert {name: details[name] for name in expected} == expected
    with pytest.raises(OperationFailure) as caught:
        two.command({"find": "c", "collectionUUID": Binary.from_uuid(uuid4())})
    assert (caught.value.details or {})["actualCollection"] is None


def test_batches_tell_of_each_statement(two: Database[Documents]) -> None:
    documents = [{"_id": 7}, {"_id": 8}]
    command = {"insert": "c", "documents": documents, "collectionUUID": uuid_of(two, "other")}
    reply = two.command(command)
    assert (reply["n"], [error["index"] for error in reply["writeErrors"]]) == (0, [0])
    assert reply["writeErrors"][0]["actualCollection"] == "other"
    reply = two.command({**command, "ordered": False})
    assert [error["code"] for error in reply["writeErrors"]] == [361, 361]


def test_bulk_write(two: Database[Documents]) -> None:
    reply = two.client.admin.command(
        {
            "bulkWrite": 1,
            "ops": [
                {"insert": 0, "document": {"_id": 5}},
                {"update": 0, "filter": {}, "updateMods": {"$set": {"x": 1}}},
                {"delete": 0, "filter": {}},
                {"insert": 1, "document": {"_id": 5}},
            ],
            "nsInfo": [
                {"ns": f"{two.name}.c", "collectionUUID": uuid_of(two, "other")},
                {"ns": f"{two.name}.other", "collectionUUID": uuid_of(two, "other")},
            ],
            "ordered": False,
        }
    )
    entries = reply["cursor"]["firstBatch"]
    assert [(entry["ok"], entry.get("code")) for entry in entries] == [(0, 361), (0, 361), (0, 361), (1, None)]
    assert (reply["nErrors"], reply["nInserted"]) == (3, 1)
