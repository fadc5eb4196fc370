"""Validators of collections, over the wire: which writes they refuse, and what they say."""

import json
from typing import Any

import pytest
from bson import SON, Code
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure, WriteError

from tests.on_nodes import own_log

Documents = dict[str, Any]

POSITIVE: dict[str, Any] = {"a": {"$gt": 0}}


@pytest.fixture
def checked(database: Database[Documents]) -> Database[Documents]:
    """A database whose collection `c` takes only documents with a positive `a`."""
    database.create_collection("c", validator=POSITIVE)
    return database


def refused(database: Database[Documents], command: dict[str, Any]) -> dict[str, Any]:
    """The `errInfo` with which a command, or its first statement, fails validation."""
    try:
        reply = database.command(SON(command))
    except OperationFailure as failure:
        assert failure.details is not None
        error = dict(failure.details)
    else:
        error = reply["writeErrors"][0]
    assert error["code"] == 121
    assert error["errmsg"] == "Document failed validation" or error["errmsg"].endswith("Document failed validation")
    info: dict[str, Any] = error["errInfo"]
    return info


def info(identifier: Any, value: Any) -> dict[str, Any]:
    return {
        "failingDocumentId": identifier,
        "details": {
            "operatorName": "$gt",
            "specifiedAs": POSITIVE,
            "reason": "comparison failed",
            "consideredValue": value,
        },
    }


def test_inserts(checked: Database[Documents]) -> None:
    with pytest.raises(WriteError) as caught:
        checked.c.insert_one({"_id": 1, "a": -1})
    assert caught.value.details is not None
    assert caught.value.details["errInfo"] == info(1, -1)
    checked.c.insert_one({"_id": 1, "a": 1})
    with pytest.raises(BulkWriteError) as many:
        checked.c.insert_many([{"_id": i, "a": i - 5} for i in range(2, 10)], ordered=False)
    errors = many.value.details["writeErrors"]
    assert [(error["index"], error["code"]) for error in errors] == [(i, 121) for i in range(4)]
    assert errors[0]["errInfo"] == info(2, -3)
    assert sorted(checked.c.distinct("_id")) == [1, 6, 7, 8, 9]
    with pytest.raises(BulkWriteError) as ordered:
        checked.c.insert_many([{"_id": 20, "a": 1}, {"_id": 21, "a": 0}, {"_id": 22, "a": 1}])
    assert ordered.value.details["nInserted"] == 1


def test_updates(checked: Database[Documents]) -> None:
    checked.c.insert_many([{"_id": i, "a": i} for i in range(1, 6)])
    by_id = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": -7}}}]}
    assert refused(checked, by_id) == info(1, -7)
    by_filter = {"update": "c", "updates": [{"q": {"a": 2}, "u": [{"$set": {"a": -8}}]}]}
    assert refused(checked, by_filter) == info(2, -8)
    replaced = {"update": "c", "updates": [{"q": {"_id": 3}, "u": {"b": 1}}]}
    assert refused(checked, replaced)["details"]["reason"] == "field was missing"
    many = {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"a": -3}}, "multi": True}]}
    assert refused(checked, many)["failingDocumentId"] == 1
    upsert = {"update": "c", "updates": [{"q": {"_id": 9}, "u": {"$set": {"a": 0}}, "upsert": True}]}
    assert refused(checked, upsert) == info(9, 0)
    assert [document["a"] for document in checked.c.find().sort("_id")] == [1, 2, 3, 4, 5]
    checked.c.update_one({"_id": 1}, {"$set": {"b": 1}})
    checked.c.update_many({}, {"$inc": {"a": 1}})


def test_find_and_modify(checked: Database[Documents]) -> None:
    checked.c.insert_one({"_id": 1, "a": 1})
    change = {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"a": -1}}}
    assert refused(checked, change) == info(1, -1)
    upsert = {"findAndModify": "c", "query": {"_id": 2}, "update": {"$set": {"a": -1}}, "upsert": True}
    assert refused(checked, upsert) == info(2, -1)
    checked.command(SON({**change, "bypassDocumentValidation": True}))
    assert checked.c.find_one() == {"_id": 1, "a": -1}


def test_pipelines_that_write(checked: Database[Documents]) -> None:
    checked.source.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": -1}])
    for stage in ({"$out": "c"}, {"$merge": {"into": "c"}}):
        command: dict[str, Any] = {"aggregate": "source", "pipeline": [stage], "cursor": {}}
        assert refused(checked, command) == info(2, -1)
        checked.command(SON({**command, "bypassDocumentValidation": True}))
        assert checked.c.count_documents({}) == 2
        checked.c.delete_many({})
    assert checked.c.options()["validator"] == POSITIVE


def test_bypass(checked: Database[Documents]) -> None:
    checked.c.insert_one({"_id": 1, "a": -1}, bypass_document_validation=True)
    checked.c.insert_many([{"_id": 2, "a": -1}, {"_id": 3}], bypass_document_validation=True)
    checked.c.update_one({"_id": 1}, {"$set": {"a": -2}}, bypass_document_validation=True)
    checked.c.replace_one({"_id": 2}, {"b": 1}, bypass_document_validation=True)
    assert checked.c.count_documents({}) == 3


