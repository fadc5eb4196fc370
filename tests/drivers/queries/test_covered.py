"""Covered queries: explain shows that no document was looked at, and when documents are needed after all."""

import struct
from typing import Any

import bson
import pytest
from bson import CodecOptions, Decimal128
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

Documents = dict[str, Any]


@pytest.fixture
def stock(database: Database[Documents]) -> Database[Documents]:
    database.c.create_index([("a", 1), ("b", -1)])
    database.c.insert_many([{"_id": i, "a": i % 5, "b": f"b{i}", "c": i} for i in range(20)])
    return database


def stats(database: Database[Documents], **find: Any) -> tuple[list[str], int, int]:
    """The stages from the top, and how many keys and documents were looked at."""
    reply = database.command({"explain": {"find": "c", **find}, "verbosity": "executionStats"})
    stage = reply["queryPlanner"]["winningPlan"]
    names = [stage["stage"]]
    while "inputStage" in stage:
        stage = stage["inputStage"]
        names.append(stage["stage"])
    executed = reply["executionStats"]
    return names, executed["totalKeysExamined"], executed["totalDocsExamined"]


AB = {"_id": 0, "a": 1, "b": 1}


@pytest.mark.parametrize(
    ("find", "stages", "keys", "documents"),
    [
        ({"filter": {"a": 3}, "projection": AB}, ["PROJECTION_COVERED", "IXSCAN"], 4, 0),
        ({"filter": {"a": 3}, "projection": {"_id": 0, "b": 1}}, ["PROJECTION_COVERED", "IXSCAN"], 4, 0),
        ({"filter": {"a": {"$gt": 2}, "b": {"$regex": "1"}}, "projection": AB}, ["PROJECTION_COVERED", "IXSCAN"], 8, 0),
        ({"filter": {"a": 3}, "projection": AB, "sort": {"b": 1}}, ["PROJECTION_COVERED", "IXSCAN"], 4, 0),
        ({"filter": {"_id": {"$gt": 15}}, "projection": {"_id": 1}}, ["PROJECTION_COVERED", "IXSCAN"], 4, 0),
        ({"filter": {"a": 3}, "projection": AB, "limit": 2}, ["LIMIT", "PROJECTION_COVERED", "IXSCAN"], 2, 0),
        ({"filter": {"a": 3}, "projection": {"a": 1}}, ["PROJECTION_SIMPLE", "FETCH", "IXSCAN"], 4, 4),
        ({"filter": {"a": 3}, "projection": {"_id": 0, "c": 1}}, ["PROJECTION_SIMPLE", "FETCH", "IXSCAN"], 4, 4),
        ({"filter": {"a": 3}, "projection": {"_id": 0}}, ["PROJECTION_SIMPLE", "FETCH", "IXSCAN"], 4, 4),
        ({"filter": {"a": 3, "c": 8}, "projection": AB}, ["PROJECTION_SIMPLE", "FETCH", "IXSCAN"], 4, 4),
    ],
    ids=str,
)
def test_plans(stock: Database[Documents], find: Documents, stages: list[str], keys: int, documents: int) -> None:
    assert stats(stock, **find) == (stages, keys, documents)


@pytest.fixture
def nested(database: Database[Documents]) -> Database[Documents]:
    database.c.create_index([("x.a", 1), ("b", -1), ("x.y.c", 1)])
    database.c.insert_many([{"_id": i, "b": i, "x": {"a": i % 5, "y": {"c": f"c{i}"}, "z": i}} for i in range(20)])
    return database


INDEX = "x.a_1_b_-1_x.y.c_1"
XA = {"_id": 0, "x.a": 1}
XABC = {"_id": 0, "x": {"a": 1, "y": {"c": 1}}, "b": 1}
COVERED = ["PROJECTION_DEFAULT", "IXSCAN"]
FETCHED = ["PROJECTION_DEFAULT", "FETCH", "IXSCAN"]


