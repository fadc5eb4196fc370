"""Query shapes as documents: types in place of values, and HMACs in place of names."""

import base64
import hmac
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId, Regex

from mongottl.exec.plan.described_shape import Shaper

Document = dict[str, Any]
KEY = b"key"


def shaped(command: Document, shaper: Shaper | None = None) -> Document:
    return bson.decode((shaper or Shaper()).command(bson.encode(command)))


def hashed(name: str) -> str:
    return base64.b64encode(hmac.digest(KEY, name.encode(), "sha256")).decode()


@pytest.mark.parametrize(
    ("filter", "shape"),
    [
        ({}, {}),
        ({"a": 1}, {"a": {"$eq": "?number"}}),
        ({"a": {"$gt": Int64(1), "$lt": 2.5}}, {"$and": [{"a": {"$gt": "?number"}}, {"a": {"$lt": "?number"}}]}),
        ({"a": "x", "$comment": "y"}, {"a": {"$eq": "?string"}}),
        ({"a": Regex("x", "i")}, {"a": {"$regex": "?string"}}),
        ({"a": {"b": 1}}, {"a": {"$eq": "?object"}}),
        ({"a": ObjectId("0123456789ab0123456789ab")}, {"a": {"$eq": "?objectId"}}),
        ({"a": None}, {"a": {"$eq": "?null"}}),
        ({"a": []}, {"a": {"$eq": "[]"}}),
        ({"a": {"$in": [1, 2.5]}}, {"a": {"$in": "?array<?number>"}}),
        ({"a": {"$in": [1, "x"]}}, {"a": {"$in": "?array<>"}}),
        ({"a": [[1], ["x"]]}, {"a": {"$eq": "?array<?array>"}}),
        ({"a": {"$exists": True}}, {"a": {"$exists": "?bool"}}),
        ({"a": {"$type": ["int", "long"]}}, {"a": {"$type": ["int", "long"]}}),
        ({"a": {"$not": {"$gt": 1}}}, {"a": {"$not": {"$gt": "?number"}}}),
        ({"a": {"$elemMatch": {"$gt": 1, "$lt": 2}}}, {"a": {"$elemMatch": {"$gt": "?number", "$lt": "?number"}}}),
        ({"a": {"$elemMatch": {"b": 1}}}, {"a": {"$elemMatch": {"b": {"$eq": "?number"}}}}),
        ({"$or": [{"a": 1}, {"b": "x"}]}, {"$or": [{"a": {"$eq": "?number"}}, {"b": {"$eq": "?string"}}]}),
        ({"$expr": {"$gt": ["$a", 5]}}, {"$expr": {"$gt": ["$a", "?number"]}}),
        ({"$text": {"$search": "x"}}, {"$text": {"$search": "?string"}}),
        ({"$jsonSchema": {"required": ["a"]}}, {"$jsonSchema": "?object"}),
    ],
    ids=str,
)
def test_filters(filter: Document, shape: Document) -> None:
    assert shaped({"filter": filter})["filter"] == shape


