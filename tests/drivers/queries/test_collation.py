"""Collations over a real socket: on every command that takes one, on indexes, and as a collection's default."""

from typing import Any

import pytest
from pymongo import DeleteMany, DeleteOne, IndexModel, ReturnDocument, UpdateMany, UpdateOne
from pymongo.collation import Collation
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError

from mongottl.query.icu import is_available
from tests.drivers.refusals import refusal

pytestmark = pytest.mark.skipif(not is_available(), reason="ICU is not installed")

Documents = dict[str, Any]

ANY_CASE = Collation("en", strength=2)
BASE = Collation("en", strength=1)
NUMERIC = Collation("en", numericOrdering=True)
WORDS = ["apple", "Apple", "banana", "Banana", "cafe", "café"]
FULL = {
    "locale": "en",
    "caseLevel": False,
    "caseFirst": "off",
    "strength": 2,
    "numericOrdering": False,
    "alternate": "non-ignorable",
    "maxVariable": "punct",
    "normalization": False,
    "backwards": False,
    "version": "57.1",
}


@pytest.fixture
def words(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "w": word, "n": i} for i, word in enumerate(WORDS)])
    return database


def ids(found: Any) -> list[Any]:
    return sorted(document["_id"] for document in found)


@pytest.mark.parametrize(
    ("filter", "collation", "expected"),
    [
        ({"w": "APPLE"}, None, []),
        ({"w": "APPLE"}, ANY_CASE, [0, 1]),
        ({"w": {"$eq": "APPLE"}}, ANY_CASE, [0, 1]),
        ({"w": "CAFE"}, ANY_CASE, [4]),
        ({"w": "CAFE"}, BASE, [4, 5]),
        ({"w": {"$ne": "APPLE"}}, ANY_CASE, [2, 3, 4, 5]),
        ({"w": {"$gt": "BANANA"}}, ANY_CASE, [4, 5]),
        ({"w": {"$gte": "BANANA"}}, ANY_CASE, [2, 3, 4, 5]),
        ({"w": {"$lt": "BANANA"}}, ANY_CASE, [0, 1]),
        ({"w": {"$lte": "BANANA", "$gt": "APPLE"}}, ANY_CASE, [2, 3]),
        ({"w": {"$in": ["APPLE", "CAFÉ"]}}, ANY_CASE, [0, 1, 5]),
        ({"w": {"$in": ["APPLE", "Apple"]}}, ANY_CASE, [0, 1]),
        ({"w": {"$in": ["APPLE", "^b"]}}, ANY_CASE, [0, 1]),
        ({"w": {"$nin": ["APPLE", "CAFÉ"]}}, ANY_CASE, [2, 3, 4]),
        ({"w": {"$not": {"$gt": "APPLE"}}}, ANY_CASE, [0, 1]),
        ({"$or": [{"w": "APPLE"}, {"w": "CAFE"}]}, ANY_CASE, [0, 1, 4]),
        ({"w": {"$all": ["APPLE"]}}, ANY_CASE, [0, 1]),
        ({"w": {"$regex": "^APP"}}, ANY_CASE, []),
        ({"w": {"$regex": "^app"}}, ANY_CASE, [0]),
        ({"$expr": {"$eq": ["$w", "APPLE"]}}, ANY_CASE, [0, 1]),
        ({"$expr": {"$in": ["$w", ["APPLE"]]}}, ANY_CASE, []),
        ({"$expr": {"$and": [{"$in": ["$w", ["apple"]]}, {"$gt": ["$n", -1]}]}}, ANY_CASE, [0]),
        ({"$jsonSchema": {"properties": {"w": {"enum": ["APPLE"]}}}}, ANY_CASE, []),
        ({"n": {"$gt": 3}}, ANY_CASE, [4, 5]),
    ],
    ids=str,
)
def test_filters(
    words: Database[Documents], filter: Documents, collation: Collation | None, expected: list[int]
) -> None:
    for index in (None, [("w", 1)], [("n", 1), ("w", -1)]):
        for index_collation in (None, ANY_CASE, BASE):
            if index is not None:
                words.c.create_index(index, collation=index_collation)
            assert ids(words.c.find(filter, collation=collation)) == expected
            assert ids(words.c.aggregate([{"$match": filter}], collation=collation)) == expected
            assert words.c.count_documents(filter, collation=collation) == len(expected)
            assert words.command("count", "c", query=filter, collation=collation and collation.document)["n"] == len(
                expected
            )
            words.c.drop_indexes()


