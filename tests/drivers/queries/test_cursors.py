"""Cursors: how many documents come in which batch, and what becomes of a cursor when others interfere."""

from typing import Any

import bson
import pymongo
import pytest
from bson import Binary, Int64
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from tests.drivers.protocol.test_protocol import Raw
from tests.drivers.refusals import refusal
from tests.on_nodes import own_cursors

pytestmark = own_cursors

Documents = dict[str, Any]


@pytest.fixture
def many(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i} for i in range(250)])
    return database


def opened(database: Database[Documents], command: Documents | None = None, **options: Any) -> Int64:
    reply = database.command(command or {"find": "c", "batchSize": 2}, **options)
    assert reply["cursor"]["id"] != 0
    return Int64(reply["cursor"]["id"])


def sizes(database: Database[Documents], first: Documents, following: int | None = None) -> list[int]:
    """How many documents came in each batch until the cursor was exhausted."""
    cursor = database.command(first)["cursor"]
    counted = [len(cursor["firstBatch"])]
    while cursor["id"]:
        more: Documents = {"getMore": Int64(cursor["id"]), "collection": "c"}
        if following is not None:
            more["batchSize"] = following
        cursor = database.command(more)["cursor"]
        counted.append(len(cursor["nextBatch"]))
    return counted


FIND: Documents = {"find": "c"}
AGGREGATE: Documents = {"aggregate": "c", "pipeline": [{"$match": {}}]}


@pytest.mark.parametrize(
    ("first", "following", "expected"),
    [
        (FIND, None, [101, 149]),
        ({**FIND, "batchSize": 0}, None, [0, 250]),
        ({**FIND, "batchSize": 0}, 100, [0, 100, 100, 50]),
        ({**FIND, "batchSize": 100}, 100, [100, 100, 50]),
        ({**FIND, "batchSize": 250}, None, [250, 0]),  # the end is only seen by looking for more
        ({**FIND, "batchSize": 249}, 1, [249, 1, 0]),
        ({**FIND, "batchSize": 251}, None, [251 - 1]),
        ({**FIND, "limit": 150}, None, [101, 49]),
        ({**FIND, "limit": 101}, None, [101]),  # the limit is known
        ({**FIND, "limit": 100, "batchSize": 30}, 30, [30, 30, 30, 10]),
        ({**FIND, "limit": 60, "batchSize": 30}, 30, [30, 30]),
        ({**FIND, "skip": 240, "batchSize": 4}, 4, [4, 4, 2]),
        ({**FIND, "sort": {"_id": -1}, "batchSize": 100}, 100, [100, 100, 50]),
        ({**FIND, "singleBatch": True}, None, [101]),
        ({**FIND, "singleBatch": True, "batchSize": 0}, None, [0]),
        ({**FIND, "filter": {"_id": 1}}, None, [1]),
        ({**FIND, "filter": {"_id": 1}, "batchSize": 0}, None, [0, 1]),
        ({**FIND, "filter": {"_id": {"$lt": 101}}}, None, [101, 0]),
        ({**AGGREGATE, "cursor": {}}, None, [101, 149]),
        ({**AGGREGATE, "cursor": {"batchSize": 0}}, None, [0, 250]),
        ({**AGGREGATE, "cursor": {"batchSize": 200}}, 20, [200, 20, 20, 10]),
    ],
    ids=str,
)
def test_batches(many: Database[Documents], first: Documents, following: int | None, expected: list[int]) -> None:
    assert sizes(many, first, following) == expected