@pytest.mark.parametrize(
    ("find", "stages", "keys", "documents"),
    [
        ({"filter": {"x.a": 3}, "projection": XA}, COVERED, 4, 0),
        ({"filter": {"x.a": 3}, "projection": XABC, "sort": {"b": 1}}, COVERED, 4, 0),
        ({"filter": {"x.a": {"$gt": 2}, "x.y.c": {"$regex": "1"}}, "projection": XABC}, COVERED, 8, 0),
        ({"filter": {"x.a": 3}, "projection": {"_id": 0, "b": 1}}, ["PROJECTION_COVERED", "IXSCAN"], 4, 0),
        ({"filter": {"x.a": 3}, "projection": {"_id": 0, "x": 1}}, ["PROJECTION_SIMPLE", "FETCH", "IXSCAN"], 4, 4),
        ({"filter": {"x.a": 3}, "projection": {"_id": 0, "x.a": 1, "x.z": 1}}, FETCHED, 4, 4),
        ({"filter": {"x.a": 3, "x.z": 3}, "projection": XA}, FETCHED, 4, 4),
        ({"filter": {"x.a": 3, "x": {"$ne": 1}}, "projection": XA}, FETCHED, 4, 4),
        ({"filter": {"x.a": 3}, "projection": {"_id": 0, "x.a.q": 1}}, FETCHED, 4, 4),
    ],
    ids=str,
)
def test_plans_of_dotted_paths(
    nested: Database[Documents], find: Documents, stages: list[str], keys: int, documents: int
) -> None:
    assert stats(nested, **find) == (stages, keys, documents)


@pytest.mark.parametrize(
    ("projection", "covered"),
    [
        ({"_id": 0, "s": {"$add": ["$a", 1]}}, True),
        ({"_id": 0, "b": 1, "s": {"$concat": ["$b", "!"]}}, True),
        ({"_id": 0, "s": {"$let": {"vars": {"v": "$a"}, "in": {"$multiply": ["$$v", 2]}}}}, True),
        ({"_id": 0, "s": "$a", "t": {"$literal": 1}}, True),
        ({"_id": 0, "s": "$a.q"}, True),
        ({"_id": 0, "s": "$c"}, False),
        ({"s": "$a"}, False),
        ({"_id": 0, "s": "$$ROOT"}, False),
        ({"_id": 0, "s": {"$getField": "a"}}, False),
        ({"_id": 0, "a.s": "$b"}, False),
        ({"_id": 0, "a": 1, "b": {"$slice": 1}}, False),
    ],
    ids=str,
)
def test_computed_projections(stock: Database[Documents], projection: Documents, covered: bool) -> None:
    stages = ["PROJECTION_DEFAULT", "IXSCAN"] if covered else ["PROJECTION_DEFAULT", "FETCH", "IXSCAN"]
    assert stats(stock, filter={"a": 3}, projection=projection) == (stages, 4, 0 if covered else 4)
    natural = list(stock.c.find({"a": 3}, projection, hint=[("$natural", 1)]))
    assert sorted(map(repr, stock.c.find({"a": 3}, projection))) == sorted(map(repr, natural))
    if "$slice" not in repr(projection):
        pipeline = [{"$match": {"a": 3}}, {"$project": projection}]
        assert sorted(map(repr, stock.c.aggregate(pipeline))) == sorted(map(repr, natural))