def test_arrays(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": 1, "t": ["Apple", "x"]}, {"_id": 2, "t": ["pear"]}, {"_id": 3, "t": [{"v": "A"}]}])
    for collation in (None, ANY_CASE):
        if collation is not None:
            database.c.create_index("t", collation=collation)
        assert ids(database.c.find({"t": "APPLE"}, collation=ANY_CASE)) == [1]
        assert ids(database.c.find({"t": {"$all": ["X", "APPLE"]}}, collation=ANY_CASE)) == [1]
        assert ids(database.c.find({"t": {"$elemMatch": {"$gt": "O", "$lt": "Q"}}}, collation=ANY_CASE)) == [2]
        assert ids(database.c.find({"t": {"$elemMatch": {"v": "a"}}}, collation=ANY_CASE)) == [3]
        assert ids(database.c.find({"t": {"v": "a"}}, collation=ANY_CASE)) == [3]
        assert ids(database.c.find({"t": {"V": "a"}}, collation=ANY_CASE)) == []
        assert ids(database.c.find({"t": ["apple", "X"]}, collation=ANY_CASE)) == [1]
    found = list(database.c.find({"t": "X"}, {"t.$": 1}, collation=ANY_CASE))
    assert found == [{"_id": 1, "t": ["x"]}]
    found = list(database.c.find({"_id": 1}, {"t": {"$elemMatch": {"$eq": "APPLE"}}}, collation=ANY_CASE))
    assert found == [{"_id": 1, "t": ["Apple"]}]


@pytest.mark.parametrize(
    ("values", "collation", "expected"),
    [
        (["b", "A", "a", "B"], None, ["A", "B", "a", "b"]),
        (["b", "A", "a", "B"], Collation("en"), ["a", "A", "b", "B"]),
        (["b", "A", "a", "B"], Collation("en", caseFirst="upper"), ["A", "a", "B", "b"]),
        (["10", "9", "x1"], NUMERIC, ["9", "10", "x1"]),
        (["côte", "coté"], Collation("fr"), ["coté", "côte"]),
        (["coté", "côte"], Collation("fr_CA"), ["côte", "coté"]),
        (["z", "ä"], Collation("sv"), ["z", "ä"]),
        (["z", "ä"], Collation("de"), ["ä", "z"]),
        (
            ["b", 3, None, "A", True, {"x": "b"}, {"x": "A"}],
            Collation("en"),
            [None, 3, "A", "b", {"x": "A"}, {"x": "b"}, True],
        ),
    ],
    ids=str,
)
def test_sorts(
    database: Database[Documents], values: list[Any], collation: Collation | None, expected: list[Any]
) -> None:
    database.c.insert_many([{"v": value} for value in values])
    for _ in range(2):
        assert [document["v"] for document in database.c.find(collation=collation).sort("v")] == expected
        backwards = database.c.aggregate([{"$sort": {"v": -1}}], collation=collation)
        assert [document["v"] for document in backwards] == expected[::-1]
        top = database.c.find(collation=collation).sort("v").limit(2)
        assert [document["v"] for document in top] == expected[:2]
        database.c.create_index("v", collation=collation)


def test_distinct_and_groups(words: Database[Documents]) -> None:
    assert words.c.distinct("w", collation=ANY_CASE) == ["apple", "banana", "cafe", "café"]
    assert words.c.distinct("w", collation=BASE) == ["apple", "banana", "cafe"]
    assert words.c.distinct("w", {"w": "APPLE"}, collation=ANY_CASE) == ["apple"]
    groups = words.c.aggregate([{"$group": {"_id": "$w", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}], collation=BASE)
    assert list(groups) == [{"_id": "apple", "n": 2}, {"_id": "banana", "n": 2}, {"_id": "cafe", "n": 2}]
    counts = words.c.aggregate([{"$sortByCount": "$w"}], collation=ANY_CASE)
    assert sorted(group["count"] for group in counts) == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("accumulator", "expected"),
    [
        ({"$min": "$w"}, "apple"),
        ({"$max": "$w"}, "café"),
        ({"$minN": {"n": 2, "input": "$w"}}, ["apple", "Apple"]),
        ({"$maxN": {"n": 1, "input": "$w"}}, ["café"]),
        ({"$top": {"sortBy": {"w": -1}, "output": "$n"}}, 5),
        ({"$bottomN": {"n": 1, "sortBy": {"w": 1}, "output": "$n"}}, [5]),
        ({"$addToSet": "$w"}, ["apple", "banana", "cafe", "café"]),
        ({"$setUnion": {"$concatArrays": [["$w"]]}}, ["apple", "banana", "cafe", "café"]),
        ({"$push": "$w"}, WORDS),
    ],
    ids=str,
)
def test_accumulators(words: Database[Documents], accumulator: Documents, expected: Any) -> None:
    pipeline: list[Documents] = [{"$sort": {"_id": 1}}, {"$group": {"_id": None, "v": accumulator}}]
    assert next(iter(words.c.aggregate(pipeline, collation=ANY_CASE)))["v"] == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$eq": ["a", "A"]}, True),
        ({"$ne": ["a", "A"]}, False),
        ({"$cmp": ["a", "B"]}, -1),
        ({"$gt": ["B", "a"]}, True),
        ({"$in": ["A", ["a"]]}, True),
        ({"$indexOfArray": [["x", "A"], "a"]}, 1),
        ({"$setUnion": [["a", "B"], ["A", "b"]]}, ["a", "B"]),
        ({"$setIntersection": [["a", "B"], ["A"]]}, ["A"]),
        ({"$setDifference": [["a", "B"], ["A"]]}, ["B"]),
        ({"$setIsSubset": [["a"], ["A", "b"]]}, True),
        ({"$setEquals": [["a"], ["A", "a"]]}, True),
        ({"$max": ["B", "a"]}, "B"),
        ({"$min": ["B", "a"]}, "a"),
        ({"$maxN": {"n": 1, "input": ["B", "a"]}}, ["B"]),
        ({"$minN": {"n": 1, "input": ["B", "a"]}}, ["a"]),
        ({"$sortArray": {"input": ["b", "C", "a"], "sortBy": 1}}, ["a", "b", "C"]),
        ({"$sortArray": {"input": [{"x": "b"}, {"x": "A"}], "sortBy": {"x": 1}}}, [{"x": "A"}, {"x": "b"}]),
        ({"$filter": {"input": ["a", "b"], "cond": {"$eq": ["$$this", "A"]}}}, ["a"]),
        ({"$switch": {"branches": [{"case": {"$eq": ["a", "A"]}, "then": 1}], "default": 2}}, 1),
        # What does not compare, but searches.
        ({"$indexOfCP": ["abc", "B"]}, -1),
        ({"$split": ["aXb", "x"]}, ["aXb"]),
        ({"$replaceAll": {"input": "aXb", "find": "x", "replacement": ""}}, "aXb"),
        ({"$strcasecmp": ["a", "b"]}, -1),
        ({"$regexMatch": {"input": "A", "regex": "a"}}, False),
    ],
    ids=str,
)
def test_expressions(database: Database[Documents], expression: Documents, expected: Any) -> None:
    database.c.insert_one({"_id": 1})
    for pipeline in ([{"$project": {"v": expression}}], [{"$documents": [{"v": expression}]}]):
        source: Any = database if "$documents" in pipeline[0] else database.c
        assert next(iter(source.aggregate(pipeline, collation=ANY_CASE)))["v"] == expected