def test_batches_end_at_16_mib(database: Database[Documents]) -> None:
    for i in range(5):
        database.c.insert_one({"_id": i, "x": "x" * (6 * 1024 * 1024)})
    assert sizes(database, {"find": "c", "batchSize": 100}) == [2, 2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("mortal", [False, True], ids=["immortal", "mortal"])
def test_pages_of_small_documents_fit_a_reply(database: Database[Documents], mortal: bool) -> None:
    """20,000 documents of 900 bytes: 18 MB, whose array in a reply has 3 to 7 bytes more for each."""
    documents = [bson.encode({"_id": i, "n": -i, "x": "x" * 871}) for i in range(20_000)]
    assert len(documents[0]) == 900
    database.c.insert_many([RawBSONDocument(document) for document in documents])
    if mortal:
        index = {"key": {"_ts": 1}, "name": "ttl", "expireAfterSeconds": 1000}
        database.command("createIndexes", "c", indexes=[index])
    # 18,509 documents and their names in the array make 16,776,558 of 16,777,216 bytes.
    full = [101, 18_509, 1_390]
    aggregate: Documents = {"aggregate": "c", "cursor": {}}
    assert sizes(database, {"find": "c"}) == full
    assert sizes(database, {"find": "c", "sort": {"_id": 1}}) == full
    assert sizes(database, {"find": "c", "sort": {"n": -1}}) == full
    assert sizes(database, {"find": "c", "batchSize": 1_000_000}) == [18_509, 1_491]
    assert sizes(database, {"find": "c", "projection": {"none": 0}}) == full
    assert sizes(database, {**aggregate, "pipeline": []}) == full
    assert sizes(database, {**aggregate, "pipeline": [{"$sort": {"n": -1}}]}) == full
    group = {"$group": {"_id": "$_id", "x": {"$first": "$x"}}}
    large = {"$addFields": {"y": "y" * 10}}
    assert sum(sizes(database, {**aggregate, "pipeline": [large], "cursor": {"batchSize": 1_000_000}})) == 20_000
    assert sum(sizes(database, {**aggregate, "pipeline": [group]})) == 20_000


def test_documents_change_before_the_cursor_reaches_them(many: Database[Documents]) -> None:
    cursor = opened(many)
    many.c.delete_many({"_id": {"$gte": 5}})
    many.c.update_one({"_id": 3}, {"$set": {"new": True}})
    many.c.insert_one({"_id": 1000})
    reply = many.command("getMore", cursor, collection="c")
    assert reply["cursor"]["nextBatch"] == [{"_id": 2}, {"_id": 3, "new": True}, {"_id": 4}, {"_id": 1000}]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"collection": "C"}, 13),
        ({"collection": "c", "batchSize": -1}, 2),
        ({"collection": "c", "batchSize": "1"}, 14),
        ({"collection": "c", "maxTimeMS": 0}, 2),
        ({"collection": "c", "maxTimeMS": 100}, 2),
        ({"collection": 1}, 14),
        ({}, 40414),
        ({"collection": "c", "nothing": 1}, 40415),
        ({"collection": "c", "readConcern": {"level": "majority"}}, 0),
        ({"collection": "c", "batchSize": None, "term": Int64(1)}, 0),
    ],
    ids=str,
)
def test_arguments_of_get_more(many: Database[Documents], arguments: Documents, code: int) -> None:
    cursor = opened(many)
    assert refusal(many, {"getMore": cursor, **arguments}) == code
    many.command("killCursors", "c", cursors=[cursor])


@pytest.mark.parametrize(("cursor", "code"), [(Int64(1), 43), (Int64(0), 43), (Int64(-5), 43), (1, 14), ("x", 14)])
def test_cursors_that_are_not_there(many: Database[Documents], cursor: Any, code: int) -> None:
    assert refusal(many, {"getMore": cursor, "collection": "c"}) == code


def test_an_exhausted_cursor_is_gone(many: Database[Documents]) -> None:
    cursor = opened(many)
    many.command("getMore", cursor, collection="c")
    assert refusal(many, {"getMore": cursor, "collection": "c"}) == 43


def test_a_cursor_belongs_to_its_session(many: Database[Documents], client: "pymongo.MongoClient[Documents]") -> None:
    more: Documents = {"collection": "c", "batchSize": 1}
    with client.start_session() as one, client.start_session() as other:
        ours = opened(many, session=one)
        assert refusal(many, {"getMore": ours, **more}, session=other) == 50738
        assert refusal(many, {"getMore": ours, **more}, session=one) == 0
        many.command("killCursors", "c", cursors=[ours])


def test_sessions_against_no_session(many: Database[Documents], server: mongottl.RunningServer) -> None:
    lsid = {"id": Binary(b"s" * 16, 4)}
    more: Documents = {"collection": "c", "batchSize": 1}
    raw = Raw(server.port)  # the driver would add a session
    try:
        without = raw.run({"find": "c", "batchSize": 2, "$db": many.name})["cursor"]["id"]
        inside = raw.run({"find": "c", "batchSize": 2, "lsid": lsid, "$db": many.name})["cursor"]["id"]
        assert raw.run({"getMore": Int64(without), **more, "lsid": lsid, "$db": many.name})["code"] == 50736
        assert raw.run({"getMore": Int64(inside), **more, "$db": many.name})["code"] == 50737
        assert raw.run({"getMore": Int64(inside), **more, "lsid": lsid, "$db": many.name})["ok"] == 1
        raw.run({"killCursors": "c", "cursors": [Int64(without), Int64(inside)], "$db": many.name})
    finally:
        raw.socket.close()


@pytest.mark.parametrize(
    "interference",
    ["drop", "drop and recreate", "dropDatabase", "rename", "rename onto", "drop index"],
)
def test_a_cursor_dies_with_what_it_reads(
    many: Database[Documents], client: "pymongo.MongoClient[Documents]", interference: str
) -> None:
    many.c.create_index("b")
    cursor = opened(many, {"find": "c", "batchSize": 2, "hint": "b_1"})
    if interference.startswith("drop and") or interference == "drop":
        many.c.drop()
        if interference != "drop":
            many.c.insert_one({"_id": 1})
    elif interference == "dropDatabase":
        client.drop_database(many.name)
    elif interference == "rename":
        many.c.rename("d")
    elif interference == "rename onto":
        many.d.insert_one({"_id": 1})
        many.d.rename("c", dropTarget=True)
    else:
        many.c.drop_index("b_1")
    assert refusal(many, {"getMore": cursor, "collection": "c"}) == 175
    assert refusal(many, {"getMore": cursor, "collection": "c"}) == 43


