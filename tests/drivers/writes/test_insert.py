"""insert: what is stored, what is refused, and the replies to batches of which a part fails."""

import datetime
from typing import Any

import bson
import pymongo
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure, WriteConcernError

import mongottl
from mongottl.wire.encode import encode_request
from tests.drivers.protocol.test_protocol import Raw
from tests.drivers.refusals import NOT_NUMERIC, NUMBERS, refusal

Documents = dict[str, Any]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, 40414),
        ({"documents": []}, 16),
        ({"documents": [{}], "nothing": 1}, 40415),
        ({"documents": [{}], "ordered": "yes"}, 14),
        ({"documents": [{}], "ordered": 1}, 14),
        ({"documents": [{}], "ordered": None}, 0),
        ({"documents": [{}], "stmtIds": [0, 1]}, 16),
        ({"documents": [{}], "stmtIds": 1}, 14),
        ({"documents": [{}], "stmtIds": [0]}, 0),
        ({"documents": [{}], "readConcern": {"level": "majority"}}, 72),
        ({"documents": [{}], "readConcern": {"level": "local"}}, 0),
        ({"documents": [{}], "writeConcern": 1}, 14),
        ({"documents": [{}], "writeConcern": {"w": -1}}, 9),
        ({"documents": [{}], "writeConcern": {"w": 51}}, 9),
        ({"documents": [{}], "writeConcern": {"w": True}}, 9),
        ({"documents": [{}], "writeConcern": {"w": {}}}, 9),
        ({"documents": [{}], "writeConcern": {"j": "yes"}}, 14),
        ({"documents": [{}], "writeConcern": {"j": True, "fsync": True}}, 9),
        ({"documents": [{}], "writeConcern": {"wtimeout": 2**31}}, 9),
        ({"documents": [{}], "writeConcern": {"wtimeout": "long"}}, 0),
        ({"documents": [{}], "writeConcern": {"W": 1}}, 40415),
        ({"documents": [{}], "writeConcern": {"w": Decimal128("1"), "j": 1, "wtimeout": 0}}, 0),
        ({"documents": [{"_id": [1]}]}, 53),
        ({"documents": [{"_id": Regex("x")}]}, 53),
        ({"documents": [{"_id": {"$x": 1}}]}, 52),
        ({"documents": [{"_id": {"a": {"$x": 1}}}]}, 0),
    ],
    ids=str,
)
def test_arguments(database: Database[Documents], arguments: Documents, code: int) -> None:
    assert refusal(database, {"insert": "c", **arguments}) == code


def test_documents_that_are_none(server: mongottl.RunningServer, database: Database[Documents]) -> None:
    raw = Raw(server.port)  # the driver refuses them itself
    for documents, code in (({}, 14), ([1], 14), ("x", 14), (None, 40414), ([{}, 1], 14)):
        assert raw.run({"insert": "c", "documents": documents, "$db": database.name})["code"] == code
    raw.socket.close()


def test_bypass_document_validation_takes_truth_and_numbers(database: Database[Documents]) -> None:
    for value in (*NUMBERS, True, None):
        assert refusal(database, {"insert": "c", "documents": [{}], "bypassDocumentValidation": value}) == 0, value
    for value in NOT_NUMERIC:
        assert refusal(database, {"insert": "c", "documents": [{}], "bypassDocumentValidation": value}) == 14, value


@pytest.mark.parametrize(
    ("name", "code"), [("", 73), ("a$b", 73), (".a", 73), ("a.", 0), ("system.x", 73), (1, 73), ("é.x", 0)]
)
def test_names_of_collections(database: Database[Documents], name: Any, code: int) -> None:
    assert refusal(database, {"insert": name, "documents": [{}]}) == code


