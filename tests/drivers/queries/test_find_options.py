"""min, max, returnKey and showRecordId of find."""

from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, MinKey
from pymongo.database import Database

from tests.drivers.refusals import refusal
from tests.on_nodes import own_record_ids

Documents = dict[str, Any]


@pytest.fixture
def fruit(database: Database[Documents]) -> Database[Documents]:
    """The documents of the manual's page on `cursor.min()`."""
    rows = [
        (6, "apple", "cortland", 1.29),
        (2, "apple", "fuji", 1.99),
        (1, "apple", "honey crisp", 1.99),
        (3, "apple", "jonagold", 1.29),
        (4, "apple", "jonathan", 1.29),
        (5, "apple", "mcintosh", 1.29),
        (7, "orange", "cara cara", 2.99),
        (10, "orange", "navel", 1.39),
        (9, "orange", "satsuma", 1.99),
        (8, "orange", "valencia", 0.99),
    ]
    names = ("_id", "item", "type", "price")
    database.c.insert_many([dict(zip(names, row, strict=True)) for row in rows])
    database.c.create_index([("item", 1), ("type", 1)])
    database.c.create_index([("item", 1), ("type", -1)])
    database.c.create_index("price")
    return database


def found(database: Database[Documents], **options: Any) -> list[Documents]:
    batch: list[Documents] = database.command({"find": "c", **options})["cursor"]["firstBatch"]
    return batch


def ids(database: Database[Documents], **options: Any) -> list[int]:
    return [document["_id"] for document in found(database, **options)]


BY_TYPE = {"item": 1, "type": 1}
BACKWARD = {"item": 1, "type": -1}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"min": {"item": "apple", "type": "jonagold"}, "hint": BY_TYPE}, [3, 4, 5, 7, 10, 9, 8]),
        ({"max": {"item": "apple", "type": "jonagold"}, "hint": BY_TYPE}, [6, 2, 1]),
        ({"min": {"item": "apple", "type": "jonagold"}, "hint": BACKWARD}, [3, 1, 2, 6, 8, 9, 10, 7]),
        ({"min": {"price": 1.39}, "hint": {"price": 1}}, [10, 2, 1, 9, 7]),
        ({"min": {"price": 1.39}, "max": {"price": 1.99}, "hint": {"price": 1}}, [10]),
        ({"min": {"price": 1.39}, "max": {"price": 1.99}, "hint": "price_1"}, [10]),
        ({"min": {"price": 1.39}, "hint": "price_1", "filter": {"item": "apple"}}, [2, 1]),
        ({"min": {"price": 1.39}, "hint": "price_1", "sort": {"price": -1}, "limit": 2}, [7, 9]),
        ({"min": {"price": 1.39}, "hint": "price_1", "sort": {"_id": 1}}, [1, 2, 7, 9, 10]),
        ({"min": {"_id": 9}, "hint": "_id_"}, [9, 10]),
        ({"min": {"price": "a"}, "hint": "price_1"}, []),
        ({"min": {"_id": 9}, "filter": {"_id": 3}}, [3]),
    ],
    ids=str,
)
def test_min_and_max(fruit: Database[Documents], options: Documents, expected: list[int]) -> None:
    assert ids(fruit, **options) == expected


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"min": {"price": 1}}, 51173),
        ({"min": {"price": 1}, "hint": {"$natural": 1}}, 51173),
        ({"min": {"item": "a"}, "hint": BY_TYPE}, 51174),
        ({"min": {"type": "a", "item": "a"}, "hint": BY_TYPE}, 51174),
        ({"max": {"price": 1, "b": 1}, "hint": "price_1"}, 51174),
        ({"min": {"price": 2}, "max": {"price": 1}, "hint": "price_1"}, 51175),
        ({"min": {"price": 2}, "max": {"price": 2}, "hint": "price_1"}, 51175),
        ({"min": 1, "hint": "price_1"}, 14),
        ({"returnKey": "yes"}, 14),
    ],
    ids=str,
)
def test_refused(fruit: Database[Documents], options: Documents, code: int) -> None:
    assert refusal(fruit, {"find": "c", **options}) == code


def test_explained_limits(fruit: Database[Documents]) -> None:
    command = {"find": "c", "min": {"item": "apple", "type": "fuji"}, "hint": BACKWARD}
    plan = fruit.command({"explain": command})["queryPlanner"]["winningPlan"]
    assert plan["inputStage"]["indexBounds"] == {
        "startKey": {"item": "apple", "type": "fuji"},
        "startKeyInclusive": True,
        "endKey": {"item": MaxKey(), "type": MinKey()},
        "endKeyInclusive": False,
    }


