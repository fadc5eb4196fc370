"""update: arguments, replies, upserts, many documents at once, and the order in which statements fail."""

from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId
from pymongo import ReplaceOne, UpdateMany, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure

import mongottl
from tests.drivers.protocol.test_protocol import Raw
from tests.drivers.refusals import NOT_NUMERIC, NUMBERS, refusal

Documents = dict[str, Any]


@pytest.fixture
def five(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "a": i % 2, "n": i} for i in range(5)])
    return database


def update(database: Database[Documents], q: Documents, u: Any, **options: Any) -> Documents:
    """The reply to one statement, without what belongs to the cluster."""
    reply = database.command({"update": "c", "updates": [{"q": q, "u": u, **options}]})
    return {name: reply[name] for name in ("n", "nModified", "upserted", "writeErrors") if name in reply}


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ({"u": {}}, 40414),
        ({"q": {}}, 40414),
        ({"q": 1, "u": {}}, 14),
        ({"q": {}, "u": 1}, 9),
        ({"q": {}, "u": None}, 9),
        ({"q": {}, "u": {"a": 1}, "nothing": 1}, 40415),
        ({"q": {}, "u": {"a": 1}, "multi": True}, 9),
        ({"q": {}, "u": {"$set": {"a": 1}}, "multi": 1}, 14),
        ({"q": {}, "u": {"$set": {"a": 1}}, "upsert": 1}, 14),
        ({"q": {}, "u": {"$set": {"a": 1}}, "multi": None, "upsert": None}, 0),
        ({"q": {}, "u": {"$set": {"a": 1}}, "hint": 1}, 9),
        ({"q": {}, "u": {"$set": {"a": 1}}, "hint": None}, 9),
        ({"q": {}, "u": {"$set": {"a": 1}}, "hint": "none"}, 2),
        ({"q": {}, "u": {"$set": {"a": 1}}, "hint": {"_id": 1}}, 0),
        ({"q": {"_id": 1}, "u": {"$set": {"a": 1}}, "hint": "none"}, 2),
        ({"q": {}, "u": {"$set": {"a": 1}}, "sort": {"n": 1}, "multi": True}, 9),
        ({"q": {}, "u": {"$set": {"a": 1}}, "sort": 1}, 14),
        ({"q": {}, "u": {"$set": {"a": 1}}, "collation": {"locale": "xx"}}, 2),
        ({"q": {}, "u": {"$set": {"a": 1}}, "c": {"x": 1}}, 51198),
        ({"q": {}, "u": [{"$set": {"a": "$$x"}}], "c": {"x": 1}}, 0),
        ({"q": {}, "u": [{"$set": {"a": "$$x"}}]}, 17276),
        ({"q": {}, "u": {"$set": {"a.$[x]": 1}}, "arrayFilters": [1]}, 14),
        ({"q": {}, "u": {"$set": {"a": 1}}, "arrayFilters": [{"x": 1}]}, 9),
        ({"q": {}, "u": {"$nothing": {"a": 1}}}, 9),
        ({"q": {"_id": 1}, "u": {"$nothing": {"a": 1}}}, 9),
        ({"q": {"_id": 1}, "u": {"$set": {"_id": 2}}}, 66),
        ({"q": {"_id": 1}, "u": {"_id": 2}}, 66),
        ({"q": {"_id": 1}, "u": {"$set": {"a": 1}, "$inc": {"a": 1}}}, 40),
        ({"q": {"_id": 1}, "u": {"$inc": {"a.b": 1}}}, 28),
        ({"q": {"_id": 1}, "u": {"$set": {"a.$": 1}}}, 2),
        ({"q": {"$nothing": 1}, "u": {"$set": {"a": 1}}}, 2),
        ({"q": {"_id": 1}, "u": {"$inc": {"n": "x"}}}, 14),
        ({"q": {"_id": 1}, "u": {"$set": {"a": 1}}, "upsert": True, "multi": True}, 0),
    ],
    ids=str,
)
def test_statements(five: Database[Documents], statement: Documents, code: int) -> None:
    assert refusal(five, {"update": "c", "updates": [statement]}) == code


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"updates": []}, 16),
        ({}, 40414),
        ({"updates": [{"q": {}, "u": {}}], "ordered": 1}, 14),
        ({"updates": [{"q": {}, "u": {}}], "let": 1}, 14),
        ({"updates": [{"q": {}, "u": {}}], "nothing": 1}, 40415),
        ({"updates": [{"q": {}, "u": {}}], "stmtIds": []}, 16),
    ],
    ids=str,
)
def test_arguments(five: Database[Documents], arguments: Documents, code: int) -> None:
    assert refusal(five, {"update": "c", **arguments}) == code