def test_joins(words: Database[Documents]) -> None:
    words.d.insert_many([{"_id": 1, "k": "APPLE", "up": "Apple"}, {"_id": 2, "k": "Cafe", "up": "APPLE"}])
    equality = {"$lookup": {"from": "c", "localField": "k", "foreignField": "w", "as": "m"}}
    nested = {
        "$lookup": {
            "from": "c",
            "let": {"k": "$k"},
            "pipeline": [{"$match": {"$expr": {"$eq": ["$w", "$$k"]}}}],
            "as": "m",
        }
    }
    graph = {
        "$graphLookup": {"from": "d", "startWith": "$k", "connectFromField": "up", "connectToField": "k", "as": "m"}
    }
    for index in (None, ANY_CASE, BASE):
        if index is not None:
            words.c.create_index("w", collation=index)
        for stage in (equality, nested):
            joined = words.d.aggregate([stage, {"$sort": {"_id": 1}}], collation=ANY_CASE)
            assert [ids(document["m"]) for document in joined] == [[0, 1], [4]]
        words.c.drop_indexes()
    reached = words.d.aggregate([{"$match": {"_id": 2}}, graph], collation=ANY_CASE)
    assert [ids(document["m"]) for document in reached] == [[1, 2]]


def test_stages(words: Database[Documents]) -> None:
    buckets = [{"$bucket": {"groupBy": "$w", "boundaries": ["APPLE", "BANANA", "D"]}}]
    found = list(words.c.aggregate(buckets, collation=ANY_CASE))
    assert found == [{"_id": "APPLE", "count": 2}, {"_id": "BANANA", "count": 4}]
    assert (
        refusal(
            words,
            {
                "aggregate": "c",
                "cursor": {},
                "pipeline": [{"$bucket": {"groupBy": "$w", "boundaries": ["b", "A"]}}],
                "collation": ANY_CASE.document,
            },
        )
        == 40194
    )
    halves = words.c.aggregate([{"$bucketAuto": {"groupBy": "$w", "buckets": 3}}], collation=BASE)
    assert [bucket["count"] for bucket in halves] == [2, 2, 2]
    window = {"$setWindowFields": {"partitionBy": "$w", "sortBy": {"n": 1}, "output": {"r": {"$documentNumber": {}}}}}
    ranked = words.c.aggregate([window, {"$sort": {"n": 1}}], collation=BASE)
    assert [document["r"] for document in ranked] == [1, 2, 1, 2, 1, 2]
    facet: list[Documents] = [{"$facet": {"a": [{"$match": {"w": "APPLE"}}, {"$count": "n"}]}}]
    assert list(words.c.aggregate(facet, collation=ANY_CASE)) == [{"a": [{"n": 2}]}]
    union: list[Documents] = [{"$limit": 1}, {"$unionWith": {"coll": "c", "pipeline": [{"$match": {"w": "APPLE"}}]}}]
    assert len(list(words.c.aggregate(union, collation=ANY_CASE))) == 3