@pytest.mark.parametrize(
    ("stage", "paths"),
    [
        ({"$group": {"_id": "$a", "n": {"$sum": 1}}}, ["a"]),
        ({"$group": {"_id": "$a", "s": {"$max": "$b"}}}, ["a", "b"]),
        ({"$group": {"_id": {"$strLenBytes": "$b"}, "s": {"$push": {"$add": ["$a", 1]}}}}, ["a", "b"]),
        ({"$group": {"_id": None, "s": {"$top": {"sortBy": {"b": 1}, "output": "$a"}}}}, ["a", "b"]),
        ({"$project": {"_id": 0, "b": 1}}, ["b"]),
        ({"$project": {"_id": 0, "b": 1, "s": {"$add": ["$a", 1]}}}, ["a", "b"]),
        ({"$group": {"_id": "$a", "s": {"$max": "$c"}}}, None),
        ({"$group": {"_id": "$_id"}}, None),
        ({"$group": {"_id": "$a", "s": {"$push": "$$ROOT"}}}, None),
        ({"$project": {"b": 1}}, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("before", [[], [{"$sort": {"b": 1}}]], ids=["", "sorted"])
def test_pipelines_read_keys(
    stock: Database[Documents], before: list[Documents], stage: Documents, paths: list[str] | None
) -> None:
    pipeline = [{"$match": {"a": {"$gte": 3}}}, *before, stage]
    command = {"aggregate": "c", "pipeline": pipeline, "cursor": {}}
    cursor = stock.command("explain", command, verbosity="executionStats")["stages"][0]["$cursor"]
    plan = cursor["queryPlanner"]["winningPlan"]
    if paths is None:
        assert plan["stage"] in ("FETCH", "SORT")
        assert cursor["executionStats"]["totalDocsExamined"] == 8
    else:
        transformed = {"_id": 0, **dict.fromkeys(paths, 1)}
        assert (plan["stage"], plan["transformBy"]) == ("PROJECTION_COVERED", transformed)
        assert cursor["executionStats"]["totalDocsExamined"] == 0
        assert cursor["executionStats"]["totalKeysExamined"] == 8
    natural = stock.c.aggregate(pipeline, hint={"$natural": 1})
    found, expected = (sorted(map(shown, documents)) for documents in (stock.c.aggregate(pipeline), natural))
    assert found == expected


def shown(document: Documents) -> str:
    """A document with its arrays sorted: without a `$sort`, their order is that of the plan."""
    return repr(
        {name: sorted(value, key=repr) if isinstance(value, list) else value for name, value in document.items()}
    )


def test_expressions_in_filters(stock: Database[Documents]) -> None:
    filter = {"a": 3, "$expr": {"$gt": [{"$strLenBytes": "$b"}, 2]}}
    assert stats(stock, filter=filter, projection=AB) == (["PROJECTION_COVERED", "IXSCAN"], 4, 0)
    assert list(stock.c.find(filter, AB)) == [{"a": 3, "b": "b18"}, {"a": 3, "b": "b13"}]
    assert stats(stock, filter={"a": 3, "$expr": {"$gt": ["$c", 2]}}, projection=AB)[2] == 4


def test_covered_scans_skip_keys(database: Database[Documents]) -> None:
    database.c.create_index([("a", 1), ("b", 1)])
    database.c.insert_many([{"a": i // 100, "b": i % 100} for i in range(1000)])
    filter = {"a": {"$gte": 2, "$lte": 5}, "b": {"$in": [7, 70]}}
    names, keys, documents = stats(database, filter=filter, projection=AB)
    assert (names, documents) == (["PROJECTION_COVERED", "IXSCAN"], 0)
    assert keys < 20
    expected = [{"a": a, "b": b} for a in range(2, 6) for b in (7, 70)]
    assert list(database.c.find(filter, AB)) == expected
    assert list(database.c.find(filter, AB, sort=[("a", -1), ("b", -1)])) == expected[::-1]
    assert list(database.c.find(filter, AB, batch_size=3)) == expected
    cursor = database.c.find(filter, AB, batch_size=3)
    first = [next(cursor) for _ in range(3)]
    database.c.insert_one({"a": [4, 4.5], "b": 70})
    assert first + list(cursor) == [*expected[:6], {"a": [4, 4.5], "b": 70}, *expected[6:]]


def test_results_of_dotted_paths(nested: Database[Documents]) -> None:
    found = list(nested.c.find({"x.a": 3}, XABC, sort=[("b", -1)]))
    assert found == [{"x": {"a": 3, "y": {"c": f"c{i}"}}, "b": i} for i in (18, 13, 8, 3)]
    assert list(nested.c.aggregate([{"$match": {"x.a": 3}}, {"$project": XA}])) == [{"x": {"a": 3}}] * 4
    query = {"filter": {"x.a": {"$lte": 0}}, "projection": XA}
    assert stats(nested, **query)[2] == 0
    # What is missing may be missing with what is above it, or without.
    nested.c.insert_many([{"_id": "none"}, {"_id": "empty", "x": {}}, {"_id": "scalar", "x": 5}])
    assert stats(nested, **query)[2] == 4
    assert list(nested.c.find({"x.a": None}, XA)) == [{}, {"x": {}}, {}]
    # Where it is only looked at, and nothing of it given, keys suffice.
    filter = {"x.a": None, "x.y.c": {"$exists": False}}
    looked_at = stats(nested, filter=filter, projection={"_id": 0, "b": 1}, hint=INDEX)
    # The fourth key is the first one behind the range: the scan skips keys with another x.y.c.
    assert looked_at == (["PROJECTION_COVERED", "IXSCAN"], 4, 0)
    assert list(nested.c.find(filter, {"_id": 0, "b": 1}, hint=INDEX)) == [{}, {}, {}]


@pytest.mark.parametrize(
    "value",
    [Decimal128("1.10"), -0.0, struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0], {"a": 1}, b"x", [1]],
    ids=str,
)
def test_values_that_keys_do_not_tell_come_from_documents(database: Database[Documents], value: Any) -> None:
    database.c.create_index([("a", 1), ("b", 1)])
    database.c.insert_one({"a": value, "b": "x"})
    options: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
    raw: Any = database.get_collection("c", codec_options=options)
    found: Any = next(raw.find({"b": "x"}, {"_id": 0, "a": 1, "b": 1}, hint="a_1_b_1"))
    assert found.raw == bson.encode({"a": value, "b": "x"})
    # The other component is told all the same, but in a multikey index.
    query = {"filter": {"b": "x"}, "projection": {"_id": 0, "b": 1}, "hint": "a_1_b_1"}
    assert stats(database, **query)[2] == int(isinstance(value, list))
    assert list(database.c.find({"b": "x"}, {"_id": 0, "b": 1}, hint="a_1_b_1")) == [{"b": "x"}]


def found(database: Database[Documents]) -> list[Documents]:
    return list(database.c.find({"a": 3}, AB, sort=[("b", -1)]))


EXPECTED = [{"a": 3, "b": b} for b in ("b8", "b3", "b18", "b13")]


def docs_examined(database: Database[Documents]) -> int:
    return stats(database, filter={"a": 3}, projection=AB)[2]


def test_results(stock: Database[Documents]) -> None:
    assert found(stock) == EXPECTED
    assert [list(document) for document in found(stock)] == [["a", "b"]] * 4
    assert list(stock.c.aggregate([{"$match": {"a": 3}}, {"$project": AB}, {"$sort": {"b": -1}}])) == EXPECTED


def test_another_sort_of_number_needs_documents(stock: Database[Documents]) -> None:
    stock.c.insert_one({"a": 7.0, "b": "x"})
    assert found(stock) == EXPECTED
    assert docs_examined(stock) == 4
    stock.c.delete_one({"a": 7.0})
    stock.c.drop_index("a_1_b_-1")
    stock.c.create_index([("a", 1), ("b", -1)])
    assert docs_examined(stock) == 0


def test_the_same_key_of_another_type_needs_documents(stock: Database[Documents]) -> None:
    stock.c.update_one({"_id": 3}, {"$set": {"a": 3.0}})
    assert docs_examined(stock) == 4
    assert [type(document["a"]) for document in found(stock)] == [int, float, int, int]
    stock.c.replace_one({"_id": 19}, {"_id": 19.0})
    assert stats(stock, filter={"_id": {"$gt": 15}}, projection={"_id": 1})[2] == 4
    assert [type(document["_id"]) for document in stock.c.find({"_id": {"$gt": 17}}, {"_id": 1})] == [int, float]


def test_arrays_need_documents(stock: Database[Documents]) -> None:
    stock.c.insert_one({"a": [3, 4], "b": "x"})
    assert docs_examined(stock) == 5


def test_expiry_needs_documents(stock: Database[Documents]) -> None:
    stock.c.create_index("_ts", expireAfterSeconds=100)
    assert docs_examined(stock) == 4


def test_a_cursor_goes_on_with_documents(stock: Database[Documents]) -> None:
    cursor = stock.c.find({"a": {"$gte": 0}}, AB, batch_size=3)
    first = [next(cursor) for _ in range(3)]
    stock.c.insert_one({"a": 9.5, "b": "late"})
    rest = list(cursor)
    assert len(first) + len(rest) == 21
    assert rest[-1] == {"a": 9.5, "b": "late"}


def test_a_collated_index_needs_documents(database: Database[Documents]) -> None:
    collation = {"locale": "en", "strength": 2}
    database.c.create_index("a", collation=collation)
    database.c.insert_many([{"a": a} for a in ("x", "Y", "z")])
    query = {"filter": {"a": {"$gte": "y"}}, "projection": {"_id": 0, "a": 1}, "collation": collation}
    assert stats(database, **query) == (["PROJECTION_SIMPLE", "FETCH", "IXSCAN"], 2, 2)
    command = {"find": "c", "min": {"a": "y"}, "hint": "a_1", "projection": {"_id": 0}, "collation": collation}
    assert database.command(command)["cursor"]["firstBatch"] == [{"a": "Y"}, {"a": "z"}]