# Plans that use the indexes a_1 and b_1, and have read a_1 to its end before the first page is full.
READ_TO_THE_END: dict[str, Documents] = {
    "find": {"find": "c", "filter": {"$or": [{"a": 1}, {"b": 1}]}, "batchSize": 3},
    "sorted find": {"find": "c", "filter": {"$or": [{"a": 1}, {"b": 1}]}, "sort": {"n": 1}, "batchSize": 3},
    "aggregate": {
        "aggregate": "c",
        "pipeline": [{"$match": {"$or": [{"a": 1}, {"b": 1}]}}],
        "cursor": {"batchSize": 3},
    },
}


@pytest.mark.parametrize("name", READ_TO_THE_END)
@pytest.mark.parametrize("index", ["a_1", "b_1"])
def test_dropping_an_index_that_was_read_to_its_end_kills_the_cursor(
    database: Database[Documents], name: str, index: str
) -> None:
    coll = database.c
    coll.insert_many([{"_id": i, "a": int(i < 2), "b": int(i >= 2), "n": i} for i in range(250)])
    coll.create_index("a")
    coll.create_index("b")
    cursor = opened(database, READ_TO_THE_END[name])
    coll.drop_index(index)
    assert refusal(database, {"getMore": cursor, "collection": "c", "batchSize": 3}) == 175
    assert refusal(database, {"getMore": cursor, "collection": "c", "batchSize": 3}) == 43


@pytest.mark.parametrize("name", READ_TO_THE_END)
def test_cursors_outlive_changes_of_indexes_that_they_do_not_use(database: Database[Documents], name: str) -> None:
    coll = database.c
    coll.insert_many([{"_id": i, "a": int(i < 2), "b": int(i >= 2), "n": i} for i in range(250)])
    coll.create_index("a")
    coll.create_index("b")
    coll.create_index("unused")
    cursor = opened(database, READ_TO_THE_END[name])
    coll.drop_index("unused_1")
    coll.create_index("new")
    coll.insert_one({"_id": 1000, "a": [1, 2], "b": [1, 2], "new": [1]})  # they become multikey
    reply = database.command({"getMore": cursor, "collection": "c", "batchSize": 300})
    ids = [document["_id"] for document in reply["cursor"]["nextBatch"]]
    assert [each for each in ids if each != 1000] == list(range(3, 250))


def test_kill_cursors(many: Database[Documents]) -> None:
    one, other = opened(many), opened(many)
    reply = many.command("killCursors", "elsewhere", cursors=[one, None, Int64(77)])
    assert (reply["cursorsKilled"], reply["cursorsNotFound"]) == ([one], [77])
    assert (reply["cursorsAlive"], reply["cursorsUnknown"]) == ([], [])
    assert many.command("killCursors", "c", cursors=[])["cursorsKilled"] == []
    assert refusal(many, {"getMore": one, "collection": "c"}) == 43
    assert many.command("killCursors", "c", cursors=[other])["cursorsKilled"] == [other]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, 40414),
        ({"cursors": None}, 40414),
        ({"cursors": Int64(1)}, 14),
        ({"cursors": [1]}, 14),
        ({"cursors": [Int64(1)], "writeConcern": {}}, 72),
        ({"cursors": [Int64(1)], "readConcern": {"level": "majority"}}, 72),
        ({"cursors": [Int64(1)], "readConcern": {"level": "local"}}, 0),
    ],
    ids=str,
)
def test_arguments_of_kill_cursors(many: Database[Documents], arguments: Documents, code: int) -> None:
    assert refusal(many, {"killCursors": "c", **arguments}) == code


def test_exhaust_cursors_stream_all(server: mongottl.RunningServer, many: Database[Documents]) -> None:
    with pymongo.MongoClient[Documents](server.uri, maxPoolSize=1) as own:
        cursor = own[many.name].c.find(cursor_type=pymongo.CursorType.EXHAUST, batch_size=7)
        assert [document["_id"] for document in cursor] == [*range(250)]
        # The connection is whole again for others.
        assert own[many.name].c.count_documents({}) == 250