@pytest.mark.parametrize(
    ("stage", "shape"),
    [
        ({"$set": {"a": {"$literal": "$b"}}}, {"$set": {"a": {"$literal": "?string"}}}),
        ({"$set": {"a": [1, 2], "b": ["$c", 2]}}, {"$set": {"a": "?array<?number>", "b": ["$c", "?number"]}}),
        ({"$limit": 5}, {"$limit": "?number"}),
        ({"$sort": {"a": -1, "s": {"$meta": "textScore"}}}, {"$sort": {"a": -1, "s": {"$meta": "textScore"}}}),
        ({"$project": {"a": 1, "b": "$c", "d": {"e": False}}}, {"$project": {"a": 1, "b": "$c", "d": {"e": False}}}),
        ({"$unwind": {"path": "$a", "includeArrayIndex": "n"}}, {"$unwind": {"path": "$a", "includeArrayIndex": "n"}}),
        ({"$documents": [{"a": 1}]}, {"$documents": [{"a": "?number"}]}),
        (
            {"$setWindowFields": {"sortBy": {"a": 1}, "output": {"n": {"$sum": 1, "window": {"documents": [-1, 0]}}}}},
            {"$setWindowFields": {"sortBy": {"a": 1}, "output": {"n": {"$sum": "?number", "window": "?object"}}}},
        ),
        (
            {"$fill": {"sortBy": {"a": 1}, "output": {"b": {"method": "linear"}, "c": {"value": 0}}}},
            {"$fill": {"sortBy": {"a": 1}, "output": {"b": {"method": "linear"}, "c": {"value": "?number"}}}},
        ),
        (
            {"$merge": {"into": {"db": "d", "coll": "c"}, "on": ["a", "b"], "whenMatched": "merge"}},
            {"$merge": {"into": {"db": "d", "coll": "c"}, "on": ["a", "b"], "whenMatched": "merge"}},
        ),
    ],
    ids=lambda value: next(iter(value)),
)
def test_stages(stage: Document, shape: Document) -> None:
    assert shaped({"pipeline": [stage]})["pipeline"] == [shape]


# Commands in which every name that the user has chosen begins with "secret".
SECRETS: list[Document] = [
    {"filter": {"secretA.secretB": {"$gt": 1}, "$or": [{"secretC": 1}, {"secretD": {"$elemMatch": {"secretE": 1}}}]}},
    {"filter": {"$expr": {"$gt": ["$secretA.secretB", {"$max": [1, "$$secretV.secretC"]}]}}},
    {"query": {"secretA": {"$not": {"$elemMatch": {"secretB": "secretValue"}}}}, "key": "secretA.secretB"},
    {"sort": {"secretA": 1}, "min": {"secretA": 5}, "max": {"secretA.secretB": "secretValue"}, "hint": "secretA_1"},
    {"hint": {"secretA": 1, "secretB": -1}, "let": {"secretV": 5}},
    {"projection": {"secretA": 1, "secretB": {"$elemMatch": {"secretC": 1}}, "secretD.$": 1, "s": {"secretE": 1}}},
    {"projection": {"secretA": {"$slice": 2}, "secretB": {"$meta": "textScore"}, "secretC": "secretValue"}},
    {"pipeline": [{"$match": {"secretA": 1}}, {"$sort": {"secretB": 1}}, {"$unset": ["secretC", "secretD.secretE"]}]},
    {"pipeline": [{"$group": {"_id": {"secretA": "$secretB"}, "secretC": {"$push": {"secretD": "$secretE"}}}}]},
    {"pipeline": [{"$group": {"_id": None, "secretA": {"$topN": {"n": 1, "sortBy": {"secretB": 1}, "output": "$a"}}}}]},
    {"pipeline": [{"$facet": {"secretF": [{"$match": {"secretA": 1}}, {"$count": "secretN"}]}}]},
    {
        "pipeline": [
            {
                "$lookup": {
                    "from": "secretC",
                    "let": {"secretV": "$secretA"},
                    "localField": "secretL",
                    "foreignField": "secretF",
                    "pipeline": [{"$match": {"secretB": {"$in": ["secretValue"]}}}],
                    "as": "secretAs",
                }
            }
        ]
    },
    {
        "pipeline": [
            {
                "$graphLookup": {
                    "from": "secretC",
                    "startWith": "$secretA",
                    "connectFromField": "secretF",
                    "connectToField": "secretT",
                    "as": "secretAs",
                    "depthField": "secretDepth",
                    "restrictSearchWithMatch": {"secretB": {"secretC": 1}},
                }
            }
        ]
    },
    {"pipeline": [{"$unionWith": "secretC"}, {"$unionWith": {"coll": "secretC", "pipeline": [{"$count": "secretN"}]}}]},
    {"pipeline": [{"$out": "secretC"}]},
    {"pipeline": [{"$out": {"db": "secretD", "coll": "secretC", "timeseries": {"timeField": "secretT"}}}]},
    {"pipeline": [{"$merge": {"into": "secretC", "on": "secretA", "whenMatched": [{"$set": {"secretA": "$$new"}}]}}]},
    {"pipeline": [{"$bucket": {"groupBy": "$secretA", "boundaries": [0, 1], "output": {"secretN": {"$sum": 1}}}}]},
    {"pipeline": [{"$geoNear": {"near": [1, 2], "key": "secretA", "query": {"secretB": 1}, "distanceField": "secD"}}]},
    {"pipeline": [{"$densify": {"field": "secretA", "partitionByFields": ["secretB"], "range": {"step": 1}}}]},
    {"pipeline": [{"$fill": {"partitionBy": {"secretA": "$secretB"}, "output": {"secretC": {"value": "$secretD"}}}}]},
    {"pipeline": [{"$setWindowFields": {"sortBy": {"secretA": 1}, "output": {"secretB": {"$rank": {}}}}}]},
    {"pipeline": [{"$replaceWith": {"secretA": {"$mergeObjects": [{"secretB": 1}, "$$ROOT.secretC"]}}}]},
    {"pipeline": [{"$set": {"secretA": {"$let": {"vars": {"secretV": "$secretB"}, "in": "$$secretV.secretC"}}}}]},
    {"pipeline": [{"$set": {"secretA": {"$map": {"input": "$secretB", "as": "secretV", "in": {"secretC": 1}}}}}]},
    {"pipeline": [{"$set": {"secretA": {"$getField": "secretB"}, "secretC": {"$getField": {"field": "secretD"}}}}]},
    {"pipeline": [{"$set": {"secretA": {"$switch": {"branches": [{"case": "$secretB", "then": {"secretC": 1}}]}}}}]},
    {"pipeline": [{"$set": {"secretA": {"$objectToArray": {"secretB": 1}}, "secretC": {"$ifNull": ["$secretD", {}]}}}]},
    {"pipeline": [{"$rankFusion": {"input": {"pipelines": {"secretP": [{"$sort": {"secretA": 1}}]}}}}]},
    {"pipeline": [{"$unknownStage": {"secretA": "secretValue", "secretB": [{"secretC": 1}]}}]},
]  # fmt: skip


