"""Expressions in update pipelines that fail whatever the document is: they fail where a document is updated."""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

Documents = dict[str, Any]
FAILING = [
    ({"$add": ["age", 1]}, 14),
    ({"$divide": [1, 0]}, 2),
    ({"$toInt": "x"}, 241),
    ({"$concat": ["a", 1]}, 16702),
    ({"$let": {"vars": {"v": {"$sqrt": -1}}, "in": "$$v"}}, 28714),
]


@pytest.mark.parametrize(("expression", "code"), FAILING)
def test_only_an_updated_document_fails(database: Database[Documents], expression: Documents, code: int) -> None:
    update = [{"$set": {"x": expression}}]
    assert database.t.update_many({}, update).matched_count == 0
    database.t.insert_one({"_id": 1})
    assert database.t.update_one({"_id": 2}, update).matched_count == 0
    assert database.t.find_one_and_update({"_id": 2}, update) is None
    assert database.command("explain", {"update": "t", "updates": [{"q": {"_id": 2}, "u": update}]})["ok"] == 1
    for run in (database.t.update_one, database.t.find_one_and_update):
        with pytest.raises(OperationFailure) as refused:
            run({"_id": 1}, update)
        assert refused.value.code == code
    with pytest.raises(OperationFailure) as refused:
        database.t.update_one({"_id": 2}, update, upsert=True)
    assert refused.value.code == code
    assert list(database.t.find()) == [{"_id": 1}]


@pytest.mark.parametrize(("expression", "code"), FAILING)
def test_aggregations_fail_without_a_document(database: Database[Documents], expression: Documents, code: int) -> None:
    """Their constants are evaluated by the optimiser, before any document is read."""
    with pytest.raises(OperationFailure) as refused:
        list(database.t.aggregate([{"$project": {"x": expression}}]))
    assert refused.value.code == code


def test_branches_that_are_not_taken(database: Database[Documents]) -> None:
    database.t.insert_one({"_id": 1, "a": True})
    database.t.update_one({}, [{"$set": {"x": {"$cond": ["$a", 1, {"$divide": [1, 0]}]}}}])
    assert database.t.find_one() == {"_id": 1, "a": True, "x": 1}


def test_invalid_expressions_in_update_pipelines_are_refused_at_once(database: Database[Documents]) -> None:
    for expression, code in (({"$add": [{"$nothing": 1}]}, 168), ({"$divide": [1]}, 16020), ("$$nothing", 17276)):
        with pytest.raises(OperationFailure) as refused:
            database.t.update_one({"_id": 2}, [{"$set": {"x": expression}}])
        assert refused.value.code == code
