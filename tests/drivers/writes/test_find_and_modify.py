"""findAndModify: combinations of its options, and which document comes back in which state."""

from typing import Any

import pytest
from bson import Decimal128, Int64
from pymongo import ReturnDocument
from pymongo.database import Database

from tests.drivers.refusals import NOT_NUMERIC, NUMBERS, refusal

Documents = dict[str, Any]


@pytest.fixture
def three(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "a": 1, "n": -i} for i in range(3)])
    return database


def modify(database: Database[Documents], **arguments: Any) -> tuple[Any, Documents]:
    reply = database.command({"findAndModify": "c", **arguments})
    return reply["value"], reply["lastErrorObject"]


INCREMENT: Documents = {"$inc": {"a": 1}}
UPDATED: Documents = {"n": 1, "updatedExisting": True}
MISSED: Documents = {"n": 0, "updatedExisting": False}


@pytest.mark.parametrize(
    ("arguments", "value", "last"),
    [
        ({"query": {"_id": 1}, "update": INCREMENT}, {"_id": 1, "a": 1, "n": -1}, UPDATED),
        ({"query": {"_id": 1}, "update": INCREMENT, "new": True}, {"_id": 1, "a": 2, "n": -1}, UPDATED),
        ({"query": {"_id": 1}, "update": {"a": 9}, "new": 1}, {"_id": 1, "a": 9}, UPDATED),
        ({"query": {"a": 1}, "sort": {"n": 1}, "update": INCREMENT}, {"_id": 2, "a": 1, "n": -2}, UPDATED),
        ({"query": {"a": 1}, "sort": {"n": -1}, "remove": True}, {"_id": 0, "a": 1, "n": 0}, {"n": 1}),
        ({"query": {"_id": 1}, "remove": Int64(1)}, {"_id": 1, "a": 1, "n": -1}, {"n": 1}),
        ({"query": {"_id": 9}, "update": INCREMENT}, None, MISSED),
        ({"query": {"_id": 9}, "update": INCREMENT, "new": True}, None, MISSED),
        ({"query": {"_id": 9}, "remove": True}, None, {"n": 0}),
        ({"query": {"x": 9}, "remove": True}, None, {"n": 0}),
        (
            {"query": {"_id": 9}, "update": INCREMENT, "upsert": True},
            None,
            {"n": 1, "updatedExisting": False, "upserted": 9},
        ),
        (
            {"query": {"_id": 9}, "update": INCREMENT, "upsert": True, "new": True},
            {"_id": 9, "a": 1},
            {"n": 1, "updatedExisting": False, "upserted": 9},
        ),
        ({"query": {"_id": 1}, "update": INCREMENT, "upsert": True}, {"_id": 1, "a": 1, "n": -1}, UPDATED),
        ({"query": {"_id": 1}, "update": INCREMENT, "fields": {"a": 1, "_id": 0}}, {"a": 1}, UPDATED),
        ({"query": {"_id": 1}, "remove": True, "fields": {"n": 0}}, {"_id": 1, "a": 1}, {"n": 1}),
        (
            {"query": {"_id": 1}, "update": [{"$set": {"a": {"$add": ["$a", "$$x"]}}}], "let": {"x": 5}, "new": True},
            {"_id": 1, "a": 6, "n": -1},
            UPDATED,
        ),
        ({"query": {"_id": 1}, "update": {"$set": {"a": 1}}}, {"_id": 1, "a": 1, "n": -1}, UPDATED),
        # With an _id to go by, the sort is of no use and is not even looked at.
        ({"query": {"_id": 1}, "update": INCREMENT, "sort": {"a": "up"}}, {"_id": 1, "a": 1, "n": -1}, UPDATED),
        ({"query": {"_id": 1}, "update": INCREMENT, "hint": {"_id": 1}}, {"_id": 1, "a": 1, "n": -1}, UPDATED),
        ({"query": None, "sort": None, "fields": None, "update": INCREMENT}, {"_id": 0, "a": 1, "n": 0}, UPDATED),
    ],
    ids=str,
)
def test_find_and_modify_returns_the_document_and_last_error_object(
    three: Database[Documents], arguments: Documents, value: Any, last: Documents
) -> None:
    assert modify(three, **arguments) == (value, last)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, 9),
        ({"remove": False}, 9),
        ({"remove": True, "update": {}}, 9),
        ({"remove": True, "upsert": True}, 9),
        ({"remove": True, "new": True}, 9),
        ({"remove": True, "arrayFilters": []}, 9),
        ({"update": 1}, 9),
        ({"update": None}, 9),
        ({"update": {}, "hint": 1}, 9),
        ({"update": {}, "hint": None}, 9),
        ({"update": {}, "hint": "none"}, 2),
        ({"query": {"_id": 1}, "update": {}, "hint": "none"}, 2),
        ({"update": {}, "query": 1}, 14),
        ({"update": {}, "sort": 1}, 14),
        ({"update": {}, "sort": {"a": "up"}}, 15974),
        ({"update": {}, "fields": 1}, 14),
        ({"update": {}, "fields": {"a": 1, "b": 0}}, 31254),
        ({"update": {}, "arrayFilters": 1}, 14),
        ({"update": {"$set": {"a": 1}}, "arrayFilters": [{"x": 1}]}, 9),
        ({"update": {}, "let": 1}, 14),
        ({"update": {}, "collation": 1}, 14),
        ({"query": {"_id": 1}, "update": {}, "collation": {"locale": "xx"}}, 2),
        ({"update": {}, "writeConcern": 1}, 14),
        ({"update": {}, "readConcern": {"level": "majority"}}, 72),
        ({"update": {}, "maxTimeMS": Decimal128("1.5")}, 9),
        ({"update": {}, "nothing": 1}, 40415),
        ({"query": {"_id": 1}, "update": {"$set": {"_id": 2}}}, 66),
        ({"query": {"_id": 1}, "update": {"$nothing": {"a": 2}}}, 9),
    ],
    ids=str,
)
def test_find_and_modify_refuses_invalid_arguments(three: Database[Documents], arguments: Documents, code: int) -> None:
    assert refusal(three, {"findAndModify": "c", **arguments}) == code
    assert three.c.count_documents({"a": 1}) == 3