def test_bypass_document_validation_takes_truth_and_numbers(five: Database[Documents]) -> None:
    command: Documents = {"update": "c", "updates": [{"q": {}, "u": {}}]}
    for value in (*NUMBERS, True, None):
        assert refusal(five, {**command, "bypassDocumentValidation": value}) == 0, value
    for value in NOT_NUMERIC:
        assert refusal(five, {**command, "bypassDocumentValidation": value}) == 14, value


SET: Documents = {"$set": {"x": 1}}


@pytest.mark.parametrize(
    ("q", "u", "options", "expected"),
    [
        ({"_id": 1}, SET, {}, {"n": 1, "nModified": 1}),
        ({"_id": 9}, SET, {}, {"n": 0, "nModified": 0}),
        ({"_id": 1}, {"$set": {"n": 1}}, {}, {"n": 1, "nModified": 0}),
        ({"_id": 1}, {"a": 1, "n": 1}, {}, {"n": 1, "nModified": 1}),
        ({"_id": 1}, {"_id": 1, "a": 1, "n": 1}, {}, {"n": 1, "nModified": 0}),
        ({"a": 0}, SET, {}, {"n": 1, "nModified": 1}),
        ({"a": 0}, SET, {"multi": True}, {"n": 3, "nModified": 3}),
        ({}, {"$set": {"a": 0}}, {"multi": True}, {"n": 5, "nModified": 2}),
        ({"_id": 1}, SET, {"upsert": True}, {"n": 1, "nModified": 1}),
        ({"_id": 9}, SET, {"upsert": True}, {"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 9}]}),
        ({"_id": None}, SET, {"upsert": True}, {"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": None}]}),
        (
            {"_id": 9},
            SET,
            {"upsert": True, "multi": True},
            {"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 9}]},
        ),
        ({"_id": 1}, [{"$set": {"x": {"$add": ["$n", 1]}}}], {}, {"n": 1, "nModified": 1}),
        ({"_id": 1}, SET, {"multi": True}, {"n": 1, "nModified": 1}),
    ],
    ids=str,
)
def test_replies(five: Database[Documents], q: Documents, u: Any, options: Documents, expected: Documents) -> None:
    assert update(five, q, u, **options) == expected


def test_no_such_collection(database: Database[Documents]) -> None:
    assert update(database, {"_id": 1}, SET) == {"n": 0, "nModified": 0}
    assert database.list_collection_names() == []
    assert update(database, {"_id": 1}, SET, upsert=True)["upserted"] == [{"index": 0, "_id": 1}]


@pytest.mark.parametrize(
    ("sort", "chosen"), [({"n": -1}, 4), ({"n": 1}, 0), ({"a": 1, "n": -1}, 4), ({"$natural": -1}, 4)], ids=str
)
def test_the_first_by_sort_is_updated(five: Database[Documents], sort: Documents, chosen: int) -> None:
    update(five, {}, SET, sort=sort)
    assert five.c.distinct("_id", {"x": 1}) == [chosen]


def test_sort_chooses_what_a_replacement_replaces(five: Database[Documents]) -> None:
    assert update(five, {"a": 1}, {"new": True}, sort={"n": -1}) == {"n": 1, "nModified": 1}
    assert five.c.find_one({"new": True}) == {"_id": 3, "new": True}


def test_variables(five: Database[Documents]) -> None:
    command: Documents = {
        "update": "c",
        "let": {"one": 1, "two": 2},
        "updates": [
            {"q": {"$expr": {"$eq": ["$_id", "$$one"]}}, "u": [{"$set": {"x": ["$$one", "$$two"]}}], "c": {"two": 22}},
            {"q": {"_id": 2}, "u": [{"$set": {"x": "$$two"}}]},
        ],
    }
    assert five.command(command)["nModified"] == 2
    assert [d["x"] for d in five.c.find({"x": {"$exists": True}})] == [[1, 22], 2]


def test_a_document_moved_ahead_of_the_scan_is_updated_once(database: Database[Documents]) -> None:
    database.c.create_index("n")
    database.c.insert_many([{"_id": i, "n": i} for i in range(1000)])
    reply = update(database, {"n": {"$gte": 0}}, {"$inc": {"n": 500}}, multi=True, hint="n_1")
    assert reply == {"n": 1000, "nModified": 1000}
    assert database.c.count_documents({"$expr": {"$eq": ["$n", {"$add": ["$_id", 500]}]}}) == 1000


BATCH: list[Documents] = [
    {"q": {"_id": 0}, "u": {"$set": {"n": 10}}},
    {"q": {"_id": 1}, "u": {"$set": {"u": 7}}},
    {"q": {"_id": 2}, "u": {"$set": {"u": 7}}},
    {"q": {"_id": 8}, "u": {"$set": {"u": 8}}, "upsert": True},
    {"q": {"_id": 9}, "u": {"$set": {"u": 7}}, "upsert": True},
    {"q": {"_id": 4}, "u": {"$inc": {"n": 1}}},
]


@pytest.mark.parametrize(
    ("ordered", "n", "modified", "failed", "upserted"),
    [(True, 2, 2, [2], []), (False, 4, 3, [2, 4], [{"index": 3, "_id": 8}])],
)
def test_failures_in_a_batch(
    five: Database[Documents], ordered: bool, n: int, modified: int, failed: list[int], upserted: list[Documents]
) -> None:
    five.c.create_index("u", unique=True, sparse=True)
    reply = five.command({"update": "c", "updates": BATCH, "ordered": ordered})
    assert (reply["n"], reply["nModified"]) == (n, modified)
    assert [(entry["index"], entry["code"]) for entry in reply["writeErrors"]] == [(i, 11000) for i in failed]
    assert reply["writeErrors"][0]["keyValue"] == {"u": 7}
    assert reply.get("upserted", []) == upserted
    assert five.c.distinct("n", {"_id": 4}) == [4 if ordered else 5]


def test_a_failed_update_of_many_keeps_what_was_done(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i, "n": i if i != 3 else "x"} for i in range(5)])
    reply = update(database, {}, {"$inc": {"n": 10}}, multi=True)
    assert (reply["n"], reply["writeErrors"][0]["code"]) == (0, 14)
    assert [d["n"] for d in database.c.find()] == [10, 11, 12, "x", 4]