@pytest.mark.parametrize(
    "document",
    [
        {"a.b": 1, "a": {"b": 2}},
        {"$a": 1},
        {"a": {"$set": 1}},
        {"": 1},
        {"a": DBRef("c", 1)},
        {"a": [[], {}, [[]]]},
        {"a": Decimal128("NaN"), "b": -0.0, "c": Int64(5), "d": MinKey(), "e": MaxKey(), "f": Code("x", {"y": 1})},
        {"_id": None},
        {"_id": {"a": 1, "b": [1]}},
        {"_id": Binary(b"x", 4 + 124)},
        {"_id": 1.5},
        {"_id": ""},
        {"_id": datetime.datetime(2020, 1, 1)},
    ],
    ids=str,
)
def test_documents_come_back_as_they_were(database: Database[Documents], document: Documents) -> None:
    database.c.insert_one(dict(document))
    stored = database.c.find_one()
    assert stored is not None
    if "_id" not in document:
        assert isinstance(stored.pop("_id"), ObjectId)
    assert bson.encode(stored) == bson.encode(document)


def test_the_id_comes_first_and_is_made_by_the_server(server: mongottl.RunningServer, database: Any) -> None:
    raw = Raw(server.port)
    raw.run({"insert": "c", "documents": [{"a": 1}, {"a": 2, "_id": 7}], "$db": database.name})
    raw.socket.close()
    first, second = database.c.find().sort("a")
    assert [*first] == ["_id", "a"]
    assert isinstance(first["_id"], ObjectId)
    assert [*second.items()] == [("_id", 7), ("a", 2)]


def test_two_ids(server: mongottl.RunningServer, database: Database[Documents]) -> None:
    one, other = bson.encode({"_id": 1})[4:-1], bson.encode({"_id": 2})[4:-1]
    document = (len(one + other) + 5).to_bytes(4, "little") + one + other + b"\0"
    raw = Raw(server.port)
    command = bson.encode({"insert": "c", "$db": database.name})
    raw.send(encode_request(1, command, [("documents", [document])], 0))
    reply = raw.reply()
    raw.socket.close()
    assert reply["writeErrors"][0]["code"] == 2


def test_empty_timestamps_become_the_time(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1, "a": Timestamp(0, 0), "b": Timestamp(0, 0), "c": {"d": Timestamp(0, 0)}})
    database.c.insert_one({"_id": Timestamp(0, 0)})
    stored = database.c.find_one({"_id": 1})
    assert stored is not None
    assert stored["a"].time > 1_600_000_000
    assert stored["a"] < stored["b"]
    assert stored["c"] == {"d": Timestamp(0, 0)}
    assert database.c.count_documents({"_id": Timestamp(0, 0)}) == 1


def failures(database: Database[Documents], ordered: bool) -> tuple[int, list[tuple[int, int]]]:
    documents: list[Documents] = [{"_id": 1}, {"_id": 1}, {"_id": [1]}, {"_id": 2}, {"_id": 2, "u": 1}, {"_id": 3}]
    reply = database.command({"insert": "c", "documents": documents, "ordered": ordered})
    return reply["n"], [(entry["index"], entry["code"]) for entry in reply.get("writeErrors", [])]


def test_the_first_failure_ends_an_ordered_batch(database: Database[Documents]) -> None:
    assert failures(database, True) == (1, [(1, 11000)])
    assert [d["_id"] for d in database.c.find()] == [1]


def test_an_unordered_batch_goes_on(database: Database[Documents]) -> None:
    assert failures(database, False) == (3, [(1, 11000), (2, 53), (4, 11000)])
    assert [d["_id"] for d in database.c.find()] == [1, 2, 3]


def test_a_duplicate_key_is_described(database: Database[Documents]) -> None:
    database.c.create_index([("a", 1), ("b", -1)], unique=True)
    database.c.insert_one({"a": 1, "b": "x"})
    with pytest.raises(BulkWriteError) as failed:
        database.c.insert_many([{"a": 2}, {"a": 1, "b": "x"}])
    [error] = failed.value.details["writeErrors"]
    assert error["keyPattern"] == {"a": 1, "b": -1}
    assert error["keyValue"] == {"a": 1, "b": "x"}
    assert error["errmsg"] == (
        f'E11000 duplicate key error collection: {database.name}.c index: a_1_b_-1 dup key: {{ a: 1, b: "x" }}'
    )
    assert failed.value.details["nInserted"] == 1


