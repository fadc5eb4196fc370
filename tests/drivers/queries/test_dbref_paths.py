"""`$id`, `$ref` and `$db` as components of field paths: the fields of DBRefs, which MongoDB lets every path name."""

from typing import Any

import pytest
from bson import SON
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from pymongo.errors import OperationFailure

Documents = dict[str, Any]


@pytest.fixture
def references(database: Database[Documents]) -> Database[Documents]:
    """`t` holds two documents with a DBRef each, `users` what the references point to."""
    for number, target in ((1, 8), (2, 7)):
        reference = SON([("$ref", "users"), ("$id", target), ("$db", "d")])
        database.t.insert_one({"_id": number, "r": reference, "l": [{"$id": 5}]})
    database.users.insert_many([{"_id": 7}, {"_id": 8}])
    return database


@pytest.mark.parametrize(
    ("projection", "expected"),
    [
        ({"r.$id": 1}, {"_id": 1, "r": {"$id": 8}}),
        ({"r": {"$id": 1}}, {"_id": 1, "r": {"$id": 8}}),
        ({"r": {"$id": 1, "$db": 1}}, {"_id": 1, "r": {"$id": 8, "$db": "d"}}),
        ({"r.$id": 0, "r.$db": 0, "l": 0}, {"_id": 1, "r": {"$ref": "users"}}),
        ({"_id": 0, "x": "$r.$id"}, {"x": 8}),
        ({"_id": 0, "x": "$$ROOT.r.$id"}, {"x": 8}),
        ({"_id": 0, "x": {"$let": {"vars": {"v": "$r"}, "in": "$$v.$id"}}}, {"x": 8}),
        ({"_id": 0, "r.$db": "e"}, {"r": {"$db": "e"}}),
        ({"_id": 0, "x": {"a": 1, "$id": "$r.$id"}}, {"x": {"$id": 8}}),
        ({"_id": 0, "l.$id": 1}, {"l": [{"$id": 5}]}),
        ({"_id": 0, "$id": 1}, {}),
        ({"_id": 0, "r.$recordId": 1, "r.$sortKey": 1}, {"r": {}}),
    ],
)
def test_projections(references: Database[Documents], projection: Documents, expected: Documents) -> None:
    raw = references.t.with_options(references.codec_options.with_options(document_class=RawBSONDocument))
    for found in (raw.find({"_id": 1}, projection), raw.aggregate([{"$match": {"_id": 1}}, {"$project": projection}])):
        shown = [{name: _inner(value) for name, value in document.items()} for document in found]
        assert shown == [expected]


def _inner(value: Any) -> Any:
    if isinstance(value, RawBSONDocument):
        return {name: _inner(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_inner(item) for item in value]
    return value


def test_sorts(references: Database[Documents]) -> None:
    assert [document["_id"] for document in references.t.find().sort("r.$id")] == [2, 1]
    assert [document["_id"] for document in references.t.aggregate([{"$sort": {"r.$id": 1}}])] == [2, 1]
    assert [document["_id"] for document in references.t.find().sort([("$id", 1), ("_id", -1)])] == [2, 1]
    references.t.create_index("r.$id")
    assert [document["_id"] for document in references.t.find().sort("r.$id")] == [2, 1]
    assert references.t.find_one({"r.$id": 7}, {"_id": 1}) == {"_id": 2}


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        ([{"$group": {"_id": "$r.$id"}}, {"$sort": {"_id": 1}}], [{"_id": 7}, {"_id": 8}]),
        ([{"$sortByCount": "$r.$ref"}], [{"_id": "users", "count": 2}]),
        ([{"$addFields": {"r.$id": 1}}, {"$project": {"_id": 0, "x": "$r.$id"}}], [{"x": 1}, {"x": 1}]),
        ([{"$unset": ["r.$id", "l"]}, {"$project": {"_id": 0, "x": "$r.$id"}}], [{}, {}]),
        ([{"$match": {"_id": 1}}, {"$unwind": "$l"}, {"$replaceWith": {"x": "$l.$id"}}], [{"x": 5}]),
        ([{"$match": {"$expr": {"$eq": ["$r.$id", 8]}}}, {"$project": {"_id": 1}}], [{"_id": 1}]),
        (
            [
                {"$lookup": {"from": "users", "localField": "r.$id", "foreignField": "_id", "as": "u"}},
                {"$project": {"u": 1}},
                {"$sort": {"_id": 1}},
            ],
            [{"_id": 1, "u": [{"_id": 8}]}, {"_id": 2, "u": [{"_id": 7}]}],
        ),
        (
            [
                {"$match": {"_id": 1}},
                {
                    "$graphLookup": {
                        "from": "users",
                        "startWith": "$r.$id",
                        "connectFromField": "r.$id",
                        "connectToField": "_id",
                        "as": "u",
                    }
                },
                {"$project": {"u": 1}},
            ],
            [{"_id": 1, "u": [{"_id": 8}]}],
        ),
        (
            [
                {"$setWindowFields": {"sortBy": {"r.$id": 1}, "output": {"n": {"$documentNumber": {}}}}},
                {"$project": {"n": 1}},
            ],
            [{"_id": 2, "n": 1}, {"_id": 1, "n": 2}],
        ),
    ],
)
def test_pipelines(references: Database[Documents], pipeline: list[Documents], expected: list[Documents]) -> None:
    assert list(references.t.aggregate(pipeline)) == expected


def test_updates(references: Database[Documents]) -> None:
    references.t.update_one({"_id": 1}, [{"$set": {"r.$id": 9}}])
    assert sorted(references.t.distinct("r.$id")) == [7, 9]
    references.t.update_one({"_id": 1}, {"$inc": {"r.$id": 1}})
    assert sorted(references.t.distinct("r.$id")) == [7, 10]


@pytest.mark.parametrize("name", ["$idx", "$", "$Id", "$refs", "$$id"])
def test_other_names_with_a_dollar_are_refused(references: Database[Documents], name: str) -> None:
    code = 31394 if name == "$" else 16410
    with pytest.raises(OperationFailure) as refused:
        list(references.t.find({}, {f"r.{name}.a": 1}))
    assert refused.value.code == code
    with pytest.raises(OperationFailure) as refused:
        list(references.t.find().sort(f"r.{name}"))
    assert refused.value.code == 16410
    with pytest.raises(OperationFailure) as refused:
        list(references.t.aggregate([{"$group": {"_id": f"$r.{name}"}}]))
    assert refused.value.code == 16410


def test_indexes_take_them_below_the_root(references: Database[Documents]) -> None:
    references.t.create_index("r.$db")
    references.command(
        "createIndexes", "t", indexes=[{"key": {"$**": 1}, "name": "w", "wildcardProjection": {"r.$id": 1}}]
    )
    with pytest.raises(OperationFailure) as refused:
        references.t.create_index("$id")
    assert refused.value.code == 67


def test_a_sub_projection_of_one_unknown_operator(references: Database[Documents]) -> None:
    with pytest.raises(OperationFailure) as refused:
        list(references.t.find({}, {"r": {"$foo": 1}}))
    assert refused.value.code == 31325
    with pytest.raises(OperationFailure) as refused:
        list(references.t.find({}, {"r": {"$foo": 1, "a": 1}}))
    assert refused.value.code == 16410
