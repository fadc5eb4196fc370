"""delete: arguments, replies, and batches of which a part fails."""

from typing import Any

import pytest
from bson import Decimal128, Int64
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.drivers.refusals import refusal

Documents = dict[str, Any]


@pytest.fixture
def ten(database: Database[Documents]) -> Database[Documents]:
    database.c.create_index("a")
    database.c.create_index("s", sparse=True)
    database.c.insert_many([{"_id": i, "a": i % 3} for i in range(10)])
    return database


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ({"q": {"_id": 3}, "limit": 1}, 9),
        ({"q": {"_id": 3}, "limit": 0}, 9),
        ({"q": {"_id": 33}, "limit": 1}, 10),
        ({"q": {"_id": Decimal128("3")}, "limit": Int64(1)}, 9),
        ({"q": {"a": 1}, "limit": 1.0}, 9),
        ({"q": {"a": 1}, "limit": Decimal128("1")}, 9),
        ({"q": {"a": 1}, "limit": 0}, 7),
        ({"q": {"a": 1}, "limit": 0, "hint": "a_1"}, 7),
        ({"q": {"a": 1}, "limit": 0, "hint": {"_id": 1}}, 7),
        ({"q": {}, "limit": 0, "hint": "s_1"}, 10),  # the index holds nothing
        ({"q": {}, "limit": 0}, 0),
        ({"q": {}, "limit": 1}, 9),
        ({"q": {"$expr": {"$gt": ["$_id", "$$x"]}}, "limit": 0}, 6),
        ({"q": {"a": 1}, "limit": 0, "collation": {"locale": "simple"}}, 7),
    ],
    ids=str,
)
def test_delete_removes_matching_documents(ten: Database[Documents], statement: Documents, left: int) -> None:
    reply = ten.command({"delete": "c", "deletes": [statement], "let": {"x": 5}})
    assert reply["n"] == 10 - left
    assert "writeErrors" not in reply
    assert ten.c.count_documents({}) == left
    assert len([*ten.c.find({"a": {"$gte": 0}}).hint("a_1")]) == left


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ({"limit": 1}, 40414),
        ({"q": {}}, 40414),
        ({"q": 1, "limit": 1}, 14),
        ({"q": {}, "limit": 2}, 9),
        ({"q": {}, "limit": -1}, 9),
        ({"q": {}, "limit": "1"}, 14),
        ({"q": {}, "limit": 1, "hint": 1}, 9),
        ({"q": {}, "limit": 1, "hint": "none"}, 2),
        ({"q": {"_id": 1}, "limit": 1, "hint": "none"}, 2),
        ({"q": {}, "limit": 1, "nothing": 1}, 40415),
        ({"q": {"$nothing": 1}, "limit": 1}, 2),
        ({"q": {"_id": 1}, "limit": 1, "collation": {"locale": "xx"}}, 2),
    ],
    ids=str,
)
def test_statements(ten: Database[Documents], statement: Documents, code: int) -> None:
    assert refusal(ten, {"delete": "c", "deletes": [statement]}) == code
    assert ten.c.count_documents({}) == 10


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"deletes": []}, 16),
        ({}, 40414),
        ({"deletes": [{"q": {}, "limit": 1}], "ordered": 1}, 14),
        ({"deletes": [{"q": {}, "limit": 1}], "bypassDocumentValidation": "x"}, 14),
        ({"deletes": [{"q": {}, "limit": 1}], "readConcern": {"level": "majority"}}, 72),
        ({"deletes": [{"q": {}, "limit": 1}], "nothing": 1}, 40415),
    ],
    ids=str,
)
def test_arguments(ten: Database[Documents], arguments: Documents, code: int) -> None:
    assert refusal(ten, {"delete": "c", **arguments}) == code


@pytest.mark.parametrize(("ordered", "n", "failed"), [(True, 1, [1]), (False, 4, [1, 3])])
def test_failures_in_a_batch(ten: Database[Documents], ordered: bool, n: int, failed: list[int]) -> None:
    deletes: list[Documents] = [
        {"q": {"_id": 0}, "limit": 1},
        {"q": {"$nothing": 0}, "limit": 1},
        {"q": {"a": 1}, "limit": 0},
        {"q": {"_id": 2}, "hint": "none", "limit": 1},
    ]
    reply = ten.command({"delete": "c", "deletes": deletes, "ordered": ordered})
    assert reply["n"] == n
    assert [entry["index"] for entry in reply["writeErrors"]] == failed


@pytest.mark.parametrize("limit", [2, -1, 0.5, Int64(2**40), Decimal128("0.1"), Decimal128("NaN"), float("inf")])
def test_another_limit_refuses_the_whole_command(ten: Database[Documents], limit: Any) -> None:
    """Also where the statement would not be reached."""
    deletes = [{"q": {"_id": 0}, "limit": 1}, {"q": {"$nothing": 0}, "limit": 1}, {"q": {"_id": 1}, "limit": limit}]
    with pytest.raises(OperationFailure) as refused:
        ten.command({"delete": "c", "deletes": deletes})
    assert refused.value.code == 9
    assert ten.c.count_documents({}) == 10


def test_no_such_collection(database: Database[Documents]) -> None:
    assert database.c.delete_one({"_id": 1}).deleted_count == 0
    assert database.c.delete_many({}).deleted_count == 0
    assert database.list_collection_names() == []


def test_more_than_one_batch_of_the_scan(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i} for i in range(1000)])
    assert database.c.delete_many({"_id": {"$gte": 100}}).deleted_count == 900
    assert database.c.count_documents({}) == 100