@pytest.mark.parametrize(
    ("q", "u", "expected"),
    [
        ({"a": 1, "b.c": 2}, {"$set": {"d": 3}}, {"a": 1, "b": {"c": 2}, "d": 3}),
        ({"a": {"$gt": 1}}, {"$setOnInsert": {"d": 3}}, {"d": 3}),
        ({"a": {"$in": [1]}}, {"$set": {"d": 3}}, {"a": 1, "d": 3}),
        ({"$and": [{"a": 1}, {"b": 2}]}, {"$inc": {"a": 1}}, {"a": 2, "b": 2}),
        ({"a": 1}, {"b": 2}, {"b": 2}),
        ({"a": 1}, [{"$set": {"b": "$a"}}], {"a": 1, "b": 1}),
        ({"$or": [{"a": 1}, {"a": 2}]}, {"$set": {"d": 3}}, {"d": 3}),
    ],
    ids=str,
)
def test_upsert_makes_the_document_of_filter_and_update(
    database: Database[Documents], q: Documents, u: Any, expected: Documents
) -> None:
    [upserted] = update(database, q, u, upsert=True)["upserted"]
    assert isinstance(upserted["_id"], ObjectId)
    stored = database.c.find_one({}, {"_id": 0})
    assert stored == expected


def test_types_of_ids_match_by_value(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": Int64(1)})
    for same in (1, 1.0, Decimal128("1.0"), {"$eq": 1}):
        assert update(database, {"_id": same}, {"$inc": {"n": 1}})["nModified"] == 1
    assert database.c.find_one() == {"_id": 1, "n": 4}


def test_indexes_follow(database: Database[Documents]) -> None:
    database.c.create_index("a")
    database.c.create_index("u", unique=True)
    database.c.insert_many([{"_id": 1, "a": 1, "u": 1}, {"_id": 2, "a": 2, "u": 2}])
    assert update(database, {"_id": 1}, {"$set": {"a": [5, 6]}})["nModified"] == 1
    assert [d["_id"] for d in database.c.find({"a": 6}).hint("a_1")] == [1]
    assert [d["_id"] for d in database.c.find({"a": 1}).hint("a_1")] == []
    assert update(database, {"_id": 1}, {"$set": {"u": 2}})["writeErrors"][0]["code"] == 11000
    assert [d["_id"] for d in database.c.find({"u": 1}).hint("u_1")] == [1]


def test_documents_that_grow_too_large(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1, "x": "x" * (9 * 1024 * 1024)})
    reply = update(database, {"_id": 1}, [{"$set": {"y": "$x"}}])
    assert reply["writeErrors"][0]["code"] in (10334, 17419)
    assert database.c.count_documents({"y": {"$exists": True}}) == 0


