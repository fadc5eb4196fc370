"""What pipelines are rewritten into; that they give the same is a property test's matter."""

from typing import Any

import bson
import pytest

from mongottl.query.context import ParseContext
from mongottl.query.pipeline import optimise, parse_pipeline

Document = dict[str, Any]


def rewritten(stages: list[Document]) -> list[Document]:
    ctx = ParseContext(namespace="db.c")
    specs = optimise(parse_pipeline([bson.encode(stage) for stage in stages], ctx), ctx)
    return [bson.decode(described) for described in (spec.describe() for spec in specs) if isinstance(described, bytes)]


def names(stages: list[Document]) -> list[str]:
    return [next(iter(stage)) for stage in rewritten(stages)]


A1: Document = {"$match": {"a": 1}}
GROUP: Document = {"$group": {"_id": "$a", "n": {"$sum": 1}}}
BY_TWO: Document = {"$group": {"_id": {"x": "$a", "y": {"$add": ["$b", 1]}}}}
LOOKUP: Document = {"$lookup": {"from": "o", "localField": "a", "foreignField": "k", "as": "j"}}


@pytest.mark.parametrize(
    ("before", "filter", "front", "behind"),
    [
        ({"$sort": {"b": 1}}, {"a": 1}, {"a": 1}, None),
        ({"$project": {"a": 1}}, {"a": 1}, {"a": 1}, None),
        ({"$project": {"a": 1}}, {"a.b": 1}, {"a.b": 1}, None),
        ({"$project": {"a.b": 1}}, {"a": 1}, None, {"a": 1}),
        ({"$project": {"a.b": 1}}, {"a.b.c": 1}, {"a.b.c": 1}, None),
        ({"$project": {"a.b": 1}}, {"a.0.b": 1}, None, {"a.0.b": 1}),
        ({"$project": {"b": 1}}, {"a": 1}, None, {"a": 1}),
        ({"$project": {"b": 1}}, {"_id": 1}, {"_id": 1}, None),
        ({"$project": {"b": 1, "_id": 0}}, {"_id": 1}, None, {"_id": 1}),
        ({"$project": {"n": "$a"}}, {"n": 1}, {"a": 1}, None),
        ({"$project": {"n": "$a"}}, {"n.x": 1}, {"a.x": 1}, None),
        ({"$project": {"n": "$a.b"}}, {"n": 1}, None, {"n": 1}),
        ({"$project": {"n": {"$add": ["$a", 1]}}}, {"n": 1}, None, {"n": 1}),
        ({"$project": {"b": 0}}, {"a": 1}, {"a": 1}, None),
        ({"$unset": "a.b"}, {"a.c": 1}, {"a.c": 1}, None),
        ({"$unset": "a.b"}, {"a": 1}, None, {"a": 1}),
        ({"$unset": "a.b"}, {"a.0.c": 1}, None, {"a.0.c": 1}),
        ({"$set": {"n": 1}}, {"a": 1}, {"a": 1}, None),
        ({"$set": {"n": "$a"}}, {"n": 1}, {"a": 1}, None),
        ({"$set": {"n": "$a"}}, {"$or": [{"n": 1}, {"b": 2}]}, {"$or": [{"a": 1}, {"b": 2}]}, None),
        ({"$set": {"a.x": 1}}, {"a.y": 1}, None, {"a.y": 1}),
        ({"$set": {"n": 1}}, {"a": 1, "n": 1}, {"a": 1}, {"n": 1}),
        ({"$set": {"n": 1}}, {"$or": [{"a": 1}, {"n": 1}]}, None, {"$or": [{"a": 1}, {"n": 1}]}),
        ({"$set": {"n": 1}}, {"$expr": {"$gt": ["$a", "$b"]}}, {"$expr": {"$gt": ["$a", "$b"]}}, None),
        ({"$set": {"n": 1}}, {"$expr": {"$gt": ["$n", 1]}}, None, {"$expr": {"$gt": ["$n", 1]}}),
        ({"$set": {"n": "$a"}}, {"$expr": {"$gt": ["$n", 1]}}, None, {"$expr": {"$gt": ["$n", 1]}}),
        ({"$set": {"n": 1}}, {"$expr": {"$gt": [{"$rand": {}}, 0.5]}}, None, {"$expr": {"$gt": [{"$rand": {}}, 0.5]}}),
        ({"$unwind": {"path": "$b"}}, {"a": 1}, {"a": 1}, None),
        ({"$unwind": {"path": "$b"}}, {"b.x": 1}, None, {"b.x": 1}),
        (GROUP, {"_id": 1}, {"a": 1}, None),
        (GROUP, {"_id": {"$gt": 1, "$lt": 5}}, {"a": {"$gt": 1, "$lt": 5}}, None),
        (GROUP, {"_id": None}, None, {"_id": None}),
        (GROUP, {"_id": {"$exists": True}}, None, {"_id": {"$exists": True}}),
        (GROUP, {"n": 1}, None, {"n": 1}),
        (BY_TWO, {"_id.x": 1}, {"a": 1}, None),
        (BY_TWO, {"_id.y": 1}, None, {"_id.y": 1}),
        (LOOKUP, {"b": 1}, {"b": 1}, None),
        (LOOKUP, {"j.b": 1}, None, {"j.b": 1}),
        ({"$limit": 3}, {"a": 1}, None, {"a": 1}),
        ({"$sample": {"size": 3}}, {"a": 1}, None, {"a": 1}),
        ({"$replaceRoot": {"newRoot": "$a"}}, {"a": 1}, None, {"a": 1}),
        ({"$setWindowFields": {"partitionBy": "$a", "output": {"n": {"$sum": 1}}}}, {"a": 1}, {"a": 1}, None),
        ({"$setWindowFields": {"partitionBy": "$a", "output": {"n": {"$sum": 1}}}}, {"b": 1}, None, {"b": 1}),
        ({"$setWindowFields": {"partitionBy": "$a", "output": {"a": {"$sum": 1}}}}, {"a": 1}, None, {"a": 1}),
    ],
    ids=str,
)  # fmt: skip
def test_filters_go_forward(
    before: Document, filter: Document, front: Document | None, behind: Document | None
) -> None:
    expected = [] if front is None else [{"$match": front}]
    expected.extend(rewritten([before]))
    if behind is not None:
        expected.append({"$match": behind})
    assert rewritten([before, {"$match": filter}]) == expected


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([A1, {"$set": {"n": 1}}, {"$match": {"b": 2}}], [{"$match": {"$and": [{"a": 1}, {"b": 2}]}}, {"$set": 1}]),
        (
            [A1, {"$set": {"n": 1}}, {"$match": {"b": 2}}, {"$match": {"c": 3}}],
            [{"$match": {"$and": [{"a": 1}, {"b": 2}, {"c": 3}]}}, {"$set": 1}],
        ),
        (
            [{"$limit": 9}, {"$set": {"n": 1}}, {"$match": {"n": 1}}, {"$match": {"b": 2}}],
            [{"$limit": 9}, {"$match": {"b": 2}}, {"$set": 1}, {"$match": {"n": 1}}],
        ),
        (
            [{"$set": {"n": 1}}, {"$match": {"n": 1}}, {"$match": {"$expr": "$b"}}],
            [{"$set": 1}, {"$match": {"$and": [{"n": 1}, {"$expr": "$b"}]}}],
        ),
        ([{"$match": {}}, {"$skip": 0}], []),
        ([{"$project": {"a": 1}}, {"$limit": 5}], [{"$limit": 5}, {"$project": 1}]),
        ([{"$set": {"n": 1}}, {"$skip": 2}, {"$limit": 5}], [{"$skip": 2}, {"$limit": 5}, {"$set": 1}]),
        ([{"$limit": 4}, LOOKUP, {"$limit": 3}], [{"$limit": 3}, {"$lookup": 1}]),
        ([{"$unwind": "$a"}, {"$limit": 3}], [{"$unwind": 1}, {"$limit": 3}]),
        (
            [{"$sort": {"a": 1}}, {"$set": {"n": 1}}, {"$skip": 2}, {"$limit": 3}],
            [{"$sort": {"sortKey": {"a": 1}, "limit": 5}}, {"$skip": 2}, {"$limit": 3}, {"$set": 1}],
        ),
        (
            [{"$sort": {"a": 1}}, {"$project": {"a": 1}}, {"$limit": 3}],
            [{"$sort": {"sortKey": {"a": 1}, "limit": 3}}, {"$project": 1}],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_stages_move_and_merge(stages: list[Document], expected: list[Document]) -> None:
    found = rewritten(stages)
    assert [next(iter(stage)) for stage in found] == [next(iter(stage)) for stage in expected]
    for stage, wanted in zip(found, expected, strict=True):
        assert wanted in (stage, {next(iter(stage)): 1})


def test_a_lookup_takes_in_the_unwind_and_the_filter_behind_it() -> None:
    joined = {"from": "o", "as": "j", "localField": "a", "foreignField": "k"}
    unwound = {**joined, "unwinding": {"preserveNullAndEmptyArrays": False}}
    assert rewritten([LOOKUP, {"$unwind": "$j"}]) == [{"$lookup": unwound}]
    assert rewritten([LOOKUP, {"$unwind": "$j"}, {"$match": {"j.x": 1, "j.y": {"$gt": 2}, "b": 3}}]) == [
        {"$match": {"b": 3}},
        {
            "$lookup": {
                **joined,
                "let": {},
                "pipeline": [{"$match": {"$and": [{"x": 1}, {"y": {"$gt": 2}}]}}],
                "unwinding": {"preserveNullAndEmptyArrays": False},
            }
        },
    ]
    kept = {"path": "$j", "preserveNullAndEmptyArrays": True}
    assert names([LOOKUP, {"$unwind": kept}, {"$match": {"j.x": 1}}]) == ["$lookup", "$match"]
    assert names([LOOKUP, {"$unwind": "$j"}, {"$match": {"j": {"x": 1}}}]) == ["$lookup", "$match"]
    assert names([LOOKUP, {"$unwind": "$a"}]) == ["$lookup", "$unwind"]
    assert names([LOOKUP, {"$unwind": "$j"}, {"$limit": 3}]) == ["$lookup", "$limit"]


def test_a_filter_behind_a_union_holds_for_both() -> None:
    assert rewritten([{"$unionWith": "o"}, A1]) == [A1, {"$unionWith": {"coll": "o", "pipeline": [A1]}}]