def test_merge_needs_an_index_of_the_same_collation(words: Database[Documents]) -> None:
    without_id = {"$project": {"_id": 0, "w": 1, "n": 1}}
    merge: list[Documents] = [{"$match": {"_id": 1}}, without_id, {"$merge": {"into": "t", "on": "w"}}]
    words.t.insert_one({"_id": "x", "w": "APPLE"})
    words.t.create_index("w", unique=True, collation=BASE)
    command = {"aggregate": "c", "pipeline": merge, "cursor": {}, "collation": ANY_CASE.document}
    assert refusal(words, command) == 51183
    words.c.aggregate(merge, collation=BASE)
    # The index on `_id` has the collection's collation.
    by_id = {**command, "pipeline": [{"$limit": 1}, {"$merge": {"into": "u", "on": "_id"}}]}
    words.create_collection("u")
    assert refusal(words, by_id) == 51183
    assert refusal(words, {**by_id, "collation": {"locale": "simple"}}) == 0
    assert refusal(words, {**by_id, "pipeline": [{"$limit": 1}, {"$merge": "u"}]}) == 0
    assert list(words.t.find()) == [{"_id": "x", "w": "Apple", "n": 1}]


def test_updates_and_deletes(words: Database[Documents]) -> None:
    assert words.c.update_one({"w": "APPLE"}, {"$set": {"u": 1}}, collation=ANY_CASE).modified_count == 1
    assert words.c.update_many({"w": "APPLE"}, {"$set": {"u": 2}}, collation=ANY_CASE).modified_count == 2
    assert words.c.update_one({"w": "APPLE"}, {"$set": {"u": 1}}).matched_count == 0
    result = words.c.update_one({"w": "APPLE"}, {"$set": {"u": 3}}, upsert=True, collation=ANY_CASE)
    assert result.upserted_id is None
    assert words.c.replace_one({"w": "CAFÉ"}, {"w": "tea"}, collation=ANY_CASE).modified_count == 1
    found: Any = words.c.find_one_and_update(
        {"w": "BANANA"},
        {"$set": {"u": 4}},
        sort=[("w", -1)],
        collation=ANY_CASE,
        return_document=ReturnDocument.AFTER,
    )
    assert found["w"] in ("banana", "Banana")
    found = words.c.find_one_and_delete({"w": "BANANA"}, sort=[("_id", -1)], collation=ANY_CASE)
    assert found["_id"] == 3
    bulk = words.c.bulk_write(
        [
            UpdateOne({"w": "BANANA"}, {"$set": {"u": 5}}, collation=ANY_CASE),
            UpdateMany({"w": "BANANA"}, {"$set": {"u": 6}}),
            DeleteOne({"w": "TEA"}, collation=ANY_CASE),
            DeleteMany({"w": "APPLE"}, collation=ANY_CASE),
        ]
    )
    assert (bulk.modified_count, bulk.deleted_count) == (1, 3)
    assert ids(words.c.find()) == [2, 4]