def test_a_flood_of_failures_fits_a_reply(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": "x" * 200})
    reply = database.command({"insert": "c", "documents": [{"_id": "x" * 200}] * 4_000, "ordered": False})
    assert len(reply["writeErrors"]) == 4_000
    assert reply["writeErrors"][0]["errmsg"].startswith("E11000")
    assert reply["writeErrors"][-1] == {"index": 3_999, "code": 11000, "errmsg": ""}


def test_depth_of_documents(database: Database[Documents]) -> None:
    document: Documents = {}
    for _ in range(178):
        document = {"a": document}
    database.c.insert_one({"_id": 1, "a": document})  # 180 levels
    assert refusal(database, {"insert": "c", "documents": [{"_id": 2, "a": {"a": document}}]}) == 15


def test_write_concerns_that_one_member_cannot_meet(database: Database[Documents]) -> None:
    two = database.c.with_options(write_concern=pymongo.WriteConcern(w=2))
    with pytest.raises(WriteConcernError) as failed:
        two.insert_one({"_id": 1})
    assert failed.value.code == 100
    with pytest.raises(WriteConcernError) as failed:
        database.c.with_options(write_concern=pymongo.WriteConcern(w="backup")).insert_one({"_id": 2})
    assert failed.value.code == 79
    assert database.c.count_documents({}) == 2  # written all the same


def test_a_failure_tells_of_the_write_concern_too(database: Database[Documents]) -> None:
    """As PyMongo's own tests expect of renameCollection: what made a command fail may not be replicated either."""
    database.create_collection("c")
    with pytest.raises(OperationFailure) as failed:
        database.command({"create": "c", "capped": True, "size": 4096, "writeConcern": {"w": 2}})
    details = failed.value.details
    assert details is not None
    assert (details["code"], details["writeConcernError"]["code"]) == (48, 100)
    with pytest.raises(OperationFailure) as failed:
        database.command({"create": "c", "capped": True, "size": 4096, "writeConcern": {"w": 1, "j": True}})
    assert "writeConcernError" not in (failed.value.details or {})


def test_silent_writes_say_nothing_of_failures(database: Database[Documents]) -> None:
    documents = [{"_id": 1}, {"_id": 1}]
    reply = database.command({"insert": "c", "documents": documents, "writeConcern": {"w": 0}})
    assert reply["n"] == 0
    assert "writeErrors" not in reply
    reply = database.command({"insert": "c", "documents": documents, "writeConcern": {"w": 0, "j": True}})
    assert reply["writeErrors"][0]["code"] == 11000


def test_the_writes_of_a_session_that_can_be_retried(
    server: mongottl.RunningServer, database: Database[Documents]
) -> None:
    raw = Raw(server.port)

    def run(command: Documents, number: int) -> Documents:
        lsid = {"id": Binary(b"r" * 16, 4)}
        reply = raw.run({**command, "$db": database.name, "lsid": lsid, "txnNumber": Int64(number)})
        assert isinstance(reply, dict)
        return reply

    insert: Documents = {"insert": "c", "documents": [{"a": 1}], "stmtIds": [0]}
    assert run(insert, 2)["n"] == 1
    assert run(insert, 1)["code"] == 225  # older than the latest
    assert run(insert, -1)["code"] == 72
    assert run({"count": "c"}, 3)["code"] == 50768
    many = {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"a": 1}}, "multi": True}]}
    assert run(many, 3)["writeErrors"][0]["code"] == 72
    everything = {"delete": "c", "deletes": [{"q": {}, "limit": 0}]}
    assert run(everything, 4)["writeErrors"][0]["code"] == 72
    assert raw.run({"insert": "c", "documents": [{}], "txnNumber": Int64(1), "$db": database.name})["code"] == 72
    raw.socket.close()