@pytest.mark.parametrize("backward", [False, True])
def test_multikey(database: Database[Documents], backward: bool) -> None:
    database.c.create_index([("a", -1 if backward else 1)])
    database.c.insert_many([{"_id": 1, "a": [1, 9]}, {"_id": 2, "a": 5}, {"_id": 3, "a": [4, 6, 7]}])
    limits = {"min": {"a": 4}, "max": {"a": 8}}
    if backward:
        limits = {"min": {"a": 7}, "max": {"a": 3}}
    hint = {"a": -1 if backward else 1}
    assert ids(database, **limits, hint=hint, sort={"a": 1}) == [3, 2]
    assert ids(database, **limits, hint=hint, sort={"a": -1}) == [3, 2]
    assert ids(database, **limits, hint=hint) == [3, 2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"filter": {"a": {"$gt": 1}}}, [{"a": 2}, {"a": 3}]),
        ({"filter": {"a": {"$gt": 1}}, "projection": {"b": 1}}, [{"a": 2}, {"a": 3}]),
        ({"filter": {"a": {"$gt": 1}}, "sort": {"b": -1}}, [{"a": 3}, {"a": 2}]),
        ({"filter": {"a": {"$gt": 1}}, "limit": 1}, [{"a": 2}]),
        ({"filter": {"_id": 2}}, [{"_id": 2}]),
        ({"filter": {"_id": {"$in": [3, 1]}}}, [{"_id": 1}, {"_id": 3}]),
        ({"filter": {"b": 1}}, [{}]),
        ({"hint": {"c.x": 1, "b": -1}}, [{"c.x": None, "b": 3}, {"c.x": None, "b": 2}, {"c.x": 7, "b": 1}]),
        ({"filter": {"t": {"$gt": 1}}}, [{"t": 2}, {"t": 4}]),
        ({"filter": {"a": 3}, "showRecordId": True}, [{"a": 3}]),
    ],
    ids=str,
)
def test_return_key(database: Database[Documents], options: Documents, expected: list[Documents]) -> None:
    for keys in ([("a", 1)], [("c.x", 1), ("b", -1)], [("t", 1)]):
        database.c.create_index(keys)
    database.c.insert_many(
        [
            {"_id": 1, "a": 1, "b": 1, "c": {"x": [7]}},
            {"_id": 2, "a": 2, "b": 2, "t": [1, 2, 3]},
            {"_id": 3, "a": 3, "b": 3, "c": [], "t": [4.0, 1]},
        ]
    )
    options = {"returnKey": True, **options}
    if options.get("hint") is not None:
        expected = sorted(expected, key=str)
        assert sorted(found(database, **options), key=str) == expected
    else:
        assert found(database, **options) == expected


def test_explained_return_key(fruit: Database[Documents]) -> None:
    command = {"find": "c", "filter": {"price": 1.29}, "returnKey": True, "projection": {"a": 1}}
    plan = fruit.command({"explain": command})["queryPlanner"]["winningPlan"]
    assert (plan["stage"], plan["inputStage"]["stage"]) == ("RETURN_KEY", "FETCH")


@own_record_ids
def test_show_record_id(fruit: Database[Documents]) -> None:
    shown = found(fruit, filter={"item": "apple"}, projection={"type": 1}, showRecordId=True, limit=2)
    assert [(list(document), type(document["$recordId"])) for document in shown] == [
        (["_id", "type", "$recordId"], Int64)
    ] * 2
    assert len({document["$recordId"] for document in found(fruit, showRecordId=True)}) == 10
    assert "$recordId" in found(fruit, filter={"_id": 3}, showRecordId=True)[0]


def test_single_batch(fruit: Database[Documents]) -> None:
    cursor = fruit.command({"find": "c", "batchSize": 2, "singleBatch": True})["cursor"]
    assert (len(cursor["firstBatch"]), cursor["id"]) == (2, 0)


def test_explain_of_a_filter_that_fits_only_once_into_a_document(fruit: Database[Documents]) -> None:
    fruit.c.create_index("long")
    values = [f"{number}" + "x" * 1_000_000 for number in range(15)]
    explained = fruit.command({"explain": {"find": "c", "filter": {"long": {"$in": values}}}})
    assert len(bson.encode(explained)) < 16 << 20
    scan = explained["queryPlanner"]["winningPlan"]["inputStage"]
    assert scan["warning"] == "index bounds omitted due to BSON size limit for explain"
    assert explained["executionStats"]["nReturned"] == 0
    assert explained["warning"] == "'command' has been omitted due to BSON size limit"


MOST = 2**63 - 1


@pytest.mark.parametrize("sort", [{}, {"x": 1}, {"price": 1}, {"item": 1, "type": 1}])
@pytest.mark.parametrize(("skip", "limit"), [(MOST, 3), (9, MOST), (MOST, MOST), (Decimal128("1E+30"), 1e300)])
def test_skip_and_limit_are_no_int64_together(fruit: Database[Documents], sort: Any, skip: Any, limit: Any) -> None:
    """SERVER-13537: such numbers are no error."""
    options = {"filter": {"price": {"$gt": 0}}, "skip": skip, "limit": limit, "sort": sort}
    expected = 1 if skip == 9 else 0
    assert len(found(fruit, **options)) == expected
    assert len(found(fruit, **options, batchSize=2)) == expected
    assert fruit.command({"explain": {"find": "c", **options}})["ok"] == 1
    stages: list[Any] = [{"$sort": sort}] if sort else []
    stages += [{"$skip": Int64(skip) if isinstance(skip, int) else MOST}, {"$limit": MOST}]
    assert len(list(fruit.c.aggregate(stages))) == expected


@pytest.mark.parametrize(("skip", "limit", "expected"), [(MOST, 3, 0), (9, MOST, 1), (9, 2 - 2**63, 1)])
def test_skip_and_limit_of_a_count_are_no_int64_together(
    fruit: Database[Documents], skip: int, limit: int, expected: int
) -> None:
    for query in ({}, {"price": {"$gt": 0}}, {"item": {"$gte": "apple"}}, {"x": None}):
        command = {"count": "c", "query": query, "skip": Int64(skip), "limit": Int64(limit)}
        assert fruit.command(command)["n"] == expected
        assert fruit.command({"explain": command})["ok"] == 1