@pytest.mark.parametrize(
    ("before", "update", "options", "after"),
    [
        ({"a": "b"}, {"$min": {"a": "C"}}, {}, {"a": "b"}),
        ({"a": "b"}, {"$max": {"a": "C"}}, {}, {"a": "C"}),
        ({"a": "b"}, {"$max": {"a": "B"}}, {}, {"a": "b"}),
        ({"a": ["x", "Y"]}, {"$addToSet": {"a": "X"}}, {}, {"a": ["x", "Y"]}),
        ({"a": ["x"]}, {"$addToSet": {"a": {"$each": ["y", "Y", "X"]}}}, {}, {"a": ["x", "y"]}),
        (
            {"a": list("abcdefgh")},
            {"$addToSet": {"a": {"$each": list("ABCDEFGHIJ")}}},
            {},
            {"a": [*"abcdefgh", "I", "J"]},
        ),
        ({"a": ["x", "X", "y"]}, {"$pull": {"a": "X"}}, {}, {"a": ["y"]}),
        ({"a": ["x", "z"]}, {"$pull": {"a": {"$gt": "Y"}}}, {}, {"a": ["x"]}),
        ({"a": [{"k": "x"}, {"k": "y"}]}, {"$pull": {"a": {"k": "X"}}}, {}, {"a": [{"k": "y"}]}),
        ({"a": ["x", "X", "y"]}, {"$pullAll": {"a": ["X"]}}, {}, {"a": ["y"]}),
        ({"a": ["x", "y"]}, {"$pullAll": {"a": list("ABCDEFGHX")}}, {}, {"a": ["y"]}),
        ({"a": ["b", "C"]}, {"$push": {"a": {"$each": ["A"], "$sort": 1}}}, {}, {"a": ["A", "b", "C"]}),
        (
            {"a": [{"k": "b"}]},
            {"$push": {"a": {"$each": [{"k": "A"}], "$sort": {"k": 1}}}},
            {},
            {"a": [{"k": "A"}, {"k": "b"}]},
        ),
        ({"a": ["x", "y"]}, {"$set": {"a.$[e]": 1}}, {"arrayFilters": [{"e": "X"}]}, {"a": [1, "y"]}),
        ({"a": ["x", "y"]}, {"$set": {"a.$": 1}}, {"q": {"a": "Y"}}, {"a": ["x", 1]}),
        ({"a": "x"}, [{"$set": {"b": {"$eq": ["$a", "X"]}}}], {}, {"a": "x", "b": True}),
    ],
    ids=str,
)
def test_modifiers(
    database: Database[Documents], before: Documents, update: Any, options: Documents, after: Documents
) -> None:
    database.c.insert_one({"_id": 1, **before})
    statement = {"q": {}, "u": update, "collation": ANY_CASE.document, **options}
    database.command({"update": "c", "updates": [statement]})
    assert database.c.find_one() == {"_id": 1, **after}