@pytest.mark.parametrize("option", ["new", "upsert", "bypassDocumentValidation"])
def test_options_take_truth_and_numbers(three: Database[Documents], option: str) -> None:
    command: Documents = {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"a": 1}}}
    for value in (*NUMBERS, True, False, None):
        assert refusal(three, {**command, option: value}) == 0, value
    for value in NOT_NUMERIC:
        assert refusal(three, {**command, option: value}) == 14, value


def test_positions_in_arrays(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1, "list": [{"k": 1}, {"k": 2}, {"k": 3}]})
    value, _ = modify(
        database, query={"_id": 1, "list.k": 2}, update={"$set": {"list.$.v": 1}}, fields={"list.$": 1}, new=True
    )
    assert value == {"_id": 1, "list": [{"k": 2, "v": 1}]}
    value, _ = modify(
        database,
        query={"_id": 1},
        update={"$set": {"list.$[big].v": 2}},
        arrayFilters=[{"big.k": {"$gt": 1}}],
        new=True,
    )
    assert value["list"] == [{"k": 1}, {"k": 2, "v": 2}, {"k": 3, "v": 2}]


def test_a_duplicate_key_fails_the_command(three: Database[Documents]) -> None:
    three.c.create_index("n", unique=True)
    assert refusal(three, {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"n": 0}}}) == 11000
    assert refusal(three, {"findAndModify": "c", "query": {"_id": 7}, "update": {"n": 0}, "upsert": True}) == 11000
    assert three.c.count_documents({}) == 3


def test_the_methods_of_the_driver(three: Database[Documents]) -> None:
    assert three.c.find_one_and_update({"a": 1}, INCREMENT, sort=[("_id", -1)]) == {"_id": 2, "a": 1, "n": -2}
    after = three.c.find_one_and_replace({"_id": 2}, {"b": 1}, return_document=ReturnDocument.AFTER)
    assert after == {"_id": 2, "b": 1}
    assert three.c.find_one_and_delete({"b": 1}, {"_id": 0}) == {"b": 1}
    assert three.c.find_one_and_delete({"b": 1}) is None


def test_no_such_collection(database: Database[Documents]) -> None:
    assert modify(database, query={"_id": 1}, remove=True) == (None, {"n": 0})
    assert modify(database, query={"_id": 1}, update=INCREMENT) == (None, MISSED)
    assert database.list_collection_names() == []
    assert modify(database, query={"_id": 1}, update=INCREMENT, upsert=True, new=True)[0] == {"_id": 1, "a": 1}