def test_bulk_writes_of_the_driver(five: Database[Documents]) -> None:
    result = five.c.bulk_write(
        [
            UpdateOne({"_id": 0}, {"$inc": {"n": 1}}),
            UpdateMany({"a": 1}, {"$inc": {"n": 1}}),
            ReplaceOne({"_id": 7}, {"n": 7}, upsert=True),
        ]
    )
    assert (result.matched_count, result.modified_count, result.upserted_ids) == (3, 3, {2: 7})
    with pytest.raises(BulkWriteError) as failed:
        five.c.bulk_write([UpdateOne({"_id": 0}, {"$inc": {"n": "x"}}), UpdateOne({"_id": 1}, {"$inc": {"n": 1}})])
    assert failed.value.details["nModified"] == 0


def test_statements_that_are_none(server: mongottl.RunningServer, five: Database[Documents]) -> None:
    raw = Raw(server.port)  # the driver refuses them itself
    for updates, code in (({}, 14), ([1], 14), (None, 40414)):
        assert raw.run({"update": "c", "updates": updates, "$db": five.name})["code"] == code
    raw.socket.close()


@pytest.mark.parametrize(
    ("pipeline", "code"),
    [
        ([{"$nothing": 1}], 40324),
        ([{"$set": {"a": 1}}, {"$nothing": 1}], 40324),
        ([{}], 40323),
        ([{"$set": {"a": 1}, "$unset": "b"}], 40323),
        ([1], 14),
    ],
    ids=str,
)
def test_invalid_update_pipeline_fails_the_whole_command(
    five: Database[Documents], pipeline: list[Any], code: int
) -> None:
    """Not the statement alone, as the driver specification on logging has it."""
    good: Documents = {"q": {"_id": 0}, "u": {"$set": {"b": 1}}}
    bad: Documents = {"q": {"_id": 1}, "u": pipeline}
    for ordered in (True, False):
        with pytest.raises(OperationFailure) as raised:
            five.command({"update": "c", "updates": [good, bad], "ordered": ordered})
        assert raised.value.code == code
        assert five.c.count_documents({"b": 1}) == 0
    for stage, failing in (({"$match": {}}, 72), ({"$unset": 1}, 31002), ({"$set": 1}, 40272)):
        reply = five.command({"update": "c", "updates": [good, {"q": {"_id": 1}, "u": [stage]}]})
        assert (reply["n"], reply["writeErrors"][0]["index"], reply["writeErrors"][0]["code"]) == (1, 1, failing)


def test_the_positional_operator_after_an_or_over_one_array(database: Any) -> None:
    """Equalities on one path are an `$in`; other alternatives record no position."""
    for filter, expected in (
        ({"$or": [{"b": 5}, {"b": 2}]}, [1, 9, 3]),
        ({"$or": [{"b": 3}, {"b": 2}]}, [1, 9, 3]),
    ):
        database.p.replace_one({"_id": 1}, {"b": [1, 2, 3], "x": 1}, upsert=True)
        database.p.update_one(filter, {"$set": {"b.$": 9}})
        assert database.p.find_one()["b"] == expected
    with pytest.raises(OperationFailure):
        database.p.update_one({"$or": [{"x": 1}, {"b": 3}]}, {"$set": {"b.$": 9}})


def test_an_existing_index_is_not_hidden_by_create_indexes(database: Any) -> None:
    index = {"key": {"x": 1}, "name": "x_1"}
    database.command({"createIndexes": "p", "indexes": [index]})
    database.command({"createIndexes": "p", "indexes": [{**index, "hidden": False}]})
    with pytest.raises(OperationFailure) as caught:
        database.command({"createIndexes": "p", "indexes": [{**index, "hidden": True}]})
    assert caught.value.code == 85