def test_ids(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": "a"}, {"_id": "A"}])
    assert ids(database.c.find({"_id": "A"})) == ["A"]
    assert ids(database.c.find({"_id": "A"}, collation=ANY_CASE)) == ["A", "a"]
    assert database.c.update_many({"_id": "A"}, {"$set": {"n": 1}}, collation=ANY_CASE).modified_count == 2
    assert database.c.delete_one({"_id": "A"}, collation=ANY_CASE).deleted_count == 1
    assert database.command(
        {"findAndModify": "c", "query": {"_id": "A"}, "remove": True, "collation": ANY_CASE.document}
    )["value"]


def test_a_collections_default(database: Database[Documents]) -> None:
    database.create_collection("c", collation=ANY_CASE)
    collection = database.c
    collection.insert_many([{"_id": "x", "w": "Apple"}, {"_id": "y", "w": "apple"}, {"_id": "z", "w": "pear"}])
    with pytest.raises(DuplicateKeyError):
        collection.insert_one({"_id": "X"})
    assert ids(collection.find({"w": "APPLE"})) == ["x", "y"]
    assert ids(collection.find({"_id": "X"})) == ["x"]
    assert ids(collection.find({"w": "Apple"}, collation=Collation("simple"))) == ["x"]
    assert ids(collection.find({"_id": "X"}, collation=Collation("simple"))) == []
    assert collection.update_one({"_id": "X"}, {"$set": {"n": 1}}).modified_count == 1
    found: Any = collection.find_one_and_update({"_id": "X"}, {"$set": {"n": 2}})
    assert found["n"] == 1
    assert collection.count_documents({"w": "APPLE"}) == 2
    assert collection.distinct("w") == ["Apple", "pear"]
    assert collection.estimated_document_count() == 3
    assert collection.delete_one({"_id": "Z"}).deleted_count == 1
    assert collection.delete_many({"w": "APPLE"}, collation=Collation("simple")).deleted_count == 0
    listed = next(iter(database.list_collections(filter={"name": "c"})))
    assert listed["options"] == {"collation": FULL}
    assert listed["idIndex"] == {"v": 2, "key": {"_id": 1}, "name": "_id_", "collation": FULL}
    assert database.command({"create": "c", "collation": {"locale": "en", "strength": 2, "backwards": False}})["ok"]
    assert refusal(database, {"create": "c"}) == 48
    database.create_collection("simple", collation=Collation("simple"))
    assert next(iter(database.list_collections(filter={"name": "simple"})))["options"] == {}


def test_indexes(database: Database[Documents]) -> None:
    database.create_collection("c", collation=ANY_CASE)
    database.c.create_indexes(
        [
            IndexModel("inherited"),
            IndexModel("own", collation=BASE),
            IndexModel("none", collation=Collation("simple")),
        ]
    )
    found = {index["name"]: index.get("collation") for index in database.c.list_indexes()}
    assert found == {"_id_": FULL, "inherited_1": FULL, "own_1": {**FULL, "strength": 1}, "none_1": None}
    # Indexes that differ in their collation alone are different ones, by other names.
    database.c.create_index("own", name="second", collation=ANY_CASE)
    clash = {"key": {"own": 1}, "name": "own_1"}
    assert refusal(database, {"createIndexes": "c", "indexes": [clash]}) == 86
    for specification, code in (
        ({"key": {"x": 1}, "name": "x", "collation": {}}, 2),
        ({"key": {"x": 1}, "name": "x", "collation": "en"}, 14),
        ({"key": {"x": 1}, "name": "x", "collation": {"strength": 1}}, 40414),
        ({"key": {"x": 1}, "name": "x", "collation": {"locale": "xx"}}, 2),
        ({"key": {"_id": 1}, "name": "_id_", "collation": {"locale": "simple"}}, 2),
    ):
        assert refusal(database, {"createIndexes": "c", "indexes": [specification]}) == code
    assert (
        refusal(
            database, {"create": "d", "idIndex": {"key": {"_id": 1}, "name": "_id_", "collation": {"locale": "en"}}}
        )
        == 2
    )


def test_unique_indexes(database: Database[Documents]) -> None:
    database.c.create_index("w", unique=True, collation=ANY_CASE)
    database.c.insert_many([{"w": "a"}, {"w": "á"}, {"w": 1}, {"w": ["x", "X"]}])
    for value in ("A", "Á", ["b", "A"], "X", 1.0):
        with pytest.raises(DuplicateKeyError) as caught:
            database.c.insert_one({"w": value})
        assert caught.value.details is not None
        assert caught.value.details["collation"] == FULL
    database.c.insert_one({"w": "b"})
    with pytest.raises(BulkWriteError):
        database.c.bulk_write([UpdateOne({"w": "b"}, {"$set": {"w": "A"}})])
    database.d.insert_many([{"w": "a"}, {"w": "A"}])
    with pytest.raises(DuplicateKeyError):
        database.d.create_index("w", unique=True, collation=ANY_CASE)
    database.d.create_index("w", unique=True)


def plan_of(database: Database[Documents], filter: Documents, collation: Collation | None, **options: Any) -> Documents:
    command = {"find": "c", "filter": filter, **options}
    if collation is not None:
        command["collation"] = collation.document
    planner: Documents = database.command({"explain": command, "verbosity": "queryPlanner"})["queryPlanner"]
    return planner


@pytest.mark.parametrize(
    ("index", "filter", "options", "query", "used"),
    [
        (ANY_CASE, {"w": "a"}, {}, ANY_CASE, "IXSCAN"),
        (ANY_CASE, {"w": "a"}, {}, BASE, "COLLSCAN"),
        (ANY_CASE, {"w": "a"}, {}, None, "COLLSCAN"),
        (None, {"w": "a"}, {}, ANY_CASE, "COLLSCAN"),
        (None, {"w": {"$in": [1, "a"]}}, {}, ANY_CASE, "COLLSCAN"),
        (ANY_CASE, {"w": {"x": 1}}, {}, None, "COLLSCAN"),
        (ANY_CASE, {"w": [1]}, {}, None, "COLLSCAN"),
        (ANY_CASE, {"w": {"$ne": "a"}}, {}, None, "COLLSCAN"),
        # No string comparison depends on the index.
        (ANY_CASE, {"w": 5}, {}, None, "IXSCAN"),
        (None, {"w": {"$gt": 5}}, {}, ANY_CASE, "IXSCAN"),
        (ANY_CASE, {"w": {"$in": [1, None]}}, {}, BASE, "IXSCAN"),
        (ANY_CASE, {"w": {"$type": "string"}}, {}, None, "IXSCAN"),
        # Regular expressions go by bytes.
        (None, {"w": {"$regex": "^a"}}, {}, ANY_CASE, "IXSCAN"),
        (ANY_CASE, {"w": {"$regex": "^a"}}, {}, ANY_CASE, "COLLSCAN"),
        # Sorts.
        (ANY_CASE, {}, {"sort": {"w": 1}}, ANY_CASE, "IXSCAN"),
        (ANY_CASE, {}, {"sort": {"w": -1}}, ANY_CASE, "IXSCAN"),
        (ANY_CASE, {}, {"sort": {"w": 1}}, None, "SORT"),
        (None, {}, {"sort": {"w": 1}}, ANY_CASE, "SORT"),
        (None, {"w": {"$gt": 5}}, {"sort": {"w": 1}}, ANY_CASE, "IXSCAN"),
        (None, {"w": {"$gte": None}}, {"sort": {"w": 1}}, ANY_CASE, "IXSCAN"),
    ],
    ids=str,
)
def test_indexes_serve_queries_of_their_collation(
    database: Database[Documents],
    index: Collation | None,
    filter: Documents,
    options: Documents,
    query: Collation | None,
    used: str,
) -> None:
    database.c.create_index("w", collation=index)
    stages = []
    stage = plan_of(database, filter, query, **options)["winningPlan"]
    while stage is not None:
        stages.append(stage["stage"])
        stage = stage.get("inputStage")
    assert used in stages
    assert ("SORT" in stages) == (used == "SORT")


def test_explain_shows_collations(database: Database[Documents]) -> None:
    database.c.create_index("w", collation=ANY_CASE)
    planner = plan_of(database, {"w": "a", "n": 1}, ANY_CASE)
    assert planner["collation"] == FULL
    scan = planner["winningPlan"]["inputStage"]
    assert scan["collation"] == FULL
    assert list(scan)[:4] == ["stage", "keyPattern", "indexName", "collation"]
    assert scan["indexBounds"]["w"][0].startswith("[CollationKey(0x")
    assert "collation" not in plan_of(database, {"w": 1}, None)


def test_a_partial_index_compares_by_its_own_collation(database: Database[Documents]) -> None:
    database.c.create_index("n", partialFilterExpression={"w": "a"}, collation=ANY_CASE)
    database.c.insert_many([{"_id": 1, "w": "A", "n": 1}, {"_id": 2, "w": "b", "n": 1}])
    assert ids(database.c.find({"w": "a", "n": 1})) == []
    assert ids(database.c.find({"w": "a", "n": 1}, collation=ANY_CASE)) == [1]
    assert "IXSCAN" in str(plan_of(database, {"w": "a", "n": 1}, ANY_CASE))
    assert "COLLSCAN" in str(plan_of(database, {"w": "a", "n": 1}, None))


def test_hashed_indexes(database: Database[Documents]) -> None:
    database.c.create_index([("w", "hashed")], collation=ANY_CASE)
    database.c.insert_many([{"_id": 1, "w": "A"}, {"_id": 2, "w": "b"}, {"_id": 3, "w": {"x": "A"}}])
    assert ids(database.c.find({"w": "a"}, collation=ANY_CASE)) == [1]
    assert ids(database.c.find({"w": {"x": "a"}}, collation=ANY_CASE)) == [3]
    assert ids(database.c.find({"w": "a"})) == []
    assert "IXSCAN" in str(plan_of(database, {"w": "a"}, ANY_CASE))
    assert "COLLSCAN" in str(plan_of(database, {"w": "a"}, None))


def test_hints(words: Database[Documents]) -> None:
    words.c.create_index("w", name="any_case", collation=ANY_CASE)
    assert ids(words.c.find({"w": "APPLE"}, collation=ANY_CASE).hint([("w", 1)])) == [0, 1]
    # An index of another collation can be demanded: its order is of no use then, and the filter is tested as ever.
    assert ids(words.c.find({"w": "apple"}).hint("any_case")) == [0]
    words.c.create_index("w", name="base", collation=BASE)
    assert refusal(words, {"find": "c", "filter": {"w": "a"}, "hint": {"w": 1}}) == 27
    assert ids(words.c.find({"w": "CAFE"}, collation=BASE).hint("base")) == [4, 5]
    assert ids(words.c.find({"w": "CAFE"}, collation=BASE).hint("any_case")) == [4, 5]
    found = words.c.find({}, collation=BASE).hint("any_case").sort("w")
    assert [document["w"].lower()[0] for document in found] == list("aabbcc")


def test_min_and_max(words: Database[Documents]) -> None:
    words.c.create_index("w", collation=ANY_CASE)
    between = {"find": "c", "min": {"w": "APPLE"}, "max": {"w": "CAFE"}, "hint": {"w": 1}}
    reply = words.command({**between, "collation": ANY_CASE.document})
    assert ids(reply["cursor"]["firstBatch"]) == [0, 1, 2, 3]
    assert refusal(words, between) == 51174
    assert refusal(words, {**between, "collation": BASE.document}) == 51174
    numbers = {"find": "c", "min": {"w": 1}, "max": {"w": 5}, "hint": {"w": 1}, "collation": BASE.document}
    assert words.command(numbers)["cursor"]["firstBatch"] == []


def test_wildcard_indexes(words: Database[Documents]) -> None:
    words.c.create_index([("$**", 1)], collation=ANY_CASE)
    words.c.insert_one({"_id": 9, "o": {"p": ["Pear", "x"]}})
    assert ids(words.c.find({"w": "APPLE"}, collation=ANY_CASE)) == [0, 1]
    assert ids(words.c.find({"o.p": "pear"}, collation=ANY_CASE)) == [9]
    assert ids(words.c.find({"o.p": "pear"})) == []
    assert "IXSCAN" in str(plan_of(words, {"w": "APPLE"}, ANY_CASE))
    assert "COLLSCAN" in str(plan_of(words, {"w": "APPLE"}, None))
    assert "IXSCAN" in str(plan_of(words, {"w": 5}, None))


def test_views(words: Database[Documents]) -> None:
    words.create_collection("v", viewOn="c", pipeline=[{"$match": {"w": {"$gte": "BANANA"}}}], collation=ANY_CASE)
    words.create_collection("s", viewOn="c", pipeline=[])
    assert ids(words.v.find()) == [2, 3, 4, 5]
    assert ids(words.v.find({"w": "CAFE"})) == [4]
    assert ids(words.v.find({"w": "CAFE"}, collation=ANY_CASE)) == [4]
    assert words.v.count_documents({"w": "BANANA"}) == 2
    assert words.v.distinct("w") == ["banana", "cafe", "café"]
    assert refusal(words, {"find": "v", "collation": BASE.document}) == 167
    assert refusal(words, {"find": "v", "collation": {"locale": "simple"}}) == 167
    assert refusal(words, {"find": "s", "collation": ANY_CASE.document}) == 167
    join = [{"$lookup": {"from": "v", "localField": "w", "foreignField": "w", "as": "m"}}]
    assert refusal(words, {"aggregate": "c", "pipeline": join, "cursor": {}}) == 167
    joined = words.c.aggregate(join, collation=ANY_CASE)
    assert [len(document["m"]) for document in joined] == [0, 0, 2, 2, 1, 1]


def test_validators(database: Database[Documents]) -> None:
    database.create_collection("c", validator={"w": {"$in": ["a", "b"]}}, collation=ANY_CASE)
    database.c.insert_one({"w": "A"})
    assert refusal(database, {"insert": "c", "documents": [{"w": "x"}]}) == 121


def test_index_kinds_without_collation(database: Database[Documents]) -> None:
    for key in ({"w": "text"}, {"w": "2d"}):
        specification = {"key": key, "name": "x", "collation": ANY_CASE.document}
        assert refusal(database, {"createIndexes": "c", "indexes": [specification]}) == 67
    database.create_collection("d", collation=ANY_CASE)
    assert refusal(database, {"createIndexes": "d", "indexes": [{"key": {"w": "2d"}, "name": "x"}]}) == 67
    simple = {"key": {"w": "2d"}, "name": "x", "collation": {"locale": "simple"}}
    assert refusal(database, {"createIndexes": "d", "indexes": [simple]}) == 0