def test_moderate_lets_wrong_documents_stay_wrong(database: Database[Documents]) -> None:
    database.create_collection("c", validator=POSITIVE, validationLevel="moderate")
    database.c.insert_one({"_id": 1, "a": -1}, bypass_document_validation=True)
    database.c.insert_one({"_id": 2, "a": 1})
    database.c.update_one({"_id": 1}, {"$set": {"b": 1}})
    for change in ({"$set": {"a": -1}}, {"$unset": {"a": 1}}):
        with pytest.raises(WriteError):
            database.c.update_one({"_id": 2}, change)
    with pytest.raises(WriteError):
        database.c.insert_one({"a": -1})
    assert database.c.update_many({}, {"$set": {"c": 1}}).modified_count == 2


def test_strict_refuses_to_change_wrong_documents(checked: Database[Documents]) -> None:
    checked.c.insert_one({"_id": 1, "a": -1}, bypass_document_validation=True)
    with pytest.raises(WriteError):
        checked.c.update_one({"_id": 1}, {"$set": {"b": 1}})
    # What changes nothing is no write.
    assert checked.c.update_one({"_id": 1}, {"$set": {"a": -1}}).matched_count == 1


@own_log
def test_of_a_long_document_the_beginning_is_logged(database: Database[Documents]) -> None:
    """The latest lines are kept, and getLog returns them."""
    schema = {"$jsonSchema": {"properties": {"long": {"bsonType": "int"}}}}
    database.create_collection("warn", validator=schema, validationAction="warn")
    database.warn.insert_one({"_id": 1, "long": "\u00e4" * 1_000_000, "last": 1})
    database.warn.insert_one({"_id": 2, "long": Code("x" * 1_000_000)})
    lines = [line for line in database.client.admin.command("getLog", "global")["log"] if database.name in line]
    assert [len(line) < 150_000 for line in lines] == [True, True]
    logged = json.loads(lines[0])["attr"]
    assert logged["document"].startswith('{ _id: 1, long: "\u00e4\u00e4') and logged["document"].endswith("...")
    assert logged["errInfo"].endswith("...")


@own_log
def test_off_and_warn(database: Database[Documents]) -> None:
    database.create_collection("off", validator=POSITIVE, validationLevel="off")
    database.off.insert_one({"a": -1})
    database.create_collection("warn", validator=POSITIVE, validationAction="warn")
    database.warn.insert_many([{"_id": 1, "a": -1}, {"_id": 2, "a": 1}])
    database.warn.update_one({"_id": 2}, {"$set": {"a": -1}})
    assert database.warn.count_documents({}) == 2
    lines = [line for line in database.client.admin.command("getLog", "global")["log"] if database.name in line]
    assert [line.count("Document would fail validation") for line in lines] == [1, 1]
    database.create_collection("both", validator=POSITIVE, validationAction="errorAndLog")
    with pytest.raises(WriteError):
        database.both.insert_one({"_id": 1, "a": -1})
    assert any(f"{database.name}.both" in line for line in database.client.admin.command("getLog", "global")["log"])


def test_a_validator_that_asks_for_the_time(database: Database[Documents]) -> None:
    database.create_collection("c", validator={"$expr": {"$lte": ["$at", "$$NOW"]}})
    database.command("insert", "c", documents=[{"_id": 1, "at": None}])
    hello = database.client.admin.command("hello")
    database.c.insert_one({"_id": 2, "at": hello["localTime"]})
    with pytest.raises(WriteError):
        database.c.insert_one({"_id": 3, "at": hello["localTime"].replace(year=9000)})


def test_a_renamed_collection_keeps_its_validator(checked: Database[Documents]) -> None:
    checked.c.rename("d")
    with pytest.raises(WriteError):
        checked.d.insert_one({"a": 0})


def test_details_that_would_not_fit_a_reply(database: Database[Documents]) -> None:
    patterns = [{"a": {"$regex": f"^{letter}"}} for letter in "bcdefghi"]
    database.create_collection("c", validator={"$or": patterns})
    with pytest.raises(WriteError) as caught:
        database.c.insert_one({"_id": 1, "a": "a" * 4_000_000})
    assert caught.value.details is not None
    assert caught.value.details["errInfo"] == {
        "failingDocumentId": 1,
        "details": {"operatorName": "$or", "truncated": True},
    }
    with pytest.raises(BulkWriteError) as many:
        database.c.insert_many([{"_id": i, "a": "a" * 1_000_000} for i in range(10)], ordered=False)
    errors = many.value.details["writeErrors"]
    assert [error["code"] for error in errors] == [121] * 10
    assert ["errInfo" in error for error in errors] == [True] + [False] * 9


def test_a_validator_compares_as_its_collection_does(database: Database[Documents]) -> None:
    collation = {"locale": "en", "strength": 1}
    database.create_collection("c", validator={"a": "x", "b": "y"}, collation=collation)
    database.c.insert_one({"a": "X", "b": "Y"})
    with pytest.raises(WriteError) as caught:
        database.c.insert_one({"a": "X", "b": "Z"})
    assert caught.value.details is not None
    [clause] = caught.value.details["errInfo"]["details"]["clausesNotSatisfied"]
    assert (clause["index"], clause["details"]["consideredValue"]) == (1, "Z")