def test_an_exhaust_cursor_whose_collection_is_dropped(
    server: mongottl.RunningServer, many: Database[Documents]
) -> None:
    with pymongo.MongoClient[Documents](server.uri) as own:
        cursor = own[many.name].c.find(cursor_type=pymongo.CursorType.EXHAUST, batch_size=2)
        next(cursor)
        many.c.drop()
        with pytest.raises(OperationFailure) as died:
            for _ in cursor:
                pass
        # Batches that were under way when it happened came in whole.
        assert died.value.code == 175


def test_expired_documents_are_left_out_of_later_batches(many: Database[Documents]) -> None:
    many.d.create_index("_ts", expireAfterSeconds=10)
    many.d.insert_many([{"_id": i, "ttl": 5 if i % 2 else -1} for i in range(10)])
    reply = many.command({"find": "d", "batchSize": 4})
    assert [d["_id"] for d in reply["cursor"]["firstBatch"]] == [0, 1, 2, 3]
    many.client.admin.command("advanceClock", 6)
    reply = many.command("getMore", Int64(reply["cursor"]["id"]), collection="d")
    assert [d["_id"] for d in reply["cursor"]["nextBatch"]] == [4, 6, 8]


def test_the_fail_point_of_time_limits(client: "pymongo.MongoClient[Documents]", many: Database[Documents]) -> None:
    limited = opened(many, {"find": "c", "batchSize": 2, "maxTimeMS": 60_000})
    unlimited = opened(many)
    client.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="alwaysOn")
    try:
        for command in (
            {"find": "c"},
            {"count": "c"},
            {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]},
        ):
            assert refusal(many, {**command, "maxTimeMS": 60_000}) == 50
            assert refusal(many, {**command, "maxTimeMS": 0}) == 0
        assert refusal(many, {"getMore": limited, "collection": "c"}) == 50
        assert refusal(many, {"getMore": unlimited, "collection": "c"}) == 0
    finally:
        client.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="off")
    assert refusal(many, {"getMore": limited, "collection": "c"}) == 43
    client.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode={"times": 1})
    assert refusal(many, {"count": "c"}) == 0
    assert refusal(many, {"count": "c", "maxTimeMS": 60_000}) == 50
    assert refusal(many, {"count": "c", "maxTimeMS": 60_000}) == 0


def test_the_time_for_which_a_get_more_waits_is_no_limit(
    client: "pymongo.MongoClient[Documents]", many: Database[Documents]
) -> None:
    """`maxTimeMS` of a getMore counts from when it begins to wait, so it never ends one with MaxTimeMSExpired."""
    many.create_collection("capped", capped=True, size=100_000).insert_one({"_id": 0})
    tailing = opened(many, {"find": "capped", "tailable": True, "awaitData": True, "batchSize": 1})
    stream = opened(many, {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}})
    client.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="alwaysOn")
    try:
        for limit in (1, 0):
            assert refusal(many, {"getMore": tailing, "collection": "capped", "maxTimeMS": limit}) == 0
            assert refusal(many, {"getMore": stream, "collection": "c", "maxTimeMS": limit}) == 0
    finally:
        client.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="off")
        many.command({"killCursors": "capped", "cursors": [tailing]})
        many.command({"killCursors": "c", "cursors": [stream]})


def test_the_default_time_limit_applies_to_reads(
    client: "pymongo.MongoClient[Documents]", many: Database[Documents]
) -> None:
    client.admin.command("setClusterParameter", {"defaultMaxTimeMS": {"readOperations": 60_000}})
    client.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="alwaysOn")
    try:
        assert refusal(many, {"find": "c"}) == 50
        assert refusal(many, {"find": "c", "maxTimeMS": 0}) == 0
        assert refusal(many, {"aggregate": "c", "pipeline": [], "cursor": {}}) == 50
        assert refusal(many, {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}}) == 0
        assert refusal(many, {"insert": "c", "documents": [{}]}) == 0
    finally:
        client.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="off")
        client.admin.command("setClusterParameter", {"defaultMaxTimeMS": {"readOperations": 0}})


@pytest.mark.parametrize("expire", [False, True])
@pytest.mark.parametrize("options", [{}, {"filter": {"n": {"$gte": 0}}}, {"sort": {"n": 1}}, {"hint": "k_1"}])
def test_documents_that_were_read_ahead_and_then_deleted_are_not_returned(
    database: Database[Any], options: dict[str, Any], expire: bool
) -> None:
    if expire:
        database.c.create_index("_ts", expireAfterSeconds=3600)
    database.c.create_index("k")
    database.c.insert_many([{"_id": n, "n": n, "k": n} for n in range(8)])
    opened = database.command("find", "c", batchSize=2, **options)["cursor"]
    assert [document["_id"] for document in opened["firstBatch"]] == [0, 1]
    database.c.delete_many({"_id": {"$in": [0, 2, 5]}})
    rest = database.command("getMore", opened["id"], collection="c")["cursor"]["nextBatch"]
    assert [document["_id"] for document in rest] == [3, 4, 6, 7]