@pytest.mark.parametrize("command", SECRETS, ids=str)
def test_no_name_or_value_is_left(command: Document) -> None:
    """Of the stored shape, in which values are gone, only names are replaced: as if both were done at once."""
    command = {"cmdNs": {"db": "secretD", "coll": "secretC.secretE"}, **command}
    stored = shaped(command)
    assert "secretValue" not in str(stored)
    shown = shaped(stored, Shaper(KEY, of_shapes=True))
    assert "secret" not in str(shown)
    assert shown["cmdNs"] == {"db": hashed("secretD"), "coll": hashed("secretC.secretE")}
    assert shown == shaped(command, Shaper(KEY))
    assert shaped(stored, Shaper(of_shapes=True)) == stored


def test_words_of_the_language_are_left() -> None:
    pipeline: list[Document] = [
        {"$lookup": {"from": "c", "let": {"v": "$a"}, "pipeline": [{"$limit": 1}], "as": "b"}},
        {"$set": {"x": {"$dateToString": {"date": "$$NOW", "timezone": "$zone"}}}},
        {"$setWindowFields": {"partitionBy": "$p", "sortBy": {"t": 1}, "output": {"o": {"$shift": {"output": "$v"}}}}},
    ]  # fmt: skip
    lookup, set_, window = shaped({"pipeline": pipeline}, Shaper(KEY))["pipeline"]
    assert list(lookup["$lookup"]) == ["from", "let", "pipeline", "as"]
    assert set_["$set"][hashed("x")] == {"$dateToString": {"date": "$$NOW", "timezone": f"${hashed('zone')}"}}
    assert list(window["$setWindowFields"]) == ["partitionBy", "sortBy", "output"]
    assert window["$setWindowFields"]["output"][hashed("o")] == {"$shift": {"output": f"${hashed('v')}"}}
